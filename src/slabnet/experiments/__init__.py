"""Whole experiments: from data to the rows of a table."""
