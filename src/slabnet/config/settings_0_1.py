"""The values that settings of a fit had in 0.1 where nobody gave them. Frozen: a release adds a table of its own.

A checkpoint of 0.1 that lacks a setting, or has it at its value here, was made by somebody who left it open. Whoever
resumes that run and leaves it open again goes on with this value, whatever today's default is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slabnet.config.settings import TrainConfig

TRAIN_0_1: Mapping[str, Any] = {
    "epochs": None,
    "batch_size": 100,
    "samples": 1,
    "lr": 1e-3,
    "omega_lr": 0.02,
    "omega_hold": 0,
    "pretrain_epochs": 0,
    "omega_settle_epoch": None,
    "omega_settle_lr": 1e-4,
    "schedule": "constant",
    "draw": "local",
    "delta": 0.5,
    "kl": "exact",
    "ramp_epochs": None,
    "kl_weight": 1.0,
    "validation_fraction": 0.0,
    "patience": None,
    "clip": None,
    "seed": 0,
    "cut_every": 2,
    "shared_draws": False,
    "compile": False,
    "device": "auto",
    "dtype": None,
}


def open_settings_of(config: TrainConfig, earlier: Mapping[str, Any]) -> TrainConfig:
    """`config`, with those settings at their value of 0.1 that are open in it and were in the `earlier` run's.

    >>> open_settings_of(TrainConfig(lr=0.1), {"lr": 0.1, "schedule": "constant"}).schedule
    'constant'
    """
    left_open = [name for name in TRAIN_0_1 if name not in config.model_fields_set]
    taken = {name: TRAIN_0_1[name] for name in left_open if earlier.get(name, TRAIN_0_1[name]) == TRAIN_0_1[name]}
    return config.model_copy(update=taken)
