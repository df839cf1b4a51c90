"""Learners before each block of a log, folded from its rewards as the service folds them.

    past = PastLearners(bandit, source)
    await past.survey(pages, earlier)           # once through the log
    for block in range(len(past.blocks)):       # once more
        await past.begin(block, first)          # its first row
        ... = await past.posterior(key)         # what was known before the block
        await past.learn(rows of the block)

A pass starts from one of two states (``StartMode``):

    known   the state from earlier rows of the log, with the source's state before all of them
    log     nothing. Then the first block cannot be weighed

It is ``known`` where the versions agree: all rewards named by the first decision of a learner were in these
rows. They disagree after observations or an imported state, where rows or rewards are missing, or where a
learner was forgotten and its log was not.

A learned prior is the version named by the first row of a block. Where the row names none, or the version is
not kept any more, a prior is fitted from the learners before the block.

Arm effects are the version named by the first row of a block, too. Without one they are fitted from the
rewards of the rows before the block, which have the expected rewards of their arms.

A reward is known to a block that began after it came. Memory grows with the number of learners, and with the
rewards that come later than their blocks; not with the number of decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Literal

import numpy as np

from shortlist.evaluation import blocks as algorithm
from shortlist.evaluation.blocks import Blocks
from shortlist.linear import ridge_sums
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix
from shortlist_evaluation.sources import HeldSource
from shortlist_service.constraints import LearnerId
from shortlist_service.decision_log import (
    Row,
    ShownArms,
    TimedReward,
    carried_of,
    counted_in,
    entries_of,
    learner_of,
)
from shortlist_service.errors import TooLarge
from shortlist_service.learners import (
    EffectVersion,
    Item,
    LearnerState,
    PriorVersion,
    States,
    SumsOfArms,
    arms_after,
    effects_of,
    learned,
    merged,
    prior_of,
)
from shortlist_service.policies import Bandit
from shortlist_service.work import MEASURING

MOST_BYTES = 512 << 20  # of all learners
UNDER_WAY_MS = 5_000
LATE_TOLERANCE = 0.01  # of what was known: rewards on their way when the first decisions were made
LARGE_DIM = 256  # as in ``learners.learners``

StartMode = Literal["known", "log"]
FirstDecision = tuple[int, int]
"""The version of its learner, and its time."""


class PastLearners:
    """All learners of a bandit in the past.

    ``blocks``     of the log, once it is surveyed
    ``beginning``  what the learners begin with
    ``unknown``    learners whose state before their first decision is unknown
    ``prior``      the known version of the learned prior; None: there is none
    ``effects``    the known version of the arm effects; None: there are none
    ``effects_of_log``  whether they were fitted from rows of the log alone
    ``most_bytes``     of all learners
    ``under_way_ms``   rewards that came so shortly before the log may not have been known to its decisions
    """

    def __init__(
        self,
        bandit: Bandit,
        source: HeldSource,
        *,
        most_bytes: int = MOST_BYTES,
        under_way_ms: int = UNDER_WAY_MS,
    ) -> None:
        self._most_bytes, self._under_way_ms = most_bytes, under_way_ms
        self.blocks: Blocks = algorithm.of(algorithm.start())
        self.beginning: StartMode = "log"
        self.unknown = set[LearnerId]()
        self.prior: PriorVersion | None = None
        self.effects: EffectVersion | None = None
        self.effects_of_log = False
        self._arms: SumsOfArms = {}  # without ``_taught``
        self._taught = list[Item]()
        self._later_arms = dict[int, list[Item]]()
        self._bandit = bandit
        self._source = source
        self._bandits_then = dict[int, Bandit]()
        self._first = dict[LearnerId, FirstDecision]()
        self._last_version = dict[LearnerId, int]()
        self._rewards_found = Counter[LearnerId]()  # rewards by learner that the log has, or the source
        self._states: States = {}
        self._later: dict[int, States] = {}

    async def survey(
        self, pages: AsyncIterator[Sequence[Row]], earlier: AsyncIterator[Sequence[Row]] | None = None
    ) -> None:
        """Find the blocks of the decisions of ``pages``, and what was known before them.

        ``earlier``: all decisions that the log has from before these; read where something was known. Raises
        TooLarge, Unavailable.
        """
        clock = algorithm.start()
        async for rows in pages:
            clock = algorithm.add(clock, np.array([float(row.time) for row in rows]))
            for row in rows:
                self._first.setdefault(learner_of(self._bandit, row.key), (row.learner_version, row.time))
        self.blocks = algorithm.of(clock)
        unknown = {learner for learner, (version, _) in self._first.items() if version}
        if not unknown:
            return
        self._states |= self.before_the_log()
        if await self._know_earlier(earlier or _no_pages()):
            self.beginning = "known"
        else:
            self.unknown = unknown
            self._rewards_found.clear()
            for states in (self._states, self._later, self._later_arms):
                states.clear()

    def before_the_log(self) -> dict[LearnerId, LearnerState]:
        """The source's learners before any row of the log."""
        return self._source.learners_before(self._bandit)

    async def of_its_learners(self, earlier: AsyncIterator[Sequence[Row]]) -> AsyncIterator[Sequence[Row]]:
        """Earlier decisions of the learners that the surveyed ones have."""
        async for rows in earlier:
            yield [row for row in rows if learner_of(self._bandit, row.key) in self._first]

    async def _know_earlier(self, earlier: AsyncIterator[Sequence[Row]]) -> bool:
        """Learn from earlier decisions, and return whether their rewards are all those known to the first
        ones.

        More than that are a few rewards that were still on their way then.
        """
        for learner, state in self._states.items():
            self._rewards_found[learner] = state.version if state else 0
        late = Counter[LearnerId]()  # not known to the first decision
        just_before = just_after = 0
        is_whole = True
        async for rows in self.of_its_learners(earlier):
            rewards, are_whole = await self.rewards_of(rows)
            is_whole &= are_whole
            self._count(rows, rewards)
            for came_ms, (entry, _) in rewards:
                late_ms = came_ms - self._first[entry.learner][1]
                late[entry.learner] += late_ms > 0
                just_before += -self._under_way_ms <= late_ms <= 0
                just_after += 0 < late_ms <= self._under_way_ms  # clocks of processes differ
            # What a reward was before it was revised is not known any more.
            is_whole &= not any(
                reward.revised and reward.time > self._first[learner_of(self._bandit, row.key)][1]
                for row in rows
                for reward in row.rewards
            )
            await MEASURING.run(partial(self._learn, rewards))
        found_in_time = {learner: self._rewards_found[learner] - late[learner] for learner in self._first}
        more = [found_in_time[learner] - version for learner, (version, _) in self._first.items()]
        missing, unheard = (
            -sum(min(difference, 0) for difference in more),
            sum(max(difference, 0) for difference in more),
        )
        tolerance = LATE_TOLERANCE * sum(found_in_time.values()) + just_before
        return is_whole and missing <= just_after and unheard <= tolerance

    async def begin(self, block: int, first: Row | None = None) -> None:
        """Know from now on what had come before the block, whose first row is ``first``."""
        for number in sorted(number for number in self._later if number <= block):
            _add(self._states, self._later.pop(number))
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
        states = {learner.name: state for learner, state in self._states.items() if state is not None}
        history = await self._source.first(self._bandit)
        return await MEASURING.run(partial(prior_of, states, self._bandit, history))

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
        self._arms = arms_after(self._arms, self._taught)
        self._taught.clear()
        return effects_of(self._arms, self._bandit.record, self.prior)

    async def learn(self, rows: Sequence[Row]) -> None:
        """Learn the rewards of some decisions, each in the block that knows it. Raises TooLarge, Invalid."""
        rewards, _ = await self.rewards_of(rows)
        self._count(rows, rewards)
        for row in rows:
            learner = learner_of(self._bandit, row.key)
            self._last_version[learner] = max(row.learner_version, self._last_version.get(learner, 0))
        await MEASURING.run(partial(self._learn, rewards))

    def lacking(self) -> int:
        """The number of rewards known to learners at their last decision and missing in all rows, at
        least; 0: hardly any.
        """
        lacking = [version - self._rewards_found[learner] for learner, version in self._last_version.items()]
        missing, total = sum(max(number, 0) for number in lacking), sum(self._last_version.values())
        return missing if missing > LATE_TOLERANCE * total else 0

    def _count(self, rows: Sequence[Row], rewards: Sequence[TimedReward]) -> None:
        self._rewards_found.update(entry.learner for _, (entry, _) in rewards)
        for row in rows:  # each value of a reward was a version
            self._rewards_found[learner_of(self._bandit, row.key)] += sum(
                reward.revised for reward in row.rewards
            )

    def weighs(self, block: int) -> bool:
        """True if anything was known before the block."""
        return block > 0 or self.beginning == "known"

    async def posterior(self, key: str | None, bandit: Bandit | None = None) -> Posterior:
        """The posterior of a key's learner. ``bandit``: the same, by other weights of its signals."""
        weighed = bandit or self._bandit.with_prior(self.prior)
        state = self._states.get(learner_of(self._bandit, key))
        sums = ridge_sums.empty(self._bandit.learner_dim) if state is None else state.sums
        if sums.dim < LARGE_DIM:
            return weighed.posterior(sums)
        return await MEASURING.run(partial(weighed.posterior, sums))

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
        self._check_size(len(states) + len(self._states) + sum(map(len, self._later.values())))

    def _check_size(self, learners: int) -> None:
        if learners * self._bandit.state_bytes > self._most_bytes:
            size = f"the learners of all keys in this time would take more than {self._most_bytes >> 20} MB"
            message = f'{size}: ask for less time, or for "learners": "now"'
            raise TooLarge(message, path=("learners",))

    async def rewards_of(self, rows: Sequence[Row]) -> tuple[Sequence[TimedReward], bool]:
        """When each reward of some decisions came, as it is folded, and whether all of them can be."""
        counted = await MEASURING.run(partial(counted_in, self._bandit, rows))
        if not counted:
            return [], True
        features, is_known = await self._features([(row, reward.arm) for row, reward, *_ in counted])
        self._bandits_then |= await self._source.versions(self._bandit, rows)
        places = np.flatnonzero(is_known).tolist()
        with_features = [counted[position] for position in places]
        make = partial(entries_of, self._bandit, with_features, features[places], self._bandits_then)
        return await MEASURING.run(make), len(places) == len(counted)

    async def _features(self, shown: ShownArms) -> tuple[Matrix, Sequence[bool]]:
        """The features of arms when they were shown: of the catalogue, or as a request brought them.

        Shapes: -> (n, d), (n,).
        """
        bandit = self._bandit
        carried = await MEASURING.run(partial(carried_of, shown))
        brought = {
            position: numbers[: bandit.arm_dim]
            for position, numbers in carried.items()
            if len(numbers) == bandit.arm_dim + bandit.match_dim
        }
        of_catalogue = [position for position in range(len(shown)) if position not in brought]
        features, is_known = np.zeros((len(shown), bandit.arm_dim)), np.ones(len(shown), dtype=bool)
        if of_catalogue:
            catalogue_features, known = await self._source.features(
                bandit, [shown[at] for at in of_catalogue]
            )
            is_known[of_catalogue] = known
            if catalogue_features.shape[1]:
                features[of_catalogue] = catalogue_features
        for position, numbers in brought.items():
            features[position] = numbers
        return features, is_known.tolist()


async def _no_pages() -> AsyncIterator[Sequence[Row]]:
    for rows in list[Sequence[Row]]():
        yield rows


def _add(states: States, more: States) -> None:
    for learner, state in more.items():
        if state is not None:
            states[learner] = merged(states.get(learner), state)
