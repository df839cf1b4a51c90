"""Is it better? Reports, exports and explanations, all read from the decision log."""
