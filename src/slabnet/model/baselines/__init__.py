"""Methods that draw something other than single weights: units, scales, members. One file each."""

from slabnet.model.baselines.concrete_dropout import ConcreteDropout
from slabnet.model.baselines.ensemble import Ensemble
from slabnet.model.baselines.horseshoe import Horseshoe
from slabnet.model.baselines.inputs import InputNoise, PrunableInputs
from slabnet.model.baselines.mc_dropout import MCDropout
from slabnet.model.baselines.normal_jeffreys import NormalJeffreys

__all__ = ["ConcreteDropout", "Ensemble", "Horseshoe", "InputNoise", "MCDropout", "NormalJeffreys", "PrunableInputs"]
