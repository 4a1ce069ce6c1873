"""Estimators for scikit-learn users: fit a table, predict, and see feature importance."""

from slabnet.estimators.classifier import SlabClassifier
from slabnet.estimators.files import load_estimator, save_estimator
from slabnet.estimators.regressor import SlabRegressor

__all__ = ["SlabClassifier", "SlabRegressor", "load_estimator", "save_estimator"]
