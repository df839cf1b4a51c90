"""The log of decisions with their rewards. Serving writes rows, measuring reads them."""
