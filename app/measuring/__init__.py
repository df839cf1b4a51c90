"""Measuring whether a policy is better: reports, evaluations, explanations and exports of the log."""
