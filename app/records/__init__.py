"""The types of all stored records, and their encoding."""
