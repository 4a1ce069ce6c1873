"""Named recipes, as TOML files."""
