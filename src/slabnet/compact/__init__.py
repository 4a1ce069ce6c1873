"""A chosen model as a small network, and its few bytes in a file."""
