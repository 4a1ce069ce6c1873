"""Which weights are in: rules, criteria, pruning."""
