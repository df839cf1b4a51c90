"""What a policy would have earned on logged decisions that are read a piece at a time.

    evaluator = Evaluator(bandit, source, known, estimators)
    for piece in log:
        await evaluator.add(piece)
    found = evaluator.state.estimates("ips")

A piece is read, and weighed, in a thread; in between, what it needs is fetched: arms, learners. Memory does
not grow with the number of decisions.

Notation as in ``choosing.target`` and ``algorithms.evaluation.logged``
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import Invalid
from app.services.bandits.bandit import Bandit
from app.services.bounded.cache import BoundedCache
from app.services.bounded.long_work import MEASURING
from app.services.catalogues.filtered_snapshots import among
from app.services.catalogues.learner_snapshot import LearnerSnapshot
from app.services.choosing.policies import POLICIES
from app.services.choosing.target import Lists, Pool, Situations, Target, Targets, Weighed
from app.services.decision_log.rows import Row
from app.services.measuring.logged_lists import (
    NO_CONTEXT,
    LoggedLists,
    SortedRows,
    sort,
)
from app.services.measuring.outcomes import Terms, terms_of, terms_of_rule
from app.services.measuring.past_learners import PastLearners, check_contexts
from app.services.measuring.sources import HeldSource
from shortlist.evaluation import off_policy
from shortlist.evaluation.logged import LARGEST_WEIGHT, Logged
from shortlist.evaluation.off_policy import ESTIMATORS, OffPolicyState
from shortlist.linear.ridge import Factored, Posterior
from shortlist.types import NO_ROWS, Matrix, Rows, Vector

ESTIMATOR_NAMES = tuple(ESTIMATORS)
PIECE = 1_000  # decisions
NOISY_PIECE = 100  # where whole posteriors are needed: a megabyte each, at most
READ_TOGETHER = 32  # learners
LEARNERS_BYTES = 32 << 20
POOLS_BYTES = 128 << 20
KNOWN_BYTES = 16 << 20  # of one pool
POOL_BYTES = 100_000
TOGETHER = 1_000_000  # features of arms in lists
NO_ROOT = np.empty((0, 0))

Known = PastLearners | Callable[[str | None, Bandit], Awaitable[Posterior]]
"""What learners know: in the past, or now, by key (None: that of a global bandit) and weights."""


class EvaluationStopped(Exception):
    """Nobody waits for the evaluation any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _KnownPool:
    """A pool, and what its target knows of situations."""

    pool: Pool
    target: Target
    known: BoundedCache[Hashable, Any]


