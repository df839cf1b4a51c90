"""What is stored, as types."""
