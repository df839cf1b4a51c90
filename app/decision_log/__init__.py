"""The log of decisions: written by serving, read by measuring."""
