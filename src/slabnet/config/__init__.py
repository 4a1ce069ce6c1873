"""Settings as a person writes them: no torch here."""
