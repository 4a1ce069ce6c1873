"""One self-contained HTML page about a fitted model, or about a folder of runs."""
