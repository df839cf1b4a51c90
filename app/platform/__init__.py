"""What every part stands on: settings, errors, metrics, limits of memory and of time."""
