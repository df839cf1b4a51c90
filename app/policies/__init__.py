"""Policies, and what a policy is asked with."""
