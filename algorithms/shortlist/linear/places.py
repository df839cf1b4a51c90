"""Places of lists: how likely the arm at each is looked at, learned from ordinary lists by sums of each
place.

Notation
    j           a place, from the first one; p_j how likely the arm there is looked at, p_1 = 1
    y           the reward of an arm at place j: p_j m + noise of variance v_j
    m           the expected reward of the arm if looked at, from before the reward
    n, M, Y, V  of each place, over its decisions: how many, sum max(m, 0), sum y, sum (y - p_j m)^2
    w_j         the weight of a reward at place j, relative to the first

Estimate
    In lists that are drawn, as by Thompson sampling, an arm stands at many places for many keys, and M_j
    corrects for better arms at higher places. p_j is the ratio Y_j / M_j over that of the first place,
    where both are shrunk to 1 by ``STRENGTH`` mean rewards of the first place. Expectations under a wrong p
    fade. They also say that arms at low places are bad, which confirms that p: so while little is known of
    arms M_j is shrunk to what is expected of all places together, by ``TRUSTED_LISTS``. A reward weighs v_1
    / v_j: clicks at low places are rarer, so surer. Without it a right p costs up to a third where clicks
    are rare.

    What was learned by a wrong p stays. By p = 1 it says that arms at low places are bad, which keeps them
    there. So rewards beyond the first place weigh less while p is hardly known: near ``FIRST`` after a few
    lists, and the share that is missing falls by e^-1 with every ``KNOWN_LISTS``.

    Where one arm stands first for everybody, p and the worth of this arm cannot be told apart.

Source: Craswell et al., "An Experimental Comparison of Click Position-Bias Models" (2008), the examination
hypothesis; Lagree, Vernade and Cappe, "Multiple-Play Bandits in the Position-Based Model" (2016), section 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shortlist import checks
from shortlist.types import Vector

STRENGTH = 40.0  # mean rewards of the first place
LOW, HIGH = 0.02, 1.2  # of p
TRUSTED_LISTS = 1_000.0  # after which half of what was expected of places apart counts: errors of p halve
FADED = 0.9  # of what was learned, after each FADE_LISTS: with 200 rare clicks lose what they gain
FADE_LISTS = 1_000.0
FIRST = 0.1  # of the weight of a reward beyond the first place, while hardly anything is known of its place
KNOWN_LISTS = 60.0  # with 30 one of forty like arms has nearly all first places in half of the worlds
TINY = 1e-9


class PlaceNumbers(NamedTuple):
    """n, M, Y and V of each place. Shapes: (k,) all."""

    n: Vector
    M: Vector
    Y: Vector
    V: Vector


class Examination(NamedTuple):
    """p and w of each place. Shapes: (k,) both."""

    p: Vector
    w: Vector


def fit(sums: PlaceNumbers, stated: Vector | None = None) -> Examination:
    """Return p and w; 1 while nothing was earned or expected, and at places without decisions as at the last
    one with any.

    ``stated``: the p that rewards were learned with, in place of the fitted one: all is known of them, so
    their noise alone makes w. Shape: (k,).

    Cost: O(k). Raises: InvalidShape, NonFinite.
    """
    places = len(sums.n)
    for name, numbers in zip(sums._fields, sums, strict=True):
        checks.shape(name, numbers, (places,))
        checks.finite(name, numbers)
    shown = int(np.count_nonzero(np.cumsum(sums.n[::-1] > 0.0)))
    p, w = np.ones(places), np.ones(places)
    if not shown or sums.n[0] <= 0.0 or min(sums.M.sum(), sums.Y.sum(), sums.Y[0]) <= 0.0:
        return Examination(p, w)
    n, M, Y, V = (numbers[:shown] for numbers in sums)
    trusted = n[0] / (n[0] + TRUSTED_LISTS)
    M = trusted * M + (1.0 - trusted) * n * M.sum() / n.sum()
    more = STRENGTH * Y[0] / n[0]
    ratios = (Y + more) / (M + more * M.sum() / Y.sum())
    p[:shown] = np.clip(ratios / ratios[0], LOW, HIGH)
    v = np.maximum(np.divide(V, n, out=np.full(shown, V[0] / n[0]), where=n > 0.0), 0.0)
    held = p if stated is None else stated
    w[:shown] = np.clip((v[0] + TINY * v.max()) / (v + TINY * v.max() + np.finfo(float).tiny), 1.0, None)
    w[:shown] = np.minimum(w[:shown], np.maximum(1.0 / held[:shown], 1.0))
    if stated is None:
        # DEVIATION (Lagree et al., section 2): there p is known; see the page of arm effects.
        w[:shown] *= 1.0 - (1.0 - FIRST) * np.exp(-n[0] / KNOWN_LISTS)
    p[shown:], w[shown:] = p[shown - 1], w[shown - 1]
    p[0] = w[0] = 1.0
    return Examination(p, w)


def faded(before: PlaceNumbers, since: PlaceNumbers) -> PlaceNumbers:
    """Return the sums of before, and what came since: before it all that was known has faded a little.

    Cost: O(k).
    """
    factor = FADED ** (max(float(since.n[0]), 0.0) / FADE_LISTS)
    return PlaceNumbers(*(np.maximum(factor * a + b, 0.0) for a, b in zip(before, since, strict=True)))
