"""Posteriors, priors, layers, draws, likelihoods, networks, and their evidence lower bound."""
