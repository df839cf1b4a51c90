"""Arms in an engine beside the service, for catalogues too large for one process."""
