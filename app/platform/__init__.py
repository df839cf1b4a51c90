"""The base of all other folders: settings, errors, metrics, logs, limits of memory and time."""
