"""What other processes know, and whether this one is well."""
