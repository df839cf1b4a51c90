"""What learners knew before each block of a log, folded from its rewards as the service folds them.

    past = PastLearners(bandit, source)
    await past.survey(pages, from_ms=None, to_ms=None)  # once through the log
    for block in range(len(past.blocks)):       # once more
        await past.begin(block, first)          # its first row
        ... = await past.posterior(key)         # what was known before the block
        await past.learn(rows of the block)

A pass can start from two states (``StartMode``):

    known   what the learners know today, less every reward that the log holds since then. So they start with
            what they knew before the first decision
    log     nothing. Then the first block cannot be weighed

``known`` is used where the versions agree: today's version less the rewards of the log must be the version
that the first decisions of the log were made with. They disagree where learners were given observations or a
state, where rows or rewards are missing, or where a learner was forgotten and its log was not. Sums with a
half-life cannot be subtracted at all, and of sums that are huge beside the ridge only rounding errors would
be left.

A learned prior is the version that the first row of a block names. Where that row names none, or the version
is not kept any more, a prior is fitted from what learners knew before the block.

Arm effects are the version that the first row of a block names, too. Where that is not kept, or names none,
they are fitted from the rewards of the rows before the block, which say what was expected of their arms.

A reward is known to a block that began after it came. Memory grows with the number of learners, and with the
rewards that come later than their blocks; not with the number of decisions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Literal

import numpy as np

from shortlist.evaluation import blocks as algorithm
from shortlist.evaluation.blocks import Blocks
from shortlist.linear import bilinear, ridge, ridge_sums
from shortlist.linear.ridge import Posterior
from shortlist.linear.sum_algebra import minus
from shortlist.types import Matrix
from shortlist_evaluation.sources import HeldSource
from shortlist_service.constraints import LearnerId
from shortlist_service.decision_log import LoggedReward, Row, counted_of, revisions_in
from shortlist_service.errors import Invalid, TooLarge
from shortlist_service.learners import (
    GLOBAL_LEARNER,
    ArmSums,
    CollectedSums,
    EffectVersion,
    Item,
    LearnerState,
    LogEntry,
    PriorVersion,
    RewardEntry,
    States,
    add_entry,
    fit_sample,
    fitted,
    has_history,
    learned,
    merged,
    steps_of,
    version_of,
)
from shortlist_service.policies import Bandit, SignalRef, with_constant
from shortlist_service.work import MEASURING

MOST_BYTES = 512 << 20  # of all learners
MOST_LATE = 10_000  # rewards of decisions before the time asked for
SUBTRACTION_TOLERANCE = (
    1e-3  # of the ridge: more rounding than this might be taken for what is left of the sums
)
UNDER_WAY_MS = 5_000
LATE_TOLERANCE = 0.01  # of what was known: rewards on their way when the first decisions were made
LARGE_DIM = 256  # as in ``learning.learners``

StartMode = Literal["known", "log"]
LearnersNow = Callable[[LearnerId], Awaitable[LearnerState | None]]
"""What a learner knows today."""
CountedReward = tuple[Row, LoggedReward, float | None, LogEntry]
TimedReward = tuple[float, Item]
"""When a reward came, and as what it is folded."""
_time = attrgetter("time")


@dataclass(frozen=True, slots=True)
class HeldLearners:
    """Learners of a bandit by name, as they stand today."""

    bandit: Bandit
    states: Mapping[str, LearnerState]

    async def state(self, learner: LearnerId) -> LearnerState | None:
        return self.states.get(learner.name)

    async def posterior(self, key: str | None, bandit: Bandit) -> Posterior:
        """What the learner of a key knows; ``bandit``: the same, by some weights of its signals."""
        state = self.states.get(learner_of(self.bandit, key).name)
        return bandit.posterior(ridge_sums.empty(bandit.learner_dim) if state is None else state.sums)


@dataclass(slots=True)
class _Survey:
    """What a log says of the time since its first decision.

    ``first``     the version of each learner then
    ``since``     what learners have learned from rewards that came since
    ``revised``   how many rewards of each learner these have replaced
    ``late``      those of them that are of earlier decisions, and when they came
    ``under_way``  how many rewards had just come, so that the first decisions may not have known them yet
    ``is_whole``  whether all of this could be found
    """

    first: dict[LearnerId, int] = field(default_factory=dict)
    since: States = field(default_factory=dict)
    revised: Counter[LearnerId] = field(default_factory=Counter)
    late: list[TimedReward] = field(default_factory=list)
    under_way: int = 0
    is_whole: bool = True
    _came: dict[LearnerId, list[float]] = field(default_factory=dict)

    def add_late(self, rewards: Sequence[TimedReward]) -> None:
        """Note late ones, as many as may be."""
        self.is_whole &= len(self.late) + len(rewards) <= MOST_LATE
        if self.is_whole:
            self.late += rewards
            for came_ms, (entry, _) in rewards:
                self._came.setdefault(entry.learner, []).append(came_ms)

    def late_of(self, learner: LearnerId, before_ms: int) -> int:
        """How many of the late ones had come by a time."""
        return sum(came_ms < before_ms for came_ms in self._came.get(learner, ()))


class PastLearners:
    """All learners of a bandit in the past.

    ``standing``   None: nothing is known but what the log shows
    ``blocks``     of the log, once it is surveyed
    ``beginning``  what the learners begin with
    ``why``        why it is not what was known, where it could be expected to be
    ``takes_back``  whether what was known may be found: then the survey needs the log up to now
    ``prior``      the version of the learned prior that is known; None: there is none
    ``effects``    the version of the arm effects that is known; None: there are none
    ``effects_of_log``  whether they were fitted from rows of the log alone
    ``most_bytes``     of all learners
    ``late``       rewards of decisions before the first, that came later than it; of ``known``
    ``under_way_ms``   rewards that came so shortly before the log may not have been known to its decisions
    """

    def __init__(
        self,
        bandit: Bandit,
        source: HeldSource,
        learners_now: LearnersNow | None = None,
        *,
        most_bytes: int = MOST_BYTES,
        under_way_ms: int = UNDER_WAY_MS,
    ) -> None:
        self._most_bytes, self._under_way_ms = most_bytes, under_way_ms
        self.blocks: Blocks = algorithm.of(algorithm.start())
        self.beginning: StartMode = "log"
        self.why: str | None = None
        self.prior: PriorVersion | None = None
        self.effects: EffectVersion | None = None
        self.effects_of_log = False
        self.late: Sequence[TimedReward] = ()
        self._arms = dict[tuple[str, int], ArmSums]()  # by arm and revision, without ``_taught``
        self._taught = list[Item]()
        self._later_arms = dict[int, list[Item]]()
        self._bandit = bandit
        self._source = source
        self._standing = learners_now
        self.takes_back = self._takes_back()
        self._then = dict[int, Bandit]()
        self._now: States = {}
        self._later: dict[int, States] = {}

    async def survey(
        self, pages: AsyncIterator[Sequence[Row]], *, from_ms: int | None, to_ms: int | None
    ) -> None:
        """Find the blocks of the decisions from ``from_ms`` on and before ``to_ms``, and what was known then.

        ``pages``: their rows. If it ``takes_back`` also those after ``to_ms``, and those of earlier decisions
        that may have been rewarded since ``from_ms``. Raises TooLarge, Unavailable.
        """
        clock, now_ms, from_ms = algorithm.start(), time.time() * 1_000.0, from_ms or 0
        survey = _Survey()
        async for rows in pages:
            rows_within = [row for row in rows if row.time >= from_ms]
            inside = [float(row.time) for row in rows_within if to_ms is None or row.time < to_ms]
            clock = algorithm.add(clock, np.array(inside))
            if not self.takes_back:
                continue
            late = [row for row in rows if row.time < from_ms <= max(map(_time, row.rewards), default=0)]
            survey.under_way += sum(
                from_ms - self._under_way_ms <= reward.time < from_ms
                for row in rows[: len(rows) - len(rows_within)]
                for reward in row.rewards
            )
            early, is_whole = await self.rewards_of(late)
            survey.add_late([reward for reward in early if from_ms <= reward[0] < now_ms])
            # What a reward was before it was revised is not known any more.
            survey.is_whole &= not any(reward.revised for row in late for reward in row.rewards)
            rewards, are_whole = await self.rewards_of(rows_within)
            survey.is_whole &= is_whole and are_whole
            for row in rows_within:
                learner = learner_of(self._bandit, row.key)
                if learner not in survey.first:
                    survey.first[learner] = row.learner_version - survey.late_of(learner, row.time)
                survey.revised[learner] += sum(each.revised for each in row.rewards)
            came = [item for came_ms, item in rewards if came_ms < now_ms]
            await MEASURING.run(partial(self._merge, survey.since, came))
        await MEASURING.run(partial(self._merge, survey.since, [item for _, item in survey.late]))
        self.blocks = algorithm.of(clock)
        if self.takes_back and self._standing is not None:
            await self._rewind(self._standing, survey)
            if self.beginning == "known":
                self.late = survey.late
                await MEASURING.run(partial(self._learn, survey.late))

    def before_the_log(self) -> dict[LearnerId, LearnerState]:
        """What was known before the first decision, before any block begins."""
        return {learner: state for learner, state in self._now.items() if state is not None}

    async def begin(self, block: int, first: Row | None = None) -> None:
        """Know from now on what had come before the block, whose first row is ``first``."""
        for number in sorted(number for number in self._later if number <= block):
            _add(self._now, self._later.pop(number))
        if self._bandit.record.prior == "learned":
            self.prior = await self._prior_before(first)
        if self._bandit.record.arm_effects == "auto":
            await self._know_effects(block, first)

    async def _prior_before(self, first: Row | None) -> PriorVersion | None:
        number = None if first is None else first.prior_version
        if number == 0:
            return None
        version = None if number is None else await self._source.prior(self._bandit, number)
        if version is not None:
            return version
        states = {learner.name: state for learner, state in self._now.items() if state is not None}
        history = await self._source.first(self._bandit)
        fitted = await MEASURING.run(partial(fit_sample, states, self._bandit, history))
        return version_of(1, 0, fitted)

    async def _know_effects(self, block: int, first: Row | None) -> None:
        for later in sorted(later for later in self._later_arms if later <= block):
            self._taught += self._later_arms.pop(later)
        number = None if first is None else first.effects_version
        self.effects, self.effects_of_log = None, False
        if number:
            self.effects = await self._source.effects(self._bandit, number)
        if number != 0 and self.effects is None:
            self.effects_of_log = True
            self.effects = await MEASURING.run(self._effects)

    def _effects(self) -> EffectVersion:
        """Those that the log tells. As if the features of arms had not changed: a file does not say how."""
        for entry, reward in self._taught:
            of_revision = reward.arm, reward.revision
            sums = add_entry(self._arms.get(of_revision), entry, reward)
            if sums is not None:
                self._arms[of_revision] = sums
        self._taught.clear()
        record, now_ms = self._bandit.record, max((own.time_ms for own in self._arms.values()), default=0)
        clock = record.clock_of_arms
        collected = CollectedSums(
            space=0,
            signals=record.signal_count,
            half_life_s=None if clock is None else clock.half_life_s,
            until_ms=now_ms,
        )
        collected.add_sums([(arm, own) for (arm, _), own in self._arms.items()])
        totals, centres = collected.totals(), has_history(self.prior)
        return fitted(totals, steps_of(totals, {}), None, record, number=1, now_ms=now_ms, centres=centres)[0]

    async def learn(self, rows: Sequence[Row]) -> None:
        """Learn the rewards of some decisions, each in the block that knows it. Raises TooLarge, Invalid."""
        rewards, _ = await self.rewards_of(rows)
        await MEASURING.run(partial(self._learn, rewards))

    def weighs(self, block: int) -> bool:
        """Whether anything was known before the block."""
        return block > 0 or self.beginning == "known"

    async def posterior(self, key: str | None, bandit: Bandit | None = None) -> Posterior:
        """What the learner of a key knows. ``bandit``: the same, by other weights of its signals."""
        weighed = bandit or self._bandit.with_prior(self.prior)
        state = self._now.get(learner_of(self._bandit, key))
        sums = ridge_sums.empty(self._bandit.learner_dim) if state is None else state.sums
        if sums.dim < LARGE_DIM:
            return weighed.posterior(sums)
        return await MEASURING.run(partial(weighed.posterior, sums))

    def _takes_back(self) -> bool:
        if self._standing is not None and self._bandit.record.key_half_life_s is not None:
            self.why = "what its learners have faded out meanwhile is unknown"
        return self._standing is not None and self.why is None

    async def _rewind(self, learners_now: LearnersNow, survey: _Survey) -> None:
        """Begin with what is known today less what came since, if that is what was known then."""
        result, more, known_rewards, complete = States(), 0, 0, survey.is_whole
        for learner, version in survey.first.items():
            today, gained = await learners_now(learner), survey.since.pop(learner, None)
            since = survey.revised[learner] + (0 if gained is None else gained.version)
            before = (0 if today is None else today.version) - since
            complete = complete and before >= version
            more, known_rewards = more + before - version, known_rewards + before
            if before > 0 and today is not None:
                dust = ridge.rounding_floor(today.sums.lower_gram())
                sums = today.sums if gained is None else minus(today.sums, gained.sums)
                complete = complete and dust <= SUBTRACTION_TOLERANCE * self._bandit.scales.fit(sums).ridge
                result[learner] = LearnerState(before, sums)
                self._check_size(len(result) + len(survey.since))
        if known_rewards and complete and more <= LATE_TOLERANCE * known_rewards + survey.under_way:
            self._now, self.beginning = result, "known"
        elif known_rewards:
            self.why = "what they knew before it is unknown"

    def _learn(self, rewards: Sequence[TimedReward]) -> None:
        known_to = self.blocks.known_to(np.array([came_ms for came_ms, _ in rewards])).tolist()
        by_block = dict[int, list[Item]]()
        for block, (_, item) in zip(known_to, rewards, strict=True):
            if block < max(len(self.blocks), 1):  # without blocks all is learned at once
                by_block.setdefault(block, []).append(item)
        for block, items in by_block.items():
            self._merge(self._later.setdefault(block, {}), items)
            self._later_arms.setdefault(block, []).extend(item for item in items if item[1].expected)

    def _merge(self, states: States, items: Sequence[Item]) -> None:
        _add(states, learned(items))
        self._check_size(len(states) + len(self._now) + sum(map(len, self._later.values())))

    def _check_size(self, learners: int) -> None:
        if learners * self._bandit.state_bytes > self._most_bytes:
            size = f"the learners of all keys in this time would take more than {self._most_bytes >> 20} MB"
            message = f'{size}: ask for less time, or for "learners": "now"'
            raise TooLarge(message, path=("learners",))

    async def rewards_of(self, rows: Sequence[Row]) -> tuple[Sequence[TimedReward], bool]:
        """When each reward of some decisions came, as it is folded, and whether all of them can be."""
        counted = await MEASURING.run(partial(self._counted, rows))
        if not counted:
            return [], True
        features, is_known = await self._source.features(
            self._bandit, [(row, reward.arm) for row, reward, *_ in counted]
        )
        self._then |= await self._source.versions(self._bandit, rows)
        places = np.flatnonzero(is_known).tolist()
        make = partial(self._items, [counted[position] for position in places], features[places])
        return await MEASURING.run(make), len(places) == len(counted)

    def _counted(self, rows: Sequence[Row]) -> Sequence[CountedReward]:
        signals = list(self._bandit.record.signals or ())
        return [
            (row, *counted_reward)
            for row in rows
            for counted_reward in counted_of(row, learner_of(self._bandit, row.key), signals)
        ]

    def _items(self, counted: Sequence[CountedReward], features: Matrix) -> Sequence[TimedReward]:
        record, result = self._bandit.record, list[TimedReward]()
        examined = np.array([self._examined(row, reward) for row, reward, *_ in counted])
        joint = examined[:, None] * self._joint(features, [row for row, *_ in counted])
        joint = np.ascontiguousarray(joint, dtype="<f8")
        data, size = joint.tobytes(), 8 * joint.shape[1]
        revisions = dict[str, Mapping[str, int]]()
        of_signals = record.defaults()
        for number, (row, reward, default, entry) in enumerate(counted):
            # Without signals what came before is in the entry: further ones are summed with it.
            judged, signal, sums = SignalRef.of(record.signals or {}, reward.signal), 0, True
            if judged is not None:
                signal, sums = judged.place, judged.rule.aggregate == "sum"
            if row.decision not in revisions and row.effects_version is not None:
                revisions[row.decision] = revisions_in(row)
            revision = revisions.get(row.decision, {}).get(reward.arm)
            served, expected = _pair_of(row, reward)
            content = RewardEntry(
                data[number * size : (number + 1) * size],
                reward.value,
                arm=reward.arm,
                revision=revision or 0,
                decided_ms=row.time,
                examined=float(examined[number]),
                served=served,
                expected=() if revision is None else expected,
                half_life_s=record.key_half_life_s or 0.0,
                signal=signal if judged is not None or record.signals is None else None,
                sums=sums,
                defaults=(default or 0.0,) if record.signals is None else of_signals,
                arm_time=record.arm_time(row.time),
            )
            result.append((float(max(reward.time, row.time)), (entry, content)))
        return result

    def _examined(self, row: Row, reward: LoggedReward) -> float:
        """How likely the place of the arm was looked at, by the terms of its decision."""
        position = self._then[row.bandit_version].record.position
        if position is None:
            return 1.0
        return position.at(next(place for place, arm in enumerate(row.arms) if arm.id == reward.arm))

    def _joint(self, features: Matrix, rows: Sequence[Row]) -> Matrix:
        """What learners learn from, of arms in the contexts of their decisions. Shapes: (n, d) -> (n, D)."""
        context, constant = self._bandit.context, self._bandit.constant
        if context is not None and rows:
            check_contexts(self._bandit, {len(row.context or ()) for row in rows})
            encoded = np.array([row.context for row in rows], dtype=np.float32)
            features = bilinear.phi(features, context.directions, encoded)
        return features if constant is None else with_constant(features, constant)


def _pair_of(row: Row, reward: LoggedReward) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What is taken off a reward before its key, and its arm, learn from it, of each signal."""
    arm = next(arm for arm in row.arms if arm.id == reward.arm)
    if arm.effect is None:
        return (), ()
    served, expected = (
        () if numbers is None else tuple(np.atleast_1d(np.array(numbers, dtype="<f4")).tolist())
        for numbers in (arm.effect, arm.expected)
    )
    return served, expected


def learner_of(bandit: Bandit, key: str | None) -> LearnerId:
    """The learner of a logged decision."""
    return LearnerId(bandit.uid, GLOBAL_LEARNER if key is None else key)


def check_contexts(bandit: Bandit, lengths: set[int]) -> None:
    """Raise Invalid where a context of the log is not one of this bandit."""
    numbers = 0 if bandit.context is None else bandit.context.encoding.dim
    if lengths - {numbers}:
        expected = f"{numbers} numbers" if numbers else "none"
        raise Invalid(f"the contexts of the log must be those of the bandit, {expected}")


def _add(states: States, more: States) -> None:
    for learner, state in more.items():
        if state is not None:
            states[learner] = merged(states.get(learner), state)
