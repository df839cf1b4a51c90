"""Embeddings of arms: numbers made of what keys liked, and of fields where nobody has liked an arm yet.

Three keys like the first two arms, two like the last two. What the same keys like is near:

    >>> import numpy as np
    >>> from shortlist.embedding.behaviour import embed, keys_by_arms
    >>> keys, arms = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [0, 1, 0, 1, 0, 1, 2, 3, 2, 3]
    >>> liked = keys_by_arms(np.array(keys), np.array(arms), np.ones(10), shape=(5, 4))
    >>> found = embed(liked, 2, np.random.default_rng(0))
    >>> np.round(np.abs(found.vectors), 2).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 0.82], [0.0, 0.82]]
"""
