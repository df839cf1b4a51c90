"""Contracts as classes: those of stores. ``shortlist_service.testing`` has those of what plug-ins add."""
