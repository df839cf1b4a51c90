"""Quotas: how often an arm may still be shown, and an even pace."""
