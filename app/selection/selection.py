"""The input of a policy (request, snapshot, candidates) and its answer (ranking, selection).

They are msgspec structs: three are made for every choice, in a fifth of the time of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.exposure_limits.closed_arms import ClosedArms
from app.filtering.filtered_snapshots import FilteredSnapshots, among
from app.filters.filter import Filter
from app.indexes.snapshot import Snapshot
from app.learners.learners import Learners, thetas_of
from app.learners.served_effects import weights_of
from app.records.encoding import Numbers32
from app.selection.arm_effects import ArmEffects, EffectSolver
from app.selection.list_limits import Limit, LimitedSolver, Limits
from app.selection.rules import Diverse, DiverseSolver, Pin, shortlist_of
from app.storage.types import OF_REQUEST, LearnerId
from shortlist.linear import ridge
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector


class SelectionRequest(msgspec.Struct, frozen=True, eq=False):
    """One choice to make.

    ``k``         number of arms, besides pinned ones
    ``exclude``   ids of excluded arms; unknown ids are ignored
    ``arm_filter``    filter of the eligible arms; None: all
    ``pins``      arms at their places already, not to be chosen
    ``diverse``   the rule for diverse lists
    ``rng``       the source of everything random
    ``time_ms``   time of the decision, since 1970; in a repetition, of the original decision
    ``arms``      ids of the arms to serve, in this order: of a baseline alone
    ``seeded``    True: ``rng`` is of a seed, so the same arms give the same answer on every process
    ``context``   as encoded; None: without a context
    ``quotas``    those of the bandit at one moment: arms of a used-up quota are not eligible
    ``limits``    limits on the arms of some groups, pinned arms included
    ``candidates``    the only allowed arms; None: all of the catalogue
    ``dry_run``   nothing is decided: no state of a learner is kept
    """

    bandit: Bandit
    learner: LearnerId
    k: int
    exclude: Sequence[str]
    rng: np.random.Generator
    time_ms: int
    arms: Sequence[str] | None = None
    arm_filter: Filter | None = None
    pins: Sequence[Pin] = ()
    diverse: Diverse | None = None
    context: Numbers32 | None = None
    seeded: bool = False
    dry_run: bool = False
    quotas: ClosedArms | None = None
    limits: Sequence[Limit] = ()
    candidates: Snapshot | None = None

    @property
    def whole(self) -> Snapshot:
        """All arms of the request, before any constraint."""
        return self.bandit.catalogue.index.snapshot() if self.candidates is None else self.candidates

    async def eligible(self, filtered: FilteredSnapshots) -> Snapshot:
        """The arms within filter and quotas. Awaits nothing for known filters. Raises Unavailable."""
        if self.candidates is None:
            arms = await filtered.of(self.bandit.catalogue, self.arm_filter)
        else:
            arms = self.candidates if self.arm_filter is None else among(self.candidates, self.arm_filter)
        return arms if self.quotas is None else await self.quotas.eligible(arms)

    async def first_rows(self, filtered: FilteredSnapshots) -> Rows:
        """The rows of the arms that may be chosen first, besides the pinned ones. Cost: O(K)."""
        arms = await self.eligible(filtered)
        rows = arms.eligible(arms.rows_of(dict.fromkeys(self.exclude)))
        if self.limits:
            limits = Limits(self.limits, arms, arms.whole.rows_of(self.pinned))
            rows = rows[~limits.over(rows).barred]
        return rows

    @property
    def pinned(self) -> Sequence[str]:
        return [pin.arm for pin in self.pins]

    @property
    def narrows(self) -> bool:
        """Return whether the request is for some arms of the catalogue only, or has limits."""
        return self.is_for_some or bool(self.limits)

    @property
    def is_for_some(self) -> bool:
        """Return whether the request is for some arms of the catalogue only, exclusions apart."""
        return self.arm_filter is not None or self.quotas is not None or self.candidates is not None

    def excluded(self, arms: LearnerSnapshot) -> Rows:
        """The rows of ``exclude``, and of the pinned arms, each once."""
        if not self.exclude and not self.pins:
            return NO_ROWS
        return arms.rows_of(dict.fromkeys((*self.exclude, *self.pinned)))

    def limits_among(self, arms: LearnerSnapshot) -> Limits | None:
        """The limits on these arms, besides the pinned ones; None: any number."""
        if not self.limits:
            return None
        return Limits(self.limits, arms.plain, arms.plain.whole.rows_of(self.pinned))

    def limited(self, arms: LearnerSnapshot, solver: MipsSolver) -> MipsSolver:
        """``solver``, within the rules: limits first, then diversity."""
        limits = self.limits_among(arms) if self.limits else None
        if limits is not None:
            solver = LimitedSolver(arms, solver, limits)
        return solver if self.diverse is None else self.diversified(arms, solver)

    def diversified(self, arms: LearnerSnapshot, solver: MipsSolver) -> MipsSolver:
        """``solver``, whose lists are reordered where the request wants different arms."""
        if self.diverse is None:
            return solver
        pinned = arms.plain.whole.rows_of(self.pinned)
        return DiverseSolver(arms, solver, self.diverse, pinned, self.bandit.arm_dim)

    @property
    def searched(self) -> int:
        """The number of arms to search."""
        return self.k if self.diverse is None else shortlist_of(self.k)


class ReadSnapshot(msgspec.Struct, frozen=True, eq=False):
    """A learner and a catalogue at the same time: the posterior, and the arms in the learner's features.

    ``posterior`` is for the context of the request, and gives the query for the search. ``theta``: of a
    bandit whose arms learn, the learner's estimate there (d',), of signals each (d', J). ``effects``: effects
    of its arms; None: nothing. ``known_entry``: number of the newest known entry of the log with the
    learner's rewards.
    """

    posterior: Posterior
    arms: LearnerSnapshot
    learner_version: int
    catalogue_version: int
    theta: Vector | Matrix | None = None
    effects: ArmEffects | None = None
    known_entry: int = 0

    @classmethod
    async def now(
        cls, learners: Learners, bandit: Bandit, identity: LearnerId, context: Numbers32 | None = None
    ) -> ReadSnapshot:
        """Awaits nothing for a learner in memory whose posterior was used before. Raises Unavailable."""
        learner, posterior = await learners.current(bandit, identity)
        if context is not None:
            posterior = bandit.given(posterior, context)
        theta: Vector | Matrix | None = None
        if bandit.learns_effects:
            theta = posterior.theta
            if bandit.weighing is not None:
                theta = bandit.queries(
                    thetas_of(bandit, await learners.knowledge(bandit, learner)), context
                ).T
        return cls(
            posterior,
            bandit.snapshot(),
            learner.version,
            bandit.catalogue.index.version,
            theta,
            known_entry=learners.newest_entry(learner),
        )

    def expected(self, rows: Rows) -> Matrix | None:
        """The learner's expectation of each signal by the features of arms; None without arm effects.

        Shapes: (n,) -> (n, J).
        """
        arms, theta = self.arms, self.theta
        if theta is None:
            return None
        # In columns: one product. ``dot`` takes half of the time of ``@`` for few arms.
        expected: Matrix = arms.plain.features_of(rows).dot(arms.catalogue_query(theta))
        # What the learner sees is a copy with a coordinate more, whose product is the same of all.
        expected += arms.constant_score(theta)
        return expected if expected.ndim > 1 else expected[:, None]

    async def among(self, filtered: FilteredSnapshots, request: SelectionRequest) -> ReadSnapshot:
        """This snapshot, of the allowed arms of a request. Awaits nothing for known filters."""
        bandit, arms = request.bandit, await request.eligible(filtered)
        version = bandit.catalogue.index.version
        return msgspec.structs.replace(self, arms=bandit.seen(arms), catalogue_version=version)


class Candidates(msgspec.Struct, frozen=True, eq=False):
    """The allowed arms of one choice, in its learner's features, and the search for policies.

    ``arms``      arms of the catalogue within filters and quotas
    ``exclude``   barred rows of ``arms``: exclusions and pinned arms
    ``limits``    limits on the arms of some groups; None: any number. ``search`` keeps to them; a policy with
                  its own ranking does so by ``Policy.rank``
    ``effects``   of the arms, beyond their features; None: no effects. ``search`` adds them
    ``request``   the request of the choice
    """

    request: SelectionRequest
    arms: LearnerSnapshot
    exclude: Rows
    effects: ArmEffects | None = None

    @property
    def limits(self) -> Limits | None:
        return self.request.limits_among(self.arms)

    @property
    def bandit(self) -> Bandit:
        return self.request.bandit

    @property
    def time_ms(self) -> int:
        """When the decision is made, since 1970."""
        return self.request.time_ms

    @property
    def size(self) -> int:
        """The number of arms, without the excluded ones."""
        return self.arms.size - len(self.exclude)

    def search(self, query: Vector, k: int) -> TopK:
        """The k arms of largest x.query allowed together, the best first, by the index.

        Shapes: query (D,), in the learner's features. Cost: a search; a few rankings of all arms at most,
        where limits leave few.
        """
        solver = self.with_effects(self.arms, self.arms)
        return self.request.limited(self.arms, solver).search(query, k, self.exclude)

    def with_effects(self, arms: LearnerSnapshot, solver: MipsSolver) -> MipsSolver:
        """``solver``, whose arms are estimated with their effects."""
        return solver if self.effects is None else EffectSolver(arms, solver, self.effects)

    def effects_of(self, rows: Rows) -> Vector:
        """The effects of arms, beyond their features. Shapes: (n,) -> (n,)."""
        if self.effects is None:
            return np.zeros(len(rows))
        return self.effects.worth(self.arms, rows)

    def scan(self) -> Rows:
        """All of them, limits apart, in no order (n,). Cost: O(K)."""
        return self.arms.eligible(self.exclude)

    def firsts(self) -> Rows:
        """The rows allowed in first place, in no order (n,). Cost: O(K)."""
        rows, limits = self.scan(), self.limits
        return rows if limits is None else rows[~limits.over(rows).barred]


class Ranking(msgspec.Struct, frozen=True, eq=False):
    """The ranking of a policy: arms with their scores, in the unit of rewards.

    ``propensities``: the probability of each arm given those before it, where the policy knows it.
    ``drawn``: True: the scores are drawn values, x.theta~.
    """

    hits: TopK
    propensities: Sequence[float] | None = None
    drawn: bool = False


class Drawn(msgspec.Struct, frozen=True, eq=False):
    """Arms in the order they were drawn, with x.theta^ as scores. Shapes: propensities (m,)."""

    hits: TopK
    propensities: Vector

    def ranking(self, offset: float) -> Ranking:
        """The ranking of these arms, with ``offset`` added to their scores."""
        hits = TopK(self.hits.rows, self.hits.scores + offset, self.hits.exact)
        return Ranking(hits, self.propensities.tolist())


class Selection(Ranking, frozen=True, eq=False, kw_only=True):
    """The arms chosen by a policy, as rows of ``snapshot``; best first, or as drawn."""

    snapshot: ReadSnapshot


class Measured(NamedTuple):
    """Shapes: estimates, widths (n,).

    ``estimates``  x.theta^ and the effect of the arm
    ``widths``     sigma ||x||_{V^-1} for the noise sigma that is used; with arm effects the root of its
                   square and that of the deviation of the effect
    ``priors``     the part of an estimate that a new key has too; None without a learned prior
    ``effects``    the part of an estimate that the arm has beyond its features; None without arm effects
    ``ages``       the part of ``effects`` that its age adds; None while no age is known to add anything
    """

    estimates: Vector
    widths: Vector
    priors: Sequence[float | None]
    effects: Sequence[float | None]
    ages: Sequence[float | None]


def measured(request: SelectionRequest, snapshot: ReadSnapshot, rows: Rows) -> Measured:
    """The estimate of each row, in the unit of rewards. ``rows``: of ``snapshot``.

    Cost: n d^2 multiply-adds; n d D in a context, of learners of D numbers.
    """
    bandit, posterior = request.bandit, snapshot.posterior
    features = snapshot.arms.features_of(rows)
    estimates, widths = features @ posterior.theta, ridge.widths(posterior, features)
    mean, effects = bandit.prior_mean, bandit.effects
    nothing: Sequence[float | None] = [None] * len(rows)
    shown, ages = nothing, nothing
    if effects is not None:
        ids = list(map(snapshot.arms.id_of, rows.tolist()))
        weights = weights_of(bandit, effects)
        by_signal, deviations = effects.of_arms(ids)
        has_effect = snapshot.arms.plain.table.revisions[rows] != OF_REQUEST
        effect_part = has_effect * (weights @ by_signal[: len(weights)])
        if effects.has_ages:
            added = effects.age_effects(snapshot.arms.plain.table.came[rows])
            effect_part, ages = effect_part + added, added.tolist()
        estimates, shown = estimates + effect_part, effect_part.tolist()
        # As if they were independent: an effect is estimated from what all keys were shown.
        widths = np.sqrt(widths**2 + has_effect * (weights**2 @ deviations[: len(weights)] ** 2))
    if mean is None:
        return Measured(estimates, widths, nothing, shown, ages)
    if bandit.context is not None and request.context is not None:
        mean = bandit.context.queries(mean, np.asarray(request.context)[None])[0]
    return Measured(estimates, widths, (features @ mean).tolist(), shown, ages)
