"""What a log says of other policies: evaluations of it in the service, and `shortlist evaluate` for files."""
