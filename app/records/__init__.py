"""The types of everything that is stored, and how they are encoded."""
