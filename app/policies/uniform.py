"""Uniform draws of arms: every eligible arm is as likely as any other, so propensities are known.

Notation
    K, n, k     rows of the table, eligible arms, arms to draw

Without limits and without a seed only drawn arms are looked at, unless few rows of the table are eligible. A
seed draws from the arms in the order of their revisions, the same on every process.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.catalogues.learner_snapshot import LearnerSnapshot
from app.indexes.snapshot import Snapshot
from app.policies.base import Policy
from app.selection.list_limits import Limits
from app.selection.selection import Candidates, Ranking, SelectionRequest
from shortlist.index.table import not_in
from shortlist.linear import softmax as algorithm
from shortlist.linear.ridge import Posterior
from shortlist.sampling.uniform import draw_distinct
from shortlist.types import NO_ROWS, Rows, TopK, Vector

_LISTED_US = 0.1  # for each row of the table, where the eligible ones are listed
SPARSE = 8  # of so many rows one is eligible, or fewer: they are listed


class Uniform(Policy):
    """Draw k of the eligible arms, each as likely as any other remaining one. Scores are estimated
    rewards.
    """

    name = "uniform"
    summary = "every eligible arm is as likely as any other"
    has_propensities = True

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        lists = request.seeded or bool(request.limits) or is_sparse(arms.plain)
        return _LISTED_US * arms.table.rows if lists else 0.0

    def rank(
        self, posterior: Posterior, candidates: Candidates, k: int, rng: np.random.Generator, prepared: None
    ) -> Ranking:
        rows, propensities = draw(
            candidates.arms.plain,
            k=k,
            rng=rng,
            exclude=candidates.exclude,
            limits=candidates.limits,
            seeded=candidates.request.seeded,
        )
        scores = candidates.arms.features_of(rows) @ posterior.theta
        return Ranking(TopK(rows, scores, exact=True), propensities)

    def first(self, posterior: Posterior, candidates: Candidates, prepared: None) -> tuple[Rows, Vector]:
        rows = candidates.firsts()
        return rows, np.full(len(rows), 1.0 / max(len(rows), 1))


def draw(
    arms: Snapshot,
    *,
    k: int,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
    limits: Limits | None = None,
    seeded: bool = False,
) -> tuple[Rows, list[float]]:
    """Draw min(k, n) distinct rows of the snapshot, and the propensity of each given those before it.

    ``exclude``   distinct rows of the snapshot
    ``limits``    barred arms cannot be drawn; there may be fewer than k arms

    Cost: O(k K / n) expected, or O(n) once for each version of the catalogue; O(K) with ``seeded``; with
    ``limits`` O(K), and O(1) for each value of the limited fields.
    """
    if limits is not None:
        return _within(arms, limits, k, rng, exclude)
    left = arms.size - len(exclude)
    listed = arms.eligible() if seeded else arms.listed if is_sparse(arms) or 2 * k > left else None
    if listed is not None and 2 * k > left:
        rows = rng.permutation(listed[not_in(listed, exclude)])[:k]
        return rows, _propensities(left, len(rows))
    barred = set(exclude.tolist())

    def rows_at(positions: Rows) -> Rows:
        return positions if listed is None else listed[positions]

    def accepts(positions: Rows) -> NDArray[np.bool_]:
        rows = rows_at(positions)
        free = arms.lets_in(rows)
        if barred:
            free &= ~np.fromiter(map(barred.__contains__, rows.tolist()), np.bool_, len(rows))
        return free

    pool = arms.table.rows if listed is None else len(listed)
    rows = rows_at(draw_distinct(accepts, pool=pool, accepted=left, k=k, rng=rng))
    return rows, _propensities(left, len(rows))


def is_sparse(arms: Snapshot) -> bool:
    """Return whether rejection takes longer than a list of the eligible rows, made once."""
    return arms.size * SPARSE < arms.table.rows


def _propensities(eligible: int, drawn: int) -> list[float]:
    return [1.0 / (eligible - position) for position in range(drawn)]


def _within(
    arms: Snapshot, limits: Limits, k: int, rng: np.random.Generator, exclude: Rows
) -> tuple[Rows, list[float]]:
    """Draw each arm among those still allowed: a softmax of equal scores."""
    rows = arms.eligible(exclude)
    left, equal = limits.over(rows), np.zeros(len(rows))
    drawn = algorithm.choose_within(equal, left.take, k=k, temperature=1.0, rng=rng, barred=left.barred)
    return rows[drawn.places], drawn.propensities.tolist()
