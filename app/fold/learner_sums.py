"""Learners from rows: the one place where rewards become the sums of learners.

``states_after`` adds rewards to learners in the order of a log, ``state_of`` is what a learner knows of some
rewards alone, and ``merged`` adds two such parts. All are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.records.records import LearnerState
from shortlist.linear import ridge_sums
from shortlist.linear.discounted_sums import plus, scaled, weight
from shortlist.types import Matrix, Rows, Vector


@dataclass(frozen=True, slots=True, eq=False)
class RewardRows:
    """Rewards of one space as rows of n, m rewards of J signals. A replacement is two rows: one takes the old
    value away. Either all rewards are discounted or none.

    ``features``    what the learner learns from, (n, D)
    ``values``      addition of a row to the reward of its decision and arm, (n, J)
    ``first``       whether the row is the first of these, (n,)
    ``before``      the sum of those before it, (n, J)
    ``reward_at``   the reward of each row, (n,)
    ``decided_ms``  time of the choice, (m,) ``half_life_s`` 0: nothing is discounted, (m,)
    ``signals``     number of signals of a reward: later ones are 0, (m,)
    """

    features: Matrix
    values: Matrix
    first: NDArray[np.bool_]
    before: Matrix
    reward_at: Rows
    decided_ms: Rows
    half_life_s: Vector
    signals: Rows
    space: int = 0

    def part(self, start: int, stop: int) -> RewardRows:
        """Some of the rewards, where ``reward_at`` ascends."""
        begin, end = np.searchsorted(self.reward_at, (start, stop)).tolist()
        rows, rewards = slice(begin, end), slice(start, stop)
        return RewardRows(
            *(self.features[rows], self.values[rows], self.first[rows], self.before[rows]),
            *(self.reward_at[rows] - start, self.decided_ms[rewards], self.half_life_s[rewards]),
            *(self.signals[rewards], self.space),
        )


def states_after(
    states: Sequence[LearnerState | None], counts: Sequence[int], rows: RewardRows
) -> list[LearnerState]:
    """Learners after rewards, as if these were added one after the other, to the bit.

    The next ``counts[i]`` of the rewards are of ``states[i]``; ``reward_at`` ascends. Raises InvalidShape,
    NonFinite.
    """
    nothing = LearnerState(0, ridge_sums.empty(rows.features.shape[1]), space=rows.space)
    all_states, ends = [state or nothing for state in states], np.cumsum(counts).tolist()
    if rows.half_life_s[0]:  # each learner has a time of its own, so there are no common weights
        parts = (rows.part(end - count, end) for end, count in zip(ends, counts, strict=True))
        return list(map(_discounted, all_states, parts))
    owners = np.repeat(np.arange(len(counts)), counts)[rows.reward_at]
    before = [state.sums for state in all_states]
    sums = ridge_sums.add_each(before, owners, rows.features, rows.values, rows.first, before=rows.before)
    if len(sums[0].more):  # how many a learner has must not depend on who is folded with it
        named = np.maximum.reduceat(rows.signals, [0, *ends[:-1]]).tolist()
        least = map(max, named, (state_sums.signals for state_sums in before))
        sums = [state_sums.without_signals(count) for state_sums, count in zip(sums, least, strict=True)]
    return [
        LearnerState(state.version + count, state_sums, space=state.space)
        for state, count, state_sums in zip(all_states, counts, sums, strict=True)
    ]


def _discounted(state: LearnerState, rows: RewardRows) -> LearnerState:
    """The newest decision sets the time of the state, and what is older weighs less."""
    count, time_ms, half_life_s = len(rows.decided_ms), state.time_ms, 0.0
    factors, weights = np.ones(len(rows.first)), np.ones(count)
    # The factor stands at the first row of each reward: the earlier sums are discounted once, not once for
    # each row.
    begins = np.searchsorted(rows.reward_at, np.arange(count)).tolist()
    terms = zip(begins, rows.decided_ms.tolist(), rows.half_life_s.tolist(), strict=True)
    for number, (row, decided_ms, half_life_s) in enumerate(terms):
        before_ms, time_ms = time_ms, max(time_ms, decided_ms)
        factors[row] = weight(time_ms - before_ms, half_life_s)
        weights[number] = weight(time_ms - decided_ms, half_life_s)
    discounts = factors, weights[rows.reward_at]
    sums = ridge_sums.add(state.sums, rows.features, rows.values, rows.first, discounts, before=rows.before)
    if len(sums.more):
        sums = sums.without_signals(max(state.sums.signals, int(rows.signals.max())))
    return LearnerState(state.version + count, sums, time_ms, half_life_s, state.space)


def state_of(rows: RewardRows) -> LearnerState:
    """Make the state of a learner of these rewards alone, as ``states_after`` but for rounding: one product
    of matrices. Cost: n D^2. Raises InvalidShape, NonFinite.
    """
    time_ms, weights, half_life_s = 0, None, float(rows.half_life_s[0])
    if half_life_s:
        time_ms = int(rows.decided_ms.max())
        weights = np.exp2((rows.decided_ms - time_ms) / (1_000.0 * half_life_s))[rows.reward_at]
    sums = ridge_sums.of(rows.features, rows.values, rows.first, weights, before=rows.before)
    if len(sums.more):
        sums = sums.without_signals(int(rows.signals.max()))
    return LearnerState(len(rows.decided_ms), sums, time_ms, half_life_s, rows.space)


def merged(one: LearnerState | None, other: LearnerState) -> LearnerState:
    """Merge two states: a learner of the rewards of both, as of the later of their times."""
    if one is None:
        return other
    time_ms, half_life_s = max(one.time_ms, other.time_ms), other.half_life_s
    sums = one.sums, other.sums
    if half_life_s:
        # Sums are as of their own times: both are brought to the later one, at which older rewards weigh
        # less.
        weights = (weight(time_ms - state.time_ms, half_life_s) for state in (one, other))
        sums = scaled(one.sums, next(weights)), scaled(other.sums, next(weights))
    return LearnerState(one.version + other.version, plus(*sums), time_ms, half_life_s, other.space)
