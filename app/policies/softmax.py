"""Boltzmann exploration: every eligible arm is scored, so that propensities are exact.

As a target of evaluations: scores of many situations at once, products of matrices, a block of arms
at a time, so memory does not grow with the catalogue. An excluded arm takes its share from the sum over all
arms, as a drawn one does. Cost: K d for each situation, and O(k) for a list.

Notation
    K, d        eligible arms of a snapshot, dimension
    theta^      estimate of the learner (d,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from app.bandits.bandit import Bandit
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.indexes.snapshot import Snapshot
from app.policies.base import ANY_PRIOR, Policy
from app.policies.targets import Evaluable, EvaluationBatch, Lists, Pool, Weighed
from app.selection.arm_effects import ArmEffects
from app.selection.covers import Covers
from app.selection.list_limits import Limits
from app.selection.selection import Candidates, Drawn, Ranking, SelectionRequest
from shortlist.evaluation import softmax_target
from shortlist.evaluation.softmax_target import Totals
from shortlist.index.exact import scores_of
from shortlist.linear import softmax as algorithm
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

_NUMBER_US = 0.01  # for each number of the features, with what is drawn for every arm
BATCH_SIZE = 256  # situations
BLOCK = 256  # arms: their scores in TOGETHER situations fit into the cache of a core
Prepared = tuple[float, float, float, float, float]


class SoftmaxPolicy(Policy, Evaluable):
    """Draw k arms, each with p proportional to exp(score / temperature) among the remaining ones."""

    name = "softmax"
    summary = "Boltzmann exploration: an arm is drawn by the softmax of the estimated rewards of all arms"
    options = ANY_PRIOR | {"context", "match", "temperature"}
    reads = frozenset({"ridge", "arm_effects"})
    defaults: ClassVar[Mapping[str, object]] = {"temperature": 1.0}
    has_propensities = True
    target_by_exclusion = False

    def cost_us(self, request: SelectionRequest, arms: LearnerSnapshot) -> float:
        return _NUMBER_US * arms.size * arms.table.dim

    def rank(
        self, posterior: Posterior, candidates: Candidates, k: int, rng: np.random.Generator, prepared: None
    ) -> Ranking:
        theta = candidates.arms.catalogue_query(posterior.theta)
        offset = candidates.arms.constant_score(posterior.theta)
        drawn = draw(
            candidates.arms.plain,
            theta,
            k=k,
            temperature=_temperature(candidates.bandit, posterior),
            rng=rng,
            exclude=candidates.exclude,
            limits=candidates.limits,
            effects=candidates.effects_of,
        )
        return drawn.ranking(offset)

    def first(self, posterior: Posterior, candidates: Candidates, prepared: None) -> tuple[Rows, Vector]:
        theta = candidates.arms.catalogue_query(posterior.theta)
        rows = candidates.firsts()
        scores = scores_of(candidates.arms.plain.table, rows, theta) + candidates.effects_of(rows)
        weights = np.exp((scores - scores.max(initial=-np.inf)) / _temperature(candidates.bandit, posterior))
        return rows, weights / weights.sum()

    async def target(self, covers: Covers, pool: Pool) -> SoftmaxTarget:
        arms = pool.arms.plain
        temperature = pool.bandit.record.temperature
        fixed = None if isinstance(temperature, str) else temperature or 1.0
        return SoftmaxTarget(arms, arms.eligible(), fixed, pool.k)


def _temperature(bandit: Bandit, posterior: Posterior) -> float:
    temperature = bandit.record.temperature
    if isinstance(temperature, str):
        return bandit.temperature_share * posterior.unit
    return temperature or 1.0


def draw(
    arms: Snapshot,
    theta: Vector,
    *,
    k: int,
    temperature: float,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
    limits: Limits | None = None,
    effects: Callable[[Rows], Vector] | None = None,
) -> Drawn:
    """Draw min(k, K) arms. Cost: K d multiplications and O(K) more: a scan, whatever the index.

    With ``limits`` a barred arm cannot be drawn, and the others have its share; there may be fewer than k
    arms. Limits take O(1) more for every arm and each of its values of the limited fields.
    """
    rows = arms.eligible(exclude)
    scores = scores_of(arms.table, rows, theta)
    if effects is not None:
        scores += effects(rows)
    if limits is None:
        drawn = algorithm.choose(scores, k=k, temperature=temperature, rng=rng)
    else:
        left = limits.over(rows)
        drawn = algorithm.choose_within(
            scores, left.take, k=k, temperature=temperature, rng=rng, barred=left.barred
        )
    hits = TopK(rows[drawn.places], scores[drawn.places], exact=True)
    return Drawn(hits, drawn.propensities)


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxTarget:
    """``rows``: of all eligible arms (K,). ``temperature``: None: ``auto``.

    What is summed and weighed are scores in units of the temperature of each situation.
    """

    arms: Snapshot
    rows: Rows
    temperature: float | None
    k: int
    known_bytes: int = 250

    def prepare(self, situations: EvaluationBatch, check: Callable[[], None]) -> Sequence[Prepared]:
        """The totals of each situation."""
        prepared: list[Prepared] = []
        units = self._temperatures(situations)[:, None]
        for start in range(0, len(situations), BATCH_SIZE):
            part = slice(start, start + BATCH_SIZE)
            queries, largest_norm = situations.queries[part], self.arms.largest_norm
            if situations.effects is not None:  # as a coordinate more, of which each query has 1
                queries = np.column_stack((queries, np.ones(len(queries))))
                largest_norm = float(
                    np.hypot(largest_norm, np.abs(situations.effects.effects).max(initial=0.0))
                )
            low, high = (bound[part] / units[part, 0] for bound in situations.bounds)
            totals = softmax_target.totals(
                self._blocks(situations.effects, check),
                queries / units[part],
                temperature=1.0,
                largest_norm=largest_norm,
                bounds=(low, high),
            )
            columns = (totals.top, totals.mass, totals.moment, totals.least, totals.most)
            prepared += zip(*(column.tolist() for column in columns), strict=True)
        return prepared

    def weigh(self, situations: EvaluationBatch, prepared: Sequence[Prepared], lists: Lists) -> Weighed:
        columns = np.array(prepared).T
        totals, units = Totals(*columns).of(lists.which), self._temperatures(situations)[lists.which]
        low, high = (bound[lists.which] / units for bound in situations.bounds)
        scores = lists.scores / units[:, None]
        result = softmax_target.weigh(totals, scores, lists.eligible, temperature=1.0, bounds=(low, high))
        expected = units[:, None] * result.expected
        lost = np.flatnonzero(result.lost)
        if len(lost):
            self._walk(situations, lists, lost, result.propensities, expected)
        return Weighed(result.propensities, expected, units * totals.least, units * totals.most)

    def drawn(self, situations: EvaluationBatch, prepared: Prepared, position: int) -> tuple[Rows, Vector]:
        unit, (top, mass, *_) = self._temperatures(situations)[position], prepared
        scores = situations.scores(self.arms, self.rows, position)
        weights = np.exp(scores / unit - top)
        return self.rows, np.minimum(self.k * weights / (mass or 1.0), 1.0)

    def _temperatures(self, situations: EvaluationBatch) -> Vector:
        """Shape: (q,)."""
        if self.temperature is None:
            return situations.bandit.temperature_share * situations.units
        return np.full(len(situations), self.temperature)

    def _blocks(self, effects: ArmEffects | None, check: Callable[[], None]) -> Iterator[Matrix]:
        for start in range(0, len(self.rows), BLOCK):
            check()
            rows = self.rows[start : start + BLOCK]
            features = self.arms.features_of(rows)
            if effects is not None:
                features = np.column_stack((features, effects.worth(self.arms, rows)))
            yield features

    def _walk(
        self, situations: EvaluationBatch, lists: Lists, lost: Rows, propensities: Matrix, expected: Matrix
    ) -> None:
        """Overwrite what rounding has lost. Cost: K d for each situation among them, k K for each list."""
        order = np.argsort(self.rows)
        lost = lost[np.argsort(lists.which[lost], kind="stable")]
        before, temperatures = -1, self._temperatures(situations)
        for decision in lost.tolist():
            if lists.which[decision] != before:
                before = int(lists.which[decision])
                scores = situations.scores(self.arms, self.rows, before)
            rows = lists.rows[decision]
            positions = order[np.minimum(np.searchsorted(self.rows, rows, sorter=order), len(order) - 1)]
            positions = np.where(rows >= 0, positions, -1)
            low, high = (float(bound[before]) for bound in situations.bounds)
            walked = softmax_target.walk(
                scores, positions, temperature=float(temperatures[before]), bounds=(low, high)
            )
            propensities[decision], expected[decision] = walked
