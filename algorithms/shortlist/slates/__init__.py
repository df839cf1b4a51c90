"""Top-k identification from total rewards (full-bandit feedback)."""
