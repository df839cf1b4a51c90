"""The log of decisions with their rewards. Serving writes it, measuring reads it."""
