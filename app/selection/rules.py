"""Rules of one choice: arms pinned to places, limits of arms with one value, and diversity.

Arms are taken in the order of the policy. An arm is passed over when one of its values already has as many
arms as the rule allows (``limits``). Pinned arms count first. An arm without the field is never passed over.

``diverse`` reorders the remaining arms by maximal marginal relevance: each place takes the arm of largest (1
- w) relevance - w s, where s is its largest similarity to the arms above it. Pinned arms count as if all of
them stood above.

Notation
    m, k        arms of the shortlist, places of the list
    w           the weight of being different, from 0 to 1
    relevance   of an arm: its score, scaled to [0, 1] over the shortlist (m,)

Source: Carbonell and Goldstein 1998, "The Use of MMR, Diversity-Based Reranking for Reordering Documents and
Producing Summaries".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.catalogues.learner_snapshot import LearnerSnapshot
from app.filters.coded_values import coded
from app.selection.list_limits import AtMost
from shortlist.types import NO_ROWS, MipsSolver, Rows, TopK, Vector

OVER_FEATURES = "features"
OVERSAMPLING = 3  # arms of the shortlist, for each place
MIN_SHORTLIST = 30
LEAST_SIMILAR = -1.0

Similar = Callable[[int], Vector]
"""The similarity of every arm to the one at this position: (m,)."""


@dataclass(frozen=True, slots=True)
class Diverse:
    """``over``: a field of metadata: similar is 1 where both have one of its values, else 0; or ``features``:
    the cosine.
    """

    weight: float
    over: str


def shortlist_of(k: int) -> int:
    """The number of arms competing for k places."""
    return max(MIN_SHORTLIST, OVERSAMPLING * k)


@dataclass(frozen=True, slots=True, eq=False)
class DiverseSolver:
    """The best arms of ``solver``, put in order one after the other. ``pinned``: rows placed already."""

    arms: LearnerSnapshot
    solver: MipsSolver
    rule: Diverse
    pinned: Rows
    dim: int

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """As the solver's; scores need not descend. Cost: a search for ``shortlist_of(k)`` arms, O(k m d)."""
        hits = self.solver.search(query, shortlist_of(k), exclude)
        count = len(hits.rows)
        rows = np.concatenate((hits.rows, self.pinned))
        similar = _similar(self.arms, self.rule.over, rows, self.dim)
        nearest = np.full(count, LEAST_SIMILAR)
        for position in range(count, count + len(self.pinned)):
            np.maximum(nearest, similar(position)[:count], out=nearest)
        order = in_order(
            hits.scores, k, self.rule.weight, lambda position: similar(position)[:count], nearest
        )
        return TopK(hits.rows[order], hits.scores[order], hits.exact)


def in_order(scores: Vector, k: int, weight: float, similar: Similar, nearest: Vector) -> Rows:
    """Positions of the arms for min(k, m) places. ``nearest``: the largest similarity to what stands already.

    Shapes: scores (m,), nearest (m,) -> (min(k, m),). Cost: min(k, m) calls of ``similar``, and O(k m).
    """
    if not len(scores):
        return NO_ROWS
    least, spread = scores.min(), np.ptp(scores)
    relevance = (1.0 - weight) * (scores - least) / (spread or 1.0)
    left = relevance - weight * nearest
    order = np.empty(min(k, len(scores)), dtype=np.int64)
    for position in range(len(order)):
        best = order[position] = left.argmax()
        relevance[best] = -np.inf
        left = np.minimum(left, relevance - weight * similar(best))
    return order


def _similar(arms: LearnerSnapshot, over: str, rows: Rows, dim: int) -> Similar:
    table_arms = arms.plain
    if over == OVER_FEATURES:
        features = table_arms.whole.features_of(rows)[:, :dim]
        lengths = np.sqrt(np.einsum("ij,ij->i", features, features))
        unit = features / np.where(lengths > 0.0, lengths, 1.0)[:, None]
        return lambda position: unit @ unit[position]
    values_of_rows = coded(table_arms.attributes, over, rows)
    places, codes = values_of_rows.places, values_of_rows.codes
    if np.bincount(places, minlength=1).max() <= 1:
        only = np.full(len(rows), -1)
        only[places] = codes
        none = np.zeros(len(rows))
        return lambda position: none if only[position] < 0 else (only == only[position]).astype(np.float64)
    values: list[set[int]] = [set() for _ in range(len(rows))]
    for position, code in zip(places.tolist(), codes.tolist(), strict=True):
        values[position].add(code)
    return lambda position: np.array([not values[position].isdisjoint(value) for value in values], np.float64)


@dataclass(frozen=True, slots=True)
class Pin:
    """``arm`` stands at ``place``, counted from 1."""

    arm: str
    place: int


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of one choice."""

    pins: Sequence[Pin] = ()
    at_most: Sequence[AtMost] = ()
    diverse: Diverse | None = None

    @property
    def pinned(self) -> Sequence[str]:
        return [pin.arm for pin in self.pins]
