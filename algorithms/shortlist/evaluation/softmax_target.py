"""Propensities of softmax for the lists drawn by another policy.

Notation, besides ``linear.softmax`` and ``logged``
    n, q        decisions, queries: decisions of one query have the same scores
    top         largest score of all eligible arms, or 0 where all scores are near it: see ``NEAR_LOG``
    z_i         (s_i - top) / tau
    q_i         a model's prediction for arm i: its score, held to the bounds of the query, if any
    mass        the sum of exp(z_i) over the eligible arms; at least 1, if ``top`` is the largest score
    moment      the sum of q_i exp(z_i)

The arm at place j is drawn with exp(z) / (mass - those of the arms before it), so ``Totals`` of a query are
enough for any number of lists. Where the arms before have nearly all of the mass, the difference would lose
its digits: such lists are walked arm by arm.
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

Bounds = tuple[Vector, Vector]  # smallest and largest prediction, of each query
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Totals of each query. ``least``, ``most``: its smallest and largest prediction, 0 without any arm.

    Shapes: all (q,).
    """

    top: Vector
    mass: Vector
    moment: Vector
    least: Vector
    most: Vector

    def of(self, places: Rows) -> Totals:
        """The totals of some queries. Shapes: places (n,)."""
        columns = (self.top, self.mass, self.moment, self.least, self.most)
        return Totals(*(column[places] for column in columns))


def totals(
    blocks: Iterable[Matrix],
    queries: Matrix,
    *,
    temperature: float,
    largest_norm: float = np.inf,
    bounds: Bounds | None = None,
) -> Totals:
    """The totals of each query over the arms of all blocks; without any arm the mass is 0.

    ``blocks`` are features, a piece at a time: only scores of one block are held. ``largest_norm`` bounds
    their norms: where no score is large by it, half of the passes over the scores are left out.
    Shapes: blocks (b, d), queries (q, d), bounds (q,) each -> (q,). Cost: q K d multiply-adds and q K
    exponentials. Raises: InvalidShape, InvalidParameter (temperature <= 0).
    """
    checks.shape("queries", queries, (None, None))
    checks.in_range("temperature", temperature, above=0.0)
    mass, first_moment = np.zeros(len(queries)), np.zeros(len(queries))
    top, least, most = np.zeros(len(queries)), np.full(len(queries), np.inf), np.full(len(queries), -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.linalg.norm(queries, axis=1) * (largest_norm / temperature)
    is_near = bool((largest <= NEAR_LOG).all())  # not of what is no number
    if not is_near:
        top -= np.inf
    for features in blocks:
        if not len(features):
            continue
        scores = queries @ features.T
        lowest, highest = scores.min(axis=1), scores.max(axis=1)
        least, most = np.minimum(least, lowest), np.maximum(most, highest)
        predicted = _predicted(scores, lowest, highest, bounds)
        if is_near:
            weights = np.exp(scores if temperature == 1.0 else scores / temperature)
        else:
            higher = np.maximum(top, highest)
            fade = np.exp(np.where(np.isneginf(top), 0.0, top - higher) / temperature)
            first_moment, mass, top = first_moment * fade, mass * fade, higher
            z = scores - higher[:, None]
            z *= 1.0 / temperature
            weights = np.exp(np.maximum(z, LEAST_LOG, out=z), out=z)
        mass += weights.sum(axis=1)
        first_moment += np.einsum("ij,ij->i", weights, predicted)
    is_finite = np.isfinite(least)
    least, most = np.where(is_finite, least, 0.0), np.where(is_finite, most, 0.0)
    if bounds is not None:
        least, most = least.clip(*bounds), most.clip(*bounds)
    return Totals(top, mass, first_moment, least, most)


def _predicted(scores: Matrix, lowest: Vector, highest: Vector, bounds: Bounds | None) -> Matrix:
    """Scores held to bounds: mostly they lie within them, and nothing is copied."""
    if bounds is None or ((lowest >= bounds[0]) & (highest <= bounds[1])).all():
        return scores
    return scores.clip(bounds[0][:, None], bounds[1][:, None])


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxWeights:
    """The propensities t of each list, and ``expected``, the mean prediction over the draws there.

    ``lost``: lists that have to be walked. Shapes: propensities, expected (n, k), lost (n,).
    """

    propensities: Matrix
    expected: Matrix
    lost: Mask


def weigh(
    known: Totals, scores: Matrix, eligible: Mask, *, temperature: float, bounds: Bounds | None = None
) -> SoftmaxWeights:
    """The propensities of lists, from the totals of the query of each, and the ``bounds`` of these.

    ``eligible``: False for an arm that softmax could not draw; its propensity is 0.
    Shapes: known, bounds (n,), scores, eligible (n, k) -> (n, k). Cost: O(n k).
    """
    top = np.where(known.mass > 0.0, known.top, 0.0)[:, None]
    z = np.where(eligible, scores - top, 0.0) / temperature
    weights = np.where(eligible, np.exp(z), 0.0)
    weighed_scores = weights * (
        scores if bounds is None else scores.clip(bounds[0][:, None], bounds[1][:, None])
    )
    drawn, drawn_moment = np.cumsum(weights, axis=1), np.cumsum(weighed_scores, axis=1)
    left = known.mass[:, None] - drawn + weights
    left_moment = known.moment[:, None] - drawn_moment + weighed_scores
    left[:, 0], left_moment[:, 0] = known.mass, known.moment
    is_exhausted = left < LEAST_LEFT * known.mass[:, None]
    safe = np.where(is_exhausted | (left <= 0.0), 1.0, left)
    probabilities = np.minimum(weights / safe, 1.0)
    return SoftmaxWeights(probabilities, left_moment / safe, is_exhausted.any(axis=1))


def walk(
    scores: Vector, places: Rows, *, temperature: float, bounds: tuple[float, float] | None = None
) -> tuple[Vector, Vector]:
    """Propensities and expected predictions of one list, each from the arms that are left.

    ``scores`` are those of all eligible arms, ``places`` those of the list among them, -1 for an arm that is
    not eligible. Shapes: (K,), (k,) -> (k,), (k,). Cost: O(k K).
    """
    left, predicted = scores.copy(), scores if bounds is None else scores.clip(*bounds)
    probabilities, expected = np.zeros(len(places)), np.zeros(len(places))
    for j, position in enumerate(places.tolist()):
        top = left.max(initial=-np.inf)
        if np.isneginf(top):
            break
        alive = np.isfinite(left)
        weights = np.where(alive, np.exp((left - top) / temperature), 0.0)
        mass = weights.sum()
        expected[j] = weights[alive] @ predicted[alive] / mass
        if position >= 0:
            probabilities[j] = weights[position] / mass
            left[position] = -np.inf
    return probabilities, expected
