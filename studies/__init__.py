"""Benchmarks, and reproductions of the papers' tables and figures: of a checkout, not of the service."""
