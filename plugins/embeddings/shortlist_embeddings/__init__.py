"""Embeddings of behaviour: catalogues that follow another one, with what people like as their features.

A plug-in of two commands, ``shortlist embed`` and ``shortlist begin``, and of two sets of calls,
``POST /v1/catalogues/{catalogue}/embeddings`` and ``/v1/bandits/{bandit}/embeddings``.
"""
