"""What every other folder stands on: errors, files, containers, noise, records."""
