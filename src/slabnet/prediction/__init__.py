"""Model-averaged predictions, their metrics, and how far to trust them."""
