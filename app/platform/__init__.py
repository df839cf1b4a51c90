"""What every other folder uses: settings, errors, metrics, logs, limits of memory and time."""
