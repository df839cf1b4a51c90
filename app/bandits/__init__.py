"""Bandits: their settings, their versions, and how they read contexts and weigh signals."""
