"""Evaluations of other policies by a log: in the service, and `shortlist evaluate` for files."""
