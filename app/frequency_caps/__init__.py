"""Frequency caps (the setting ``repeats``): how often a key, or a visitor of a global bandit, sees an arm."""
