"""How likely softmax is to draw the lists that another policy drew.

Notation, besides that of ``linear.softmax`` and ``logged``
    n, q        decisions, queries: decisions of one query have the same scores
    top         largest score of all eligible arms, or 0 where all scores are near it: see ``NEAR_LOG``
    z_i         (s_i - top) / tau
    mass        the sum of exp(z_i) over the eligible arms; at least 1, if ``top`` is the largest score
    moment      the sum of z_i exp(z_i)

The arm at place j is drawn with exp(z) / (mass - those of the arms before it), so ``Totals`` of a query are
enough for any number of lists. Where the arms before it have nearly all of the mass, that difference would
lose its digits: such lists are walked arm by arm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.types import Matrix, Rows, Vector

LEAST_LEFT = 1e-4  # of the mass: a difference that is smaller is not computed as one
NEAR_LOG = 100.0  # z is at most this, of either sign: exp keeps its digits, and needs no largest score
LEAST_LOG = -700.0  # exp is many times slower where it leaves the range of normal numbers

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Of each query. Shapes: all (q,)."""

    top: Vector
    mass: Vector
    moment: Vector

    def of(self, places: Rows) -> Totals:
        """Those of some queries. Shapes: places (n,)."""
        return Totals(self.top[places], self.mass[places], self.moment[places])


def totals(
    blocks: Iterable[Matrix], queries: Matrix, *, temperature: float, largest_norm: float = np.inf
) -> Totals:
    """The totals of each query over the arms of all blocks; without any arm the mass is 0.

    ``blocks`` are features, a piece at a time: only scores of one block are held. ``largest_norm`` bounds
    their norms: where no score is large by it, half of the passes over the scores are left out.
    Shapes: blocks (b, d), queries (q, d) -> (q,). Cost: q K d multiply-adds and q K exponentials.
    Raises: InvalidShape, InvalidParameter (temperature <= 0).
    """
    checks.shape("queries", queries, (None, None))
    checks.in_range("temperature", temperature, above=0.0)
    mass, moment = np.zeros(len(queries)), np.zeros(len(queries))
    with np.errstate(over="ignore", invalid="ignore"):
        bounds = np.linalg.norm(queries, axis=1) * (largest_norm / temperature)
    if (bounds <= NEAR_LOG).all():  # not of what is no number
        scaled = queries / temperature
        for features in blocks:
            z = scaled @ features.T
            weights = np.exp(z)
            mass += weights.sum(axis=1)
            moment += np.einsum("ij,ij->i", weights, z)
        return Totals(np.zeros(len(queries)), mass, moment)
    top = np.full(len(queries), -np.inf)
    for features in blocks:
        if not len(features):
            continue
        scores = queries @ features.T
        higher = np.maximum(top, scores.max(axis=1))
        drop = np.where(np.isneginf(top), 0.0, top - higher) / temperature
        fade = np.exp(drop)
        moment = fade * (moment + drop * mass)
        mass *= fade
        scores -= higher[:, None]
        scores *= 1.0 / temperature
        np.maximum(scores, LEAST_LOG, out=scores)
        weights = np.exp(scores)
        mass += weights.sum(axis=1)
        moment += np.einsum("ij,ij->i", weights, scores)
        top = higher
    return Totals(top, mass, moment)


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxWeights:
    """Of each list: ``propensities`` t and ``expected``, the mean score of what softmax would draw there.

    ``lost``: lists that have to be walked. Shapes: propensities, expected (n, k), lost (n,).
    """

    propensities: Matrix
    expected: Matrix
    lost: Mask


def weigh(known: Totals, scores: Matrix, eligible: Mask, *, temperature: float) -> SoftmaxWeights:
    """The propensities of lists, from the totals of the query of each.

    ``eligible``: False for an arm that softmax could not draw; its propensity is 0.
    Shapes: known (n,), scores, eligible (n, k) -> (n, k). Cost: O(n k).
    """
    top = np.where(known.mass > 0.0, known.top, 0.0)[:, None]
    z = np.where(eligible, scores - top, 0.0) / temperature
    weights = np.where(eligible, np.exp(z), 0.0)
    drawn, drawn_moment = np.cumsum(weights, axis=1), np.cumsum(weights * z, axis=1)
    left = known.mass[:, None] - drawn + weights
    left_moment = known.moment[:, None] - drawn_moment + weights * z
    left[:, 0], left_moment[:, 0] = known.mass, known.moment
    few = left < LEAST_LEFT * known.mass[:, None]
    safe = np.where(few | (left <= 0.0), 1.0, left)
    found = np.minimum(weights / safe, 1.0)
    return SoftmaxWeights(found, top + temperature * left_moment / safe, few.any(axis=1))


def walk(scores: Vector, places: Rows, *, temperature: float) -> tuple[Vector, Vector]:
    """Propensities and expected scores of one list, each from the arms that are left.

    ``scores`` are those of all eligible arms, ``places`` those of the list among them, -1 for an arm that is
    not eligible. Shapes: (K,), (k,) -> (k,), (k,). Cost: O(k K).
    """
    left = scores.copy()
    found, expected = np.zeros(len(places)), np.zeros(len(places))
    for j, place in enumerate(places.tolist()):
        top = left.max(initial=-np.inf)
        if np.isneginf(top):
            break
        alive = np.isfinite(left)
        weights = np.where(alive, np.exp((left - top) / temperature), 0.0)
        mass = weights.sum()
        expected[j] = weights[alive] @ left[alive] / mass
        if place >= 0:
            found[j] = weights[place] / mass
            left[place] = -np.inf
    return found, expected
