"""Bandits: their settings, versions, contexts and signals."""
