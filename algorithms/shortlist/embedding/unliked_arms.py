"""Arms of a history without likes: the share of their fields' promise which they get.

Notation
    x, n        embedding of an arm by behaviour (d,), and how many keys liked it
    e           the embedding by the fields of an arm (d,): W t + b of ``table_map``
    N           keys with likes
    mu          mean taste of keys (d,): sum_i (n_i / N) x_i X^-2, X^2 the squared lengths of the columns of x
    n1, K0      numbers of arms liked by one key, and by nobody
    a           exposure of an arm: the share of the history's time in which it was there already

W and b are fitted to liked arms, so e takes an arm passed over by everybody for one as good as those. Good
and Turing estimate by n1 / N how many arms without likes the next key likes. Fields promise the sum of a e.mu
over these arms, and as much for each of the n1, which had no likes until one key liked them. The features of
a passed-over arm are s e, with s the ratio of both, at most 1. For an arm from the middle of the history 1 -
a (1 - s) takes the place of s: an arm younger than the history gets all of e.

Source: Good 1953, "The population frequencies of species and the estimation of population parameters".
"""

from __future__ import annotations

import numpy as np

from shortlist import checks
from shortlist.types import Matrix, Rows, Vector

LEAST_SHARE = 1e-3


def shares(expected: Matrix, vectors: Matrix, likes: Rows, keys: int, *, exposure: Vector) -> Vector:
    """Return by what e of each arm is multiplied where nobody has liked it: ``LEAST_SHARE`` to 1.

    Shapes: expected (e) and vectors (arms, d), likes, exposure and as returned (arms,).
    Raises: InvalidShape, NonFinite, InvalidParameter (keys < 1).
    """
    checks.shape("vectors", vectors, (len(likes), None))
    checks.shape("expected", expected, vectors.shape)
    checks.shape("exposure", exposure, (len(likes),))
    checks.finite("expected", expected)
    checks.in_range("keys", keys, least=1, whole=True)
    squares = np.square(vectors).sum(axis=0)
    taste = likes / keys @ vectors / np.where(squares > 0.0, squares, 1.0)
    passed = exposure * (likes == 0)  # K0, arm by arm
    once, promised = np.count_nonzero(likes == 1), float(passed @ (expected @ taste))
    if promised <= 0.0:
        return np.ones(len(likes))
    share = once / keys / (promised * (1.0 + once / passed.sum()))
    corrected: Vector = 1.0 - exposure * (1.0 - np.clip(share, LEAST_SHARE, 1.0))
    return corrected


def passed_over(share: Vector, kappa: float) -> Vector:
    """Return how many likes of a zero vector make ``TableMap.mix`` return s e. Shapes: (k,), (k,)."""
    return kappa * (1.0 / share - 1.0)
