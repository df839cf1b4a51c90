"""Constraints, which decide about the arms of a choice: one file for each, and their list."""
