"""Converts a store of version 2.x for version 3: ``shortlist upgrade``. It is deleted in version 4."""
