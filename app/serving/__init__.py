"""One choice: its request, its constraints, the selection, and the signed and logged decision."""
