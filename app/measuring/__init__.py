"""Is it better? Reports, evaluations, explanations and exports of the decision log."""
