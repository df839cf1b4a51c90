"""Arms in an engine beside the service, for catalogues that are too large for one process."""
