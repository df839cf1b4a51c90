"""Catalogues whose features are an embedding of behaviour: they follow another catalogue, arm by arm.

``shortlist-embeddings`` makes and fills them.

Notation
    t           features of an arm in the catalogue that is followed (T,)
    x, n        embedding of an arm by behaviour (d,), and how many keys liked it; absent of most new arms
    W, b, k     what places an arm by its fields: (d, T), (d,), and how many likes that is worth

Features are (n x + k (W t + b)) / (n + k), after t itself where the embedding stands beside the table.
"""

from __future__ import annotations

import msgspec


class BehaviourRecord(msgspec.Struct, frozen=True):
    """What a catalogue is an embedding of. It is stored with the catalogue, and never changes.

    ``follows``, ``follows_uid``    the catalogue that it follows
    ``linear``, ``shift``           W row by row, and b: float32
    ``kappa``                       k
    ``rewards``, ``keys``, ``arms`` how much behaviour there was, and of how many arms
    ``without``                     how many arms had none
    ``beside``                      whether the features begin with those of the table
    ``held_out``                    the squared error on rewards that were held out, before and after
    ``made_for``                    the id of the job that judged a log; it begins with the uid of the bandit;
                                    "": it was made by hand
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
