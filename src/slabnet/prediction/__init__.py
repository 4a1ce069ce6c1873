"""Model-averaged predictions, their metrics, and diagnostics of the fit behind them."""
