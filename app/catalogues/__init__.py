"""Catalogues and their arms: which exist, and where each process holds them."""
