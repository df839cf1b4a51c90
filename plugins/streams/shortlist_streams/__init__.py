"""Rewards and observations from streams, for Shortlist."""
