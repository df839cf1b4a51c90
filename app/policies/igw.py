"""Inverse-gap weighting: arms are drawn from few candidates, so that propensities are exact after one search.

The candidates are C, the arms of highest estimate, and S, a cover of all eligible arms (``covers``): as many
of each as the bandit's ``shortlist``, C at least k. No other arm can be drawn. Estimates, gaps and gamma are
in the unit of rewards.

Processes may hold covers of different versions of a catalogue for a moment. They need not agree: a propensity
is among the candidates of its draw.

As a target of evaluations its propensities are exact, among the candidates of each situation. Cost: a search
of the index for each situation, and O(n k) for a list of k among n candidates.

Notation
    n           number of candidates, at most 2 ``shortlist``
    theta^      estimate of the learner
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from app.bandits.bandit import Bandit
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.filters.filter import Filter
from app.indexes.snapshot import Snapshot
from app.policies.base import ANY_PRIOR, Policy, PolicyDependencies
from app.policies.targets import NO_ARM, Evaluable, EvaluationBatch, Lists, Pool, Weighed
from app.selection.arm_effects import ArmEffects, EffectSolver
from app.selection.computing import drawn_us
from app.selection.covers import Covers
from app.selection.list_limits import Limits
from app.selection.selection import Candidates, Drawn, Ranking, ReadSnapshot, SelectionRequest
from shortlist.evaluation import igw_target
from shortlist.index.table import not_in
from shortlist.linear import igw as algorithm
from shortlist.linear import scales
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, Rows, TopK, Vector

BATCH_SIZE = 4_000_000  # numbers: candidates of decisions that are weighed at once
Prepared = tuple[Rows, Vector]


@dataclass(frozen=True, slots=True, eq=False)
class DrawPool:
    """The pool of a draw. ``is_all``: there is no other eligible arm. Shapes: rows (n,), estimates (n,)."""

    rows: Rows
    estimates: Vector
    exact: bool
    is_all: bool


class InverseGapWeighting(Policy, Evaluable):
    """Draw k arms by inverse-gap weighting, each without those before it.

    Cost: one search of the index for max(k, ``shortlist``) arms, and O(k n).
    """

    name = "igw"
    summary = "inverse-gap weighting: few candidates are drawn by how far they are from the best estimate"
    options = ANY_PRIOR | {"context", "match", "gamma"}
    reads = frozenset({"ridge", "shortlist", "arm_effects"})
    defaults: ClassVar[Mapping[str, object]] = {"gamma": 100.0}
    has_propensities = True

    async def prepare(
        self, dependencies: PolicyDependencies, request: SelectionRequest, snapshot: ReadSnapshot
    ) -> tuple[int, Rows]:
        """The number of candidates of highest estimate, and the rows of a cover."""
        arms = snapshot.arms.plain
        return await near_and_cover(
            dependencies.covers, request.bandit, request.arm_filter, arms, k=request.k
        )

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        shortlist = request.bandit.record.shortlist
        return arms.expected_us + drawn_us(request.k, candidates=max(request.k, shortlist) + shortlist)

    def rank(
        self,
        posterior: Posterior,
        candidates: Candidates,
        k: int,
        rng: np.random.Generator,
        prepared: tuple[int, Rows],
    ) -> Ranking:
        theta = candidates.arms.catalogue_query(posterior.theta)
        offset = candidates.arms.constant_score(posterior.theta)
        count, cover = prepared
        drawn = draw(
            candidates.arms.plain,
            theta,
            cover,
            k=k,
            count=count,
            gamma=_fixed_gamma(candidates.bandit),
            unit=posterior.unit,
            rng=rng,
            exclude=candidates.exclude,
            limits=candidates.limits,
            effects=candidates.effects,
        )
        return drawn.ranking(offset)

    def first(
        self, posterior: Posterior, candidates: Candidates, prepared: tuple[int, Rows]
    ) -> tuple[Rows, Vector]:
        theta = candidates.arms.catalogue_query(posterior.theta)
        return first_drawn(
            candidates.arms.plain,
            theta,
            prepared[1],
            count=prepared[0],
            gamma=_fixed_gamma(candidates.bandit),
            unit=posterior.unit,
            exclude=candidates.exclude,
            limits=candidates.limits,
            effects=candidates.effects,
        )

    async def target(self, covers: Covers, pool: Pool) -> IgwTarget:
        arms = pool.arms.plain
        count, cover = await near_and_cover(covers, pool.bandit, pool.arm_filter, arms, k=pool.k)
        return IgwTarget(arms, cover, count, _fixed_gamma(pool.bandit), pool.k)


def _fixed_gamma(bandit: Bandit) -> float | None:
    """None: it follows from what a learner knows."""
    gamma = bandit.record.gamma
    return None if isinstance(gamma, str) else gamma or 0.0


def _gamma(fixed: float | None, unit: float, candidates: int) -> float:
    return scales.GAMMA * candidates / unit if fixed is None else fixed


async def near_and_cover(
    covers: Covers, bandit: Bandit, arm_filter: Filter | None, arms: Snapshot, *, k: int
) -> tuple[int, Rows]:
    """The number of candidates of highest estimate, and the rows of a cover of ``arms``.

    The cover is empty where the arms of highest estimate are all. ``arm_filter``: the filter behind ``arms``.
    """
    shortlist = bandit.record.shortlist
    count = max(k, shortlist)
    if arms.size <= count:
        return count, NO_ROWS
    return count, arms.rows_of(await covers.of(bandit.catalogue, arm_filter, arms, shortlist))


def draw(
    arms: Snapshot,
    theta: Vector,
    cover: Rows,
    *,
    k: int,
    count: int,
    gamma: float | None,
    rng: np.random.Generator,
    unit: float = 1.0,
    exclude: Rows = NO_ROWS,
    limits: Limits | None = None,
    effects: ArmEffects | None = None,
) -> Drawn:
    """Draw min(k, eligible) arms from the ``count`` >= k arms of highest estimate and from ``cover``.

    ``gamma``: None: by the ``unit`` of rewards, and the first number of candidates.

    With ``limits`` a barred candidate cannot be drawn, and the others have its share. When
    none is left, as many of the next best arms that are allowed are the candidates: which those are follows
    from the arms drawn before, so propensities stay exact. There may be fewer than k arms.

    Cost: a search and O(k n). Where limits leave none, one ranking of all K arms, and K bytes read whenever
    none is left.
    """
    pool = candidates(arms, theta, cover, count=count, exclude=exclude, effects=effects)
    if limits is None:
        drawn = algorithm.choose(pool.estimates, k=k, gamma=_gamma(gamma, unit, len(pool.rows)), rng=rng)
        hits = TopK(pool.rows[drawn.places], pool.estimates[drawn.places], pool.exact)
        return Drawn(hits, drawn.propensities)
    most = len(pool.rows)
    left, positions = limits.over(pool.rows), np.arange(most)
    rows: list[int] = []
    scores: list[float] = []
    propensities: list[float] = []
    while len(rows) < k:
        positions = positions[~left.barred[positions]]
        if not len(positions):
            positions = np.flatnonzero(~left.barred)[:most]
        if len(positions):
            one = algorithm.choose(pool.estimates[positions], k=1, gamma=_gamma(gamma, unit, most), rng=rng)
            position = int(positions[one.places[0]])
            left.take(position)
            rows.append(int(pool.rows[position]))
            scores.append(float(pool.estimates[position]))
            propensities.append(float(one.propensities[0]))
        elif pool.is_all:
            break
        else:
            pool = candidates(arms, theta, cover, count=arms.size, exclude=exclude, effects=effects)
            left = limits.after(np.array(rows, dtype=np.int64)).over(pool.rows)
            # what was drawn from the smaller pool must not be drawn again
            left.barred[np.isin(pool.rows, rows)] = True
    hits = TopK(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float64), pool.exact)
    return Drawn(hits, np.array(propensities, dtype=np.float64))


def first_drawn(
    arms: Snapshot,
    theta: Vector,
    cover: Rows,
    *,
    count: int,
    gamma: float | None,
    unit: float,
    exclude: Rows,
    limits: Limits | None,
    effects: ArmEffects | None,
) -> tuple[Rows, Vector]:
    """The rows that ``draw`` may draw first, and the propensity of each. Arguments as there."""
    pool = candidates(arms, theta, cover, count=count, exclude=exclude, effects=effects)
    most = len(pool.rows)
    left = np.arange(most) if limits is None else np.flatnonzero(~limits.over(pool.rows).barred)
    if limits is not None and not len(left) and not pool.is_all:
        pool = candidates(arms, theta, cover, count=arms.size, exclude=exclude, effects=effects)
        left = np.flatnonzero(~limits.over(pool.rows).barred)[:most]
    return pool.rows[left], algorithm.propensities(pool.estimates[left], gamma=_gamma(gamma, unit, most))


def candidates(
    arms: Snapshot,
    theta: Vector,
    cover: Rows,
    *,
    count: int,
    exclude: Rows,
    effects: ArmEffects | None = None,
) -> DrawPool:
    """The ``count`` arms of highest estimate, best first, then the others of ``cover``."""
    # DEVIATION (Alg. 1, line 4): only these can be drawn, not every arm; see "What is not covered".
    solver = arms if effects is None else EffectSolver(arms, arms, effects)
    # where all arms are wanted an approximate index could miss some
    search = solver.search if count < arms.size else solver.search_exact
    hits = search(theta, max(count, 1), exclude)
    others = cover[not_in(cover, np.concatenate((hits.rows, exclude)))]
    rows, estimates = np.concatenate((hits.rows, others)), arms.features_of(others) @ theta
    if effects is not None:
        estimates += effects.worth(arms, others)
    return DrawPool(rows, np.concatenate((hits.scores, estimates)), hits.exact, count >= arms.size)


@dataclass(frozen=True, slots=True, eq=False)
class IgwTarget:
    """``cover``, ``count``, ``gamma``: as in ``igw.draw``."""

    arms: Snapshot
    cover: Rows
    count: int
    gamma: float | None
    k: int

    @property
    def known_bytes(self) -> int:
        return 500 + 16 * (self.count + len(self.cover))

    def prepare(self, situations: EvaluationBatch, check: Callable[[], None]) -> Sequence[Prepared]:
        """The candidates of each situation, and their estimates."""
        prepared: list[Prepared] = []
        for query, exclude in zip(situations.queries, situations.exclude, strict=True):
            check()
            pool = candidates(
                self.arms,
                query,
                self.cover,
                count=self.count,
                exclude=exclude,
                effects=situations.effects,
            )
            prepared.append((pool.rows, pool.estimates))
        return prepared

    def weigh(self, situations: EvaluationBatch, prepared: Sequence[Prepared], lists: Lists) -> Weighed:
        widest = max((len(rows) for rows, _ in prepared), default=0)
        rows = np.full((len(prepared), widest), NO_ARM, dtype=np.int64)
        estimates = np.zeros((len(prepared), widest))
        for position, (candidate_rows, scores) in enumerate(prepared):
            rows[position, : len(candidate_rows)], estimates[position, : len(candidate_rows)] = (
                candidate_rows,
                scores,
            )
        units = situations.units.tolist()
        gamma = np.array(
            [
                _gamma(self.gamma, unit, len(candidate_rows))
                for unit, (candidate_rows, _) in zip(units, prepared, strict=True)
            ]
        )
        low, high = situations.bounds
        predicted = estimates.clip(low[:, None], high[:, None])
        is_candidate = rows != NO_ARM
        least = predicted.min(axis=1, initial=np.inf, where=is_candidate)
        most = predicted.max(axis=1, initial=-np.inf, where=is_candidate)
        least, most = (np.where(np.isfinite(bound), bound, 0.0)[lists.which] for bound in (least, most))
        weighed = Weighed(np.zeros(lists.rows.shape), np.zeros(lists.rows.shape), least, most)
        step = max(1, BATCH_SIZE // max(widest, 1))
        for start in range(0, len(lists.rows), step):
            part = slice(start, start + step)
            which = lists.which[part]
            near, drawn = rows[which], lists.rows[part]
            positions = np.full(drawn.shape, -1, dtype=np.int64)
            for j in range(drawn.shape[1]):
                same = near == drawn[:, j, None]
                positions[:, j] = np.where(same.any(axis=1), same.argmax(axis=1), -1)
            weighed.propensities[part], weighed.expected[part] = igw_target.weigh(
                estimates[which], near != NO_ARM, positions, gamma=gamma[which], predicted=predicted[which]
            )
        return weighed

    def drawn(self, situations: EvaluationBatch, prepared: Prepared, position: int) -> tuple[Rows, Vector]:
        rows, estimates = prepared
        if not len(rows):
            return rows, estimates
        gamma = _gamma(self.gamma, float(situations.units[position]), len(rows))
        return rows, np.minimum(self.k * algorithm.propensities(estimates, gamma=gamma), 1.0)
