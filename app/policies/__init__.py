"""Policies: how arms are ranked for a learner, and what a policy is given to do so."""
