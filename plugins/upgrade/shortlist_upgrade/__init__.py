"""Converts a store of version 2.x for version 3: ``shortlist upgrade``. Deleted in version 4."""
