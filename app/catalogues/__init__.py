"""Which catalogues and arms there are, and where they are kept."""
