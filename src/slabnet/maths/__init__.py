"""Formulas with an independent route to their value."""
