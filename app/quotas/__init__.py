"""Quotas: limits on how often arms may be shown, shared by all processes, and even pacing."""
