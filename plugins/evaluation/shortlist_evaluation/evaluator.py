"""The evaluator: estimated earnings of a policy on logged decisions, a piece at a time.

    evaluator = Evaluator(bandit, source, lookup, estimators)
    for piece in log:
        await evaluator.add(piece)
    found = evaluator.state.estimates("ips")

A piece is read, and weighed, in a thread; in between, what it needs is fetched: arms, learners. Memory does
not grow with the number of decisions.

Notation as in ``policies.targets`` and ``shortlist.evaluation.logged``
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shortlist.evaluation import off_policy
from shortlist.evaluation.logged import LARGEST_WEIGHT, Logged
from shortlist.evaluation.off_policy import OffPolicyState
from shortlist.linear.ridge import Factored, Posterior
from shortlist.types import NO_ROWS, Matrix, Rows
from shortlist_evaluation.drawn_propensities import DrawnPropensities
from shortlist_evaluation.evaluated import Evaluated, begin, check_values
from shortlist_evaluation.logged_lists import (
    LoggedLists,
    SortedCounts,
    UnshownArms,
    effects_of_candidates,
    joined,
    known_rows,
    lets_in,
    padded,
    rows_of,
    scores_of,
    sort,
    widened,
)
from shortlist_evaluation.past_learners import PastLearners
from shortlist_evaluation.seen_rewards import SeenRewards
from shortlist_evaluation.sources import HeldSource
from shortlist_service.catalogues import among
from shortlist_service.decision_log import (
    STATELESS,
    ConstraintRow,
    Row,
    bounds_of,
    check_contexts,
    evaluable_policy,
)
from shortlist_service.errors import Invalid
from shortlist_service.policies import (
    ArmEffects,
    Bandit,
    Directions,
    EvaluationBatch,
    LearnerSnapshot,
    Lists,
    Pool,
    Target,
    Weighed,
)
from shortlist_service.work import MEASURING, BoundedCache

NOISY_PIECE = 100  # where whole posteriors are needed: a megabyte each, at most
READ_TOGETHER = 32  # learners
LEARNERS_BYTES = 32 << 20
POOL_BYTES = 100_000
UNSUPPORTED_AFTER = 0.03  # of a log, and so many decisions of those that can be used: if none of them is one
UNSUPPORTED_LEAST = 100  # of the policy, 100 are hardly to come in all of the log (exp -3 = 5 %)
UNSUPPORTED_UNCOUNTED = 3_000  # where nobody knows how many decisions there are
TOO_MUCH_MISSING = 0.2  # then there is no value: it would be that of another policy
STOP_LEVEL = 0.99  # it is asked after each piece whether so much is missing already
NO_ROOT = np.empty((0, 0))

LearnerLookup = PastLearners | Callable[[str | None, Bandit], Awaitable[Posterior]]
"""What learners know: in the past, or now, by key (None: that of a global bandit) and weights."""


class EvaluationStopped(Exception):
    """Nobody waits for the evaluation any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _KnownPool:
    """A pool, and what its target knows of situations."""

    pool: Pool
    target: Target
    known: BoundedCache[Hashable, Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Lists of a piece, with all that is needed to weigh them. ``owners``: places of keys in ``learners``."""

    of: Evaluated
    lists: LoggedLists
    pool: _KnownPool
    learners: Sequence[Posterior]
    owners: Mapping[str | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorLimits:
    """``piece``: decisions that are taken up at a time. ``pools_bytes``: of all pools that are kept,
    ``pool_bytes``: of what is known of one. ``values``: of signals at places by several weights; a place of a
    signal takes 150 bytes or more.
    """

    piece: int = 1_000
    pools_bytes: int = 128 << 20
    pool_bytes: int = 16 << 20
    values: int = 20_000


class Evaluator:
    """One evaluation. ``bandit`` has the policy that is evaluated.

    ``policies``    it, or the same by several weights
    ``decisions``   that were read so far
    ``counts``      of these, what was left out
    ``unweighed``   of these, made when nothing was known yet
    ``without_effects``  of these, weighed as if arms had no effects, as those are not known
    ``effects_of_log``   of these, weighed with effects that were fitted to the log
    ``drawn``       estimates propensities that the log does not have; None: such decisions are left out
    ``expected``    decisions of the whole log; None: nobody knows
    ``learned``     the learners that the log was learned by; ``past``: if they have blocks
    """

    def __init__(
        self,
        bandit: Bandit,
        source: HeldSource,
        lookup: LearnerLookup,
        estimators: Sequence[str],
        *,
        weighed: Sequence[Bandit] = (),
        seen: SeenRewards | None = None,
        constraints: Sequence[ConstraintRow] = STATELESS,
        limits: EvaluatorLimits = EvaluatorLimits(),
        draws: bool = False,
    ) -> None:
        """``lookup``: the learners that decisions are weighed with; of ``PastLearners`` that have blocks,
        those from before the block of a decision.

        ``weighed``: the bandit by several weights; without any by its own. ``seen``: of the whole log.
        ``constraints``: what may have had a say in the decisions. ``draws``: True to estimate propensities
        that the log does not have, with ``PastLearners`` that have blocks.
        """
        self._limits = limits
        self.bandit = bandit
        self.estimators = estimators
        several = weighed or [bandit]
        bounds = [
            bounds_of(as_weighed.record, as_weighed.weights, seen.bounds if seen else None)
            for as_weighed in several
        ]
        self.policies = [
            begin(number, as_weighed, estimators, bound, UnshownArms(policies=len(several)))
            for number, (as_weighed, bound) in enumerate(zip(several, bounds, strict=True))
        ]
        self.expected = None if seen is None else seen.decisions
        self._posterior = lookup.posterior if isinstance(lookup, PastLearners) else lookup
        self.learned = lookup if isinstance(lookup, PastLearners) else None
        self.past = self.learned if self.learned is not None and len(self.learned.blocks) else None
        self.decisions = self.unweighed = 0
        self.counts = SortedCounts()
        self.without_effects = self.effects_of_log = 0
        if isinstance(lookup, PastLearners):
            self._serve_with(lookup)
        self._block = -1
        self._policy = evaluable_policy(bandit.record)
        self._source = source
        self._constraints = constraints
        self._pools: BoundedCache[Hashable, _KnownPool] = BoundedCache(limits.pools_bytes)
        self._learners: BoundedCache[tuple[int, str | None], Posterior] = BoundedCache(LEARNERS_BYTES)
        self._stopped = threading.Event()
        self.drawn = None
        if draws and self.past is not None:
            self.drawn = DrawnPropensities(bandit, source, self.past, constraints, self._check)
        self._effects = dict[tuple[int, int], ArmEffects]()  # of the block of now, by policy and table
        self._directions = dict[int, Directions]()

    @property
    def state(self) -> OffPolicyState:
        """The estimators' state of the first policy."""
        return self.policies[0].state

    @property
    def is_unsupported(self) -> bool:
        """True if there will be no value, whatever follows: then more would tell nothing.

        None of the decisions so far is the policy's, or they lack so many of its choices that the lack is too
        large for the whole log, even without a further one.
        """
        used, read = self.state.support.decisions, self.decisions - self.unweighed
        if any(policy.state.support.weights[0] > 0.0 for policy in self.policies):
            if self.expected is None or used < UNSUPPORTED_LEAST:
                return False
            usable = used + self.expected - self.decisions
            missing = (
                used * (1.0 - policy_state.state.reached(level=STOP_LEVEL)) for policy_state in self.policies
            )
            return all(bool((policy_state > TOO_MUCH_MISSING * usable).all()) for policy_state in missing)
        if self.expected is None:
            return used >= UNSUPPORTED_UNCOUNTED
        return used >= UNSUPPORTED_LEAST and read >= UNSUPPORTED_AFTER * self.expected

    @property
    def ended_early(self) -> bool:
        """True if decisions were left unread, since the evaluator ``is_unsupported``."""
        return self.is_unsupported and (self.expected is None or self.decisions < self.expected)

    @property
    def left_out(self) -> int:
        """Decisions that were not used."""
        return self.counts.unknown + self.counts.unreadable + self.unweighed

    async def add(self, rows: Sequence[Row]) -> None:
        """Take up decisions, unless it ``is_unsupported``.

        Raises Invalid (policy): some would have weights beyond all numbers.
        """
        is_large = self._policy.target_draws or self.drawn is not None or any(row.candidates for row in rows)
        piece = NOISY_PIECE if is_large else self._limits.piece
        try:
            start = 0
            while start < len(rows) and not self.is_unsupported:
                piece_rows = rows[start : start + min(piece, await self._left_of_block(rows[start]))]
                await self._add(piece_rows)
                start += len(piece_rows)
        except asyncio.CancelledError:
            self._stopped.set()  # a thread goes on otherwise
            raise

    async def _left_of_block(self, following: Row) -> int:
        """The number of decisions left in the block of the next one; a beginning block is made ready."""
        if self.past is None:
            return self._limits.piece
        first = self.past.blocks.first
        if self._block + 1 < len(first) and self.decisions >= first[self._block + 1]:
            self._block += 1
            await self.past.begin(self._block, following)
            self._serve_with(self.past)
            self._learners = BoundedCache(LEARNERS_BYTES)
            self._effects.clear()
        if self._block + 1 < len(first):
            return int(first[self._block + 1]) - self.decisions
        return self._limits.piece

    def _serve_with(self, past: PastLearners) -> None:
        for policy in self.policies:
            policy.bandit = policy.bandit.with_prior(past.prior).with_effects(past.effects)

    async def _add(self, rows: Sequence[Row]) -> None:
        if self.drawn is not None and self.past is not None:
            rows = await self.drawn.filled(rows, draw=self.past.weighs(self._block))
        if self.past is not None:
            await self.past.learn(rows)  # for later blocks
            if not self.past.weighs(self._block):
                self.decisions += len(rows)
                self.unweighed += len(rows)
                return
        self._count_effects(len(rows))
        versions = await self._source.versions(self.bandit, rows)
        sort_rows = partial(sort, rows, self.bandit, versions, self._constraints, self.counts)
        sorted_lists = await MEASURING.run(sort_rows)
        for policy in self.policies:
            if work := [await self._work(policy, lists) for lists in sorted_lists]:
                await MEASURING.run(partial(self._weigh_all, policy, work))
        self.decisions += len(rows)

    def _count_effects(self, decisions: int) -> None:
        """Note how many are weighed with effects that are not those of their time."""
        if self.bandit.record.arm_effects == "off" or self.past is None:
            return
        if self.past.effects_of_log and self.policies[0].bandit.effects_version:
            self.effects_of_log += decisions
        elif self.past.effects_of_log:
            self.without_effects += decisions

    async def _work(self, policy: Evaluated, lists: LoggedLists) -> _Work:
        keys = list(dict.fromkeys(key for key, _ in lists.situations))
        learners = await self._posteriors(policy, keys)
        owners = {key: number for number, key in enumerate(keys)}
        return _Work(policy, lists, await self._pool(lists), learners, owners)

    async def _pool(self, lists: LoggedLists) -> _KnownPool:
        known_pool = self._pools.get(lists.name)
        if known_pool is None:
            arm_filter, barred = self.bandit.filter_with(lists.name.arm_filter), lists.name.barred
            arms = await self._source.snapshot(self.bandit, arm_filter, lists.name.candidates)
            if barred is not None:
                arms = self.bandit.seen(await MEASURING.run(partial(among, arms.plain, barred)))
                arm_filter = barred if arm_filter is None else arm_filter.both(barred)
            pool = Pool(self.bandit, arms, arm_filter, lists.name.k)
            target = await self._policy.target(self._source.covers, pool)
            known_pool = _KnownPool(pool, target, BoundedCache(self._limits.pool_bytes))
            self._pools.put(lists.name, known_pool, POOL_BYTES + self._limits.pool_bytes + 8 * arms.size)
        return known_pool

    async def _posteriors(self, policy: Evaluated, keys: Sequence[str | None]) -> Sequence[Posterior]:
        number = policy.number
        result = {key: self._learners.get((number, key)) for key in keys}
        absent = [key for key, posterior in result.items() if posterior is None]
        for start in range(0, len(absent), READ_TOGETHER):
            together = absent[start : start + READ_TOGETHER]
            reads = (self._posterior(key, policy.bandit) for key in together)
            for key, posterior in zip(together, await asyncio.gather(*reads), strict=True):
                kept_posterior = posterior
                if not self._policy.target_draws:
                    # Without what it draws from: its unit is known, its noise is not asked for.
                    theta = np.array(posterior.theta)
                    kept_posterior = Factored(theta, NO_ROOT, posterior.ridge, sigma=posterior.unit)
                result[key] = kept_posterior
                numbers = len(kept_posterior.theta) * (
                    1 + len(kept_posterior.theta) * self._policy.target_draws
                )
                size = 1_000 + 8 * numbers
                self._learners.put((number, key), kept_posterior, size)
        return [posterior for posterior in result.values() if posterior is not None]

    def _check(self) -> None:
        if self._stopped.is_set():
            raise EvaluationStopped

    def _weigh_all(self, policy: Evaluated, work: Sequence[_Work]) -> None:
        """Take these decisions up for a policy."""
        places = max(policy.state.places, *(part_of_work.lists.name.places for part_of_work in work))
        check_values(len(self.policies), len(policy.signals), places, self._limits.values)
        state = off_policy.widened(policy.state, places)
        parts = []
        for part_of_work in work:
            self._check()
            logged, missing = self._logged(part_of_work, places)
            parts.append(logged)
            policy.gone += missing
        columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
        counts = np.concatenate([part.lists.stands_for for part in work])
        stands_for = None if (counts == 1.0).all() else counts
        propensities, targets = columns[:2]
        with np.errstate(over="ignore", under="ignore"):
            heaviest = np.cumprod(targets / propensities, axis=1).max(initial=0.0)
        if not heaviest <= LARGEST_WEIGHT:
            message = "the policy does what the log hardly ever shows: weights are beyond all numbers"
            raise Invalid(message, path=("policy",))
        policy.state = off_policy.add(state, Logged(*[*columns, stands_for]))
        of_signals = [part.lists.signals for part in work]
        for name, signal in policy.signals.items():
            rewards_of_signal = np.concatenate([widened(signals[name], places) for signals in of_signals])
            logged_of_it = Logged(propensities, targets, rewards_of_signal, stands_for=stands_for)
            policy.signals[name] = off_policy.add(off_policy.widened(signal, places), logged_of_it)

    def _logged(self, work: _Work, places: int) -> tuple[Sequence[Matrix], int]:
        """The inputs of the estimators for some lists, and the number of lists with an arm that could not be
        drawn.

        They make a ``Logged``. Shapes: each (n, places).
        """
        lists, name, arms = work.lists, work.lists.name, work.pool.pool.arms
        situations, which = self._situations(work)
        rows = rows_of(arms, lists.ids).reshape(len(lists), -1)
        scores = _estimated(arms, rows, situations, which)
        drawn = list(name.drawn_places)
        drawable = np.where(lets_in(arms, rows[:, drawn]), rows[:, drawn], -1)
        result = self._weigh(
            work, situations, which, drawable, np.where(drawable >= 0, scores[:, drawn], 0.0)
        )
        shape = (len(lists), places)
        targets, expected = np.ones(shape), np.zeros(shape)
        predicted, propensities, rewards = np.zeros(shape), np.ones(shape), np.zeros(shape)
        offsets = situations.offsets[which][:, None]
        width = name.places
        # How likely each place is looked at: an arm earns that share of its estimate.
        looked_at = np.array([work.of.bandit.examination_at(position) for position in range(width)])
        earned = scores + offsets
        if work.of.rewards is not None:
            earned = earned.clip(*work.of.rewards)
        predicted[:, :width] = np.where(rows >= 0, looked_at * earned, 0.0)
        expected[:, :width] = predicted[:, :width]
        propensities[:, :width] = lists.propensities
        rewards[:, :width] = lists.rewards_by(work.of.bandit.weights)
        targets[:, drawn] = result.propensities
        expected[:, drawn] = looked_at[drawn] * (result.expected + offsets)
        least, most = expected.copy(), expected.copy()
        least[:, drawn] = looked_at[drawn] * (result.least[:, None] + offsets)
        most[:, drawn] = looked_at[drawn] * (result.most[:, None] + offsets)
        missing = int((drawable < 0).any(axis=1).sum())
        return (propensities, targets, rewards, predicted, expected, least, most), missing

    def _weigh(
        self, work: _Work, situations: EvaluationBatch, which: Rows, rows: Rows, scores: Matrix
    ) -> Weighed:
        """The weights of the target for the drawn arms of each list. Shapes: rows, scores (n, k)."""
        prepared = self._preparations(work.pool, situations)
        target, arms = work.pool.target, work.pool.pool.arms
        self._look_for_unshown(work, situations, prepared, which, rows)
        if self._policy.target_by_exclusion or not any(work.lists.excluded):
            return target.weigh(situations, prepared, Lists(which, rows, scores))
        excluded = padded([known_rows(arms, ids) for ids in work.lists.excluded])
        count = excluded.shape[1]
        lists = Lists(
            which,
            np.hstack((excluded, rows)),
            np.hstack((_estimated(arms, excluded, situations, which), scores)),
            count,
        )
        result = target.weigh(situations, prepared, lists)
        propensities, expected = result.propensities[:, count:], result.expected[:, count:]
        return Weighed(propensities, expected, result.least, result.most)

    def _look_for_unshown(
        self, work: _Work, situations: EvaluationBatch, prepared: Sequence[Any], which: Rows, rows: Rows
    ) -> None:
        """Note what the lists show, and what the policy would choose for as many as can be afforded."""
        if work.lists.name.candidates is not None:
            return  # which arms stand to choose from is nothing that the policy does
        arms, unshown = work.pool.pool.arms, work.of.unshown
        table = arms.plain.whole.table
        if not unshown.show(table.number, table.rows, rows):
            return
        excluded = work.lists.excluded if not self._policy.target_by_exclusion else [()] * len(which)
        alike = Counter(zip(which.tolist(), excluded, strict=True))
        cost = arms.size * arms.table.dim if not self._policy.target_draws else 1
        for (position, without), lists in alike.items():
            if not unshown.affords(cost):
                return
            self._check()
            choices, counts = work.pool.target.drawn(situations, prepared[position], position)
            if without:
                left = np.where(np.isin(choices, known_rows(arms, without)), 0.0, counts)
                counts = np.minimum(left * (counts.sum() / (left.sum() or 1.0)), 1.0)
            unshown.want(choices, counts, lists)

    def _situations(self, work: _Work) -> tuple[EvaluationBatch, Rows]:
        """The distinct situations of some lists, and which of them each list has."""
        numbers = dict[Hashable, int]()
        first: list[int] = []
        which = np.empty(len(work.lists), dtype=np.int64)
        by_exclusion = self._policy.target_by_exclusion
        for position, (name, excluded) in enumerate(
            zip(work.lists.situations, work.lists.excluded, strict=True)
        ):
            number = numbers.setdefault((*name, excluded) if by_exclusion else name, len(numbers))
            which[position] = number
            if number == len(first):
                first.append(position)
        keys, contexts = zip(*(work.lists.situations[position] for position in first), strict=True)
        check_contexts(self.bandit, {len(context) // 4 for context in contexts})
        owners = np.array([work.owners[key] for key in keys])
        arms = work.pool.pool.arms
        exclude: Sequence[Rows] = [NO_ROWS] * len(first)
        if by_exclusion:
            exclude = [known_rows(arms, work.lists.excluded[position]) for position in first]
        contexts_of = joined(contexts)
        names = [(work.of.number, self._block, name) for name in numbers]
        rewards = work.of.rewards
        effects = self._effects_of(work.of, arms)
        has_match = work.lists.name.candidates is not None and work.of.bandit.match_dim > 0
        return EvaluationBatch(
            work.of.bandit, names, work.learners, owners, contexts_of, exclude, rewards, effects, has_match
        ), which

    def _effects_of(self, policy: Evaluated, arms: LearnerSnapshot) -> ArmEffects | None:
        """The effects of arms beyond their features in the present block, by the weights of a policy."""
        version, weighing, table = policy.bandit.effects, policy.bandit.weighing, arms.plain.whole.table
        if version is None:
            return None
        if arms.plain.whole.is_of_one_request:
            return effects_of_candidates(policy.bandit, arms)
        name = policy.number, table.number
        if name not in self._effects:
            directions = self._directions.setdefault(table.number, Directions())
            weights = np.ones(1) if weighing is None else np.array(weighing.weights)
            self._effects[name] = ArmEffects.of(
                version, directions, table, weights, policy.bandit.exploration
            )
        return self._effects[name]

    def _preparations(self, pool: _KnownPool, situations: EvaluationBatch) -> Sequence[Any]:
        """The target's preparations of each situation."""
        result = [pool.known.get(name) for name in situations.names]
        absent = [position for position, prepared in enumerate(result) if prepared is None]
        if absent:
            new = pool.target.prepare(situations.some(absent), self._check)
            for position, prepared in zip(absent, new, strict=True):
                result[position] = prepared
                pool.known.put(situations.names[position], prepared, pool.target.known_bytes)
        return result


def _estimated(arms: LearnerSnapshot, rows: Rows, situations: EvaluationBatch, which: Rows) -> Matrix:
    """The estimate of every arm of lists, less offsets; 0 of those without a row. Shapes: (n, k)."""
    scores = scores_of(arms, rows, situations.queries, which)
    if situations.effects is None or not rows.size:
        return scores
    effects = situations.effects.worth(arms, np.maximum(rows, 0).reshape(-1)).reshape(rows.shape)
    return np.where(rows >= 0, scores + effects, 0.0)
