"""Embeddings of behaviour: catalogues that follow another one, with what people like as their features.

A plug-in: ``shortlist embed`` and ``shortlist begin``.
"""
