"""Redis: a file for each concern, the scripts beside them, and the server that is embedded."""
