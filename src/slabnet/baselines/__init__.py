"""Methods that draw something other than single weights: units, scales, members. One file each."""

from slabnet.baselines.concrete_dropout import ConcreteDropout
from slabnet.baselines.ensemble import Ensemble
from slabnet.baselines.horseshoe import Horseshoe
from slabnet.baselines.inputs import InputNoise
from slabnet.baselines.mc_dropout import MCDropout

__all__ = ["ConcreteDropout", "Ensemble", "Horseshoe", "InputNoise", "MCDropout"]
