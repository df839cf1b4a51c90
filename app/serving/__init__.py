"""A choice: its request, its constraints, and the decision that is signed and logged."""
