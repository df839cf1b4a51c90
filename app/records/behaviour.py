"""Catalogues whose features are an embedding of behaviour: they follow another catalogue, arm by arm.

``shortlist-embeddings`` makes and fills them.

Notation
    t           features of an arm in the followed catalogue (T,)
    x, n        embedding of an arm by behaviour (d,), and the number of keys with a like; absent for most new
                arms
    W, b, k     the map of an arm's fields to an embedding: (d, T), (d,), and its weight in likes

Features are (n x + k (W t + b)) / (n + k), after t itself where the embedding stands beside the table.
"""

from __future__ import annotations

import msgspec


class BehaviourRecord(msgspec.Struct, frozen=True):
    """The source of a catalogue made as an embedding. Stored with the catalogue, and never changed.

    ``follows``, ``follows_uid``    the followed catalogue
    ``linear``, ``shift``           W row by row, and b: float32
    ``kappa``                       k
    ``rewards``, ``keys``, ``arms`` the amount of behaviour, and the number of its arms
    ``without``                     number of arms without any
    ``beside``                      True if the features begin with those of the table
    ``held_out``                    the squared error on held-out rewards, before and after
    ``made_for``                    the id of the job with a judgement of a log; it begins with the uid of the
                                    bandit; "": made by hand
    """

    follows: str
    follows_uid: str
    linear: bytes
    shift: bytes
    kappa: float
    rewards: int
    keys: int
    arms: int
    without: int
    beside: bool = False
    held_out: tuple[float, float] | None = None
    made_for: str = ""