@dataclass(slots=True, eq=False)
class Evaluated:
    """A policy, by one weighing of its signals. ``number``: its place among several.

    ``gone``    decisions with an arm that it could not draw now
    ``state``   what the estimators have seen, and ``signals`` the same of each signal by itself, which has no
                predictions: there dr is ips
    """

    number: int
    bandit: Bandit
    state: OffPolicyState
    signals: dict[str, OffPolicyState]
    gone: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Lists of a piece, with all that is needed to weigh them. ``owners``: places of keys in ``learners``."""

    of: Evaluated
    lists: LoggedLists
    pool: _KnownPool
    learners: Sequence[Posterior]
    owners: Mapping[str | None, int]


class Evaluator:
    """One evaluation. ``bandit`` has the policy that is evaluated.

    ``policies``    it, or the same by several weights
    ``known``       what decisions are weighed with; of ``PastLearners`` that have blocks, what was known
                    before the block of a decision
    ``decisions``   that were read so far
    ``unknown``     of these, without propensities
    ``unreadable``  of these, of which it is not known what they asked for
    ``cut``         of these, lists that are longer than what is evaluated
    ``unweighed``   of these, made when nothing was known yet
    """

    def __init__(
        self,
        bandit: Bandit,
        source: HeldSource,
        known: Known,
        estimators: Sequence[str],
        weighed: Sequence[Bandit] = (),
    ) -> None:
        """``weighed``: the bandit by several weights; without any by its own."""
        self.bandit = bandit
        self.estimators = estimators
        self.policies = [_begun(number, each, estimators) for number, each in enumerate(weighed or [bandit])]
        self._posterior = known.posterior if isinstance(known, PastLearners) else known
        self.past = known if isinstance(known, PastLearners) and len(known.blocks) else None
        self.decisions = self.unknown = self.unreadable = self.cut = self.unweighed = 0
        if isinstance(known, PastLearners):
            self._serve_with(known)
        self._block = -1
        self._targets = targets_of(bandit)
        self._source = source
        self._pools: BoundedCache[Hashable, _KnownPool] = BoundedCache(POOLS_BYTES)
        self._learners: BoundedCache[tuple[int, str | None], Posterior] = BoundedCache(LEARNERS_BYTES)
        self._terms = dict[int, Terms]()
        self._stopped = threading.Event()

    @property
    def state(self) -> OffPolicyState:
        """That of the first of the policies."""
        return self.policies[0].state

    @property
    def left_out(self) -> int:
        """Decisions that were not used."""
        return self.unknown + self.unreadable + self.unweighed

    async def add(self, rows: Sequence[Row]) -> None:
        """Take up decisions. Raises Invalid (policy): some would have weights beyond all numbers."""
        piece = NOISY_PIECE if self._targets.needs_noise else PIECE
        try:
            start = 0
            while start < len(rows):
                some = rows[start : start + min(piece, await self._left_of_block(rows[start]))]
                await self._add(some)
                start += len(some)
        except asyncio.CancelledError:
            self._stopped.set()  # a thread goes on otherwise
            raise

    async def _left_of_block(self, following: Row) -> int:
        """How many decisions the block of the next one has left; one that begins is made ready."""
        if self.past is None:
            return PIECE
        first = self.past.blocks.first
        if self._block + 1 < len(first) and self.decisions >= first[self._block + 1]:
            self._block += 1
            await self.past.begin(self._block, following)
            self._serve_with(self.past)
            self._learners = BoundedCache(LEARNERS_BYTES)
        return int(first[self._block + 1]) - self.decisions if self._block + 1 < len(first) else PIECE

    def _serve_with(self, past: PastLearners) -> None:
        for policy in self.policies:
            policy.bandit = policy.bandit.with_prior(past.prior)

    async def _add(self, rows: Sequence[Row]) -> None:
        if self.past is not None:
            await self.past.learn(rows)  # for later blocks
            if not self.past.weighs(self._block):
                self.decisions += len(rows)
                self.unweighed += len(rows)
                return
        for version in {row.bandit_version for row in rows} - self._terms.keys():
            self._terms[version] = await self._source.terms(self.bandit, version)
        result: SortedRows = await MEASURING.run(partial(sort, rows, self._terms))
        for policy in self.policies:
            if work := [await self._work(policy, lists) for lists in result.lists]:
                await MEASURING.run(partial(self._weigh_all, policy, work))
        self.decisions += len(rows)
        self.unknown += result.unknown
        self.unreadable += result.unreadable
        self.cut += result.cut

    async def _work(self, policy: Evaluated, lists: LoggedLists) -> _Work:
        keys = list(dict.fromkeys(key for key, _ in lists.situations))
        learners = await self._posteriors(policy, keys)
        owners = {key: place for place, key in enumerate(keys)}
        return _Work(policy, lists, await self._pool(lists), learners, owners)

    async def _pool(self, lists: LoggedLists) -> _KnownPool:
        known = self._pools.get(lists.name)
        if known is None:
            arm_filter, barred = self.bandit.filter_with(lists.name.arm_filter), lists.name.barred
            arms = await self._source.snapshot(self.bandit, arm_filter)
            if barred is not None:
                arms = self.bandit.seen(await MEASURING.run(partial(among, arms.plain, barred)))
                arm_filter = barred if arm_filter is None else arm_filter.both(barred)
            pool = Pool(self.bandit, arms, arm_filter, lists.name.k)
            target = await self._targets.of(self._source.covers, pool)
            known = _KnownPool(pool, target, BoundedCache(KNOWN_BYTES))
            self._pools.put(lists.name, known, POOL_BYTES + KNOWN_BYTES + 8 * arms.size)
        return known

    async def _posteriors(self, policy: Evaluated, keys: Sequence[str | None]) -> Sequence[Posterior]:
        number = policy.number
        result = {key: self._learners.get((number, key)) for key in keys}
        absent = [key for key, posterior in result.items() if posterior is None]
        for start in range(0, len(absent), READ_TOGETHER):
            together = absent[start : start + READ_TOGETHER]
            reads = (self._posterior(key, policy.bandit) for key in together)
            for key, posterior in zip(together, await asyncio.gather(*reads), strict=True):
                kept = posterior if self._targets.needs_noise else _estimate(posterior)
                result[key] = kept
                self._learners.put((number, key), kept, 1_000 + kept.theta.nbytes + kept.root.nbytes)
        return [posterior for posterior in result.values() if posterior is not None]

    def _check(self) -> None:
        if self._stopped.is_set():
            raise EvaluationStopped

    def _weigh_all(self, policy: Evaluated, work: Sequence[_Work]) -> None:
        """Take these decisions up for a policy."""
        places = max(policy.state.places, *(each.lists.name.places for each in work))
        state = off_policy.widened(policy.state, places)
        parts = []
        for each in work:
            self._check()
            logged, missing = self._logged(each, places)
            parts.append(logged)
            policy.gone += missing
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        propensities, targets, rewards, predicted, expected = columns
        with np.errstate(over="ignore", under="ignore"):
            heaviest = np.cumprod(targets / propensities, axis=1).max(initial=0.0)
        if not heaviest <= LARGEST_WEIGHT:
            message = "the policy does what the log hardly ever shows: weights are beyond all numbers"
            raise Invalid(message, path=("policy",))
        policy.state = off_policy.add(state, Logged(propensities, targets, rewards, predicted, expected))
        nothing = np.zeros(rewards.shape)
        for name, known in policy.signals.items():
            own = np.concatenate(
                [_widened(part.lists.signals.get(name), part.lists, places) for part in work]
            )
            logged_of_it = Logged(propensities, targets, own, nothing, nothing)
            policy.signals[name] = off_policy.add(off_policy.widened(known, places), logged_of_it)

    def _logged(self, work: _Work, places: int) -> tuple[Sequence[Matrix], int]:
        """What the estimators need of some lists, and how many have an arm that could not be drawn.

        That is propensities, targets, rewards, predicted, expected. Shapes: each (n, places).
        """
        lists, name, arms = work.lists, work.lists.name, work.pool.pool.arms
        situations, which = self._situations(work)
        rows = _rows(arms, lists.ids).reshape(len(lists), -1)
        scores = _scores(arms, rows, situations.queries, which)
        drawn = list(name.drawn_places)
        among = np.where(_lets_in(arms, rows[:, drawn]), rows[:, drawn], -1)
        result = self._weigh(work, situations, which, among, np.where(among >= 0, scores[:, drawn], 0.0))
        shape = (len(lists), places)
        targets, expected = np.ones(shape), np.zeros(shape)
        predicted, propensities, rewards = np.zeros(shape), np.ones(shape), np.zeros(shape)
        offsets = situations.offsets[which][:, None]
        width = name.places
        looked_at = self._examination(width)
        predicted[:, :width] = np.where(rows >= 0, looked_at * (scores + offsets), 0.0)
        expected[:, :width] = predicted[:, :width]
        propensities[:, :width] = lists.propensities
        rewards[:, :width] = lists.rewards_by(work.of.bandit.weights)
        targets[:, drawn] = result.propensities
        expected[:, drawn] = looked_at[drawn] * (result.expected + offsets)
        missing = int((among < 0).any(axis=1).sum())
        return (propensities, targets, rewards, predicted, expected), missing

    def _examination(self, places: int) -> Vector:
        """How likely each place is looked at: an arm earns that share of its estimate. Shape: (places,)."""
        rule = self.bandit.record.position
        return np.array([1.0 if rule is None else rule.at(place) for place in range(places)])

    def _weigh(self, work: _Work, situations: Situations, which: Rows, rows: Rows, scores: Matrix) -> Weighed:
        """What the target would do with the drawn arms of each list. Shapes: rows, scores (n, k)."""
        known = self._known(work.pool, situations)
        target, arms = work.pool.target, work.pool.pool.arms
        if self._targets.by_exclusion or not any(work.lists.excluded):
            return target.weigh(situations, known, Lists(which, rows, scores))
        excluded = _padded([_known_rows(arms, ids) for ids in work.lists.excluded])
        count = excluded.shape[1]
        lists = Lists(
            which,
            np.hstack((excluded, rows)),
            np.hstack((_scores(arms, excluded, situations.queries, which), scores)),
            count,
        )
        result = target.weigh(situations, known, lists)
        return Weighed(result.propensities[:, count:], result.expected[:, count:])

    def _situations(self, work: _Work) -> tuple[Situations, Rows]:
        """The distinct situations of some lists, and which of them each list has."""
        numbers = dict[Hashable, int]()
        first: list[int] = []
        which = np.empty(len(work.lists), dtype=np.int64)
        by_exclusion = self._targets.by_exclusion
        for place, (name, excluded) in enumerate(
            zip(work.lists.situations, work.lists.excluded, strict=True)
        ):
            number = numbers.setdefault((*name, excluded) if by_exclusion else name, len(numbers))
            which[place] = number
            if number == len(first):
                first.append(place)
        keys, contexts = zip(*(work.lists.situations[place] for place in first), strict=True)
        check_contexts(self.bandit, {len(context) // 4 for context in contexts})
        owners = np.array([work.owners[key] for key in keys])
        arms = work.pool.pool.arms
        exclude: Sequence[Rows] = [NO_ROWS] * len(first)
        if by_exclusion:
            exclude = [_known_rows(arms, work.lists.excluded[place]) for place in first]
        joined = _joined(contexts)
        names = [(work.of.number, self._block, name) for name in numbers]
        return Situations(work.of.bandit, names, work.learners, owners, joined, exclude), which

    def _known(self, pool: _KnownPool, situations: Situations) -> Sequence[Any]:
        """What the target knows of each situation."""
        result = [pool.known.get(name) for name in situations.names]
        absent = [place for place, each in enumerate(result) if each is None]
        if absent:
            made = pool.target.know(situations.some(absent), self._check)
            for place, each in zip(absent, made, strict=True):
                result[place] = each
                pool.known.put(situations.names[place], each, pool.target.known_bytes)
        return result


def _begun(number: int, bandit: Bandit, estimators: Sequence[str]) -> Evaluated:
    signals = (bandit.record.signals or {}).items()
    return Evaluated(
        number,
        bandit,
        _start(estimators, terms_of(bandit.record, bandit.weights)),
        {name: _start(estimators, terms_of_rule(rule)) for name, rule in signals},
    )


def _start(estimators: Sequence[str], terms: Terms) -> OffPolicyState:
    rewards = None if terms.low is None or terms.high is None else (terms.low, terms.high)
    return off_policy.start(estimators, places=1, rewards=rewards)


def _widened(rewards: Matrix | None, lists: LoggedLists, places: int) -> Matrix:
    """Those of lists, and 0 at places that they have not. None: the signal came later. Shape: (n, places)."""
    result = np.zeros((len(lists), places))
    if rewards is not None:
        result[:, : rewards.shape[1]] = rewards
    return result


def targets_of(bandit: Bandit) -> Targets:
    """How the policy of a bandit is evaluated. Raises Invalid (policy): it cannot be."""
    targets = POLICIES[bandit.record.policy].targets
    if targets is None:
        reason = "it shows what it knows least about, so what it shows next depends on every reward before"
        message = f"{bandit.record.policy} cannot be evaluated on a log: {reason}"
        raise Invalid(message, path=("policy", "policy"))
    return targets


def check_estimators(estimators: Sequence[str]) -> None:
    """Raise Invalid for an estimator that there is not, and for none at all or one given twice."""
    errors = [
        (("estimators", place), f"must be one of {', '.join(ESTIMATOR_NAMES)}, each once")
        for place, name in enumerate(estimators)
        if name not in ESTIMATORS or name in estimators[:place]
    ]
    if errors:
        raise Invalid.many(errors)
    if not estimators:
        raise Invalid("estimators must name one at least", path=("estimators",))


def _estimate(posterior: Posterior) -> Posterior:
    """A posterior without what it draws from."""
    return Factored(np.array(posterior.theta), NO_ROOT, posterior.ridge, posterior.sigma)


def _rows(arms: LearnerSnapshot, ids: Sequence[str]) -> Rows:
    """Rows of arms in the whole catalogue; -1 for those that it has not. Shape: -> (n,)."""
    distinct = dict.fromkeys(ids)
    places = arms.plain.whole.table.row_of_each(distinct).tolist()
    rows = dict(zip(distinct, places, strict=True))
    return np.array([rows[arm] for arm in ids], dtype=np.int64)


def _known_rows(arms: LearnerSnapshot, ids: Sequence[str]) -> Rows:
    """Rows of arms of a snapshot, each once."""
    return np.unique(arms.rows_of(ids)) if ids else NO_ROWS


def _padded(columns: Sequence[Rows]) -> Rows:
    """Lists of rows side by side, filled up with -1. Shape: (n, longest)."""
    result = np.full((len(columns), max(map(len, columns))), -1, dtype=np.int64)
    for place, rows in enumerate(columns):
        result[place, : len(rows)] = rows
    return result


def _joined(contexts: Sequence[bytes]) -> NDArray[np.float32] | None:
    """Encoded contexts of one length; None where there is none. Shape: (q, m)."""
    if not contexts or contexts[0] == NO_CONTEXT:
        return None
    return np.frombuffer(b"".join(contexts), dtype=np.float32).reshape(len(contexts), -1)


def _lets_in(arms: LearnerSnapshot, rows: Rows) -> NDArray[np.bool_]:
    """Whether arms can be drawn. Shapes: (n, k) -> (n, k)."""
    known = rows >= 0
    known[known] = arms.plain.lets_in(rows[known])
    return known


def _scores(arms: LearnerSnapshot, rows: Rows, queries: Matrix, which: Rows) -> Matrix:
    """x.query of every arm of lists, 0 for those without a row. Shapes: rows (n, k), which (n,) -> (n, k)."""
    result = np.zeros(rows.shape)
    if not arms.table.rows or not rows.size:
        return result
    step = max(1, TOGETHER // (rows.shape[1] * arms.table.dim))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        features = arms.plain.features_of(np.maximum(rows[part], 0).reshape(-1))
        shaped = features.reshape(*rows[part].shape, -1)
        np.einsum("nkd,nd->nk", shaped, queries[which[part]], out=result[part])
    return np.where(rows >= 0, result, 0.0)
