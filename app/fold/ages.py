"""The sums of the ages of arms: sums of each bin, folded with those of arms, and their fit.

The sums of a partition only grow, or lose the rewards of a forgotten key. The version of the effects has the
stretches of time they were counted in (``AgeFit``): so the fold stays a sum, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from app.bandits.effect_version import AgeFit
from app.fold.entry_rows import changes_of
from app.records.age_sums import AgeSums, as_in_tokens
from app.records.log_entries import RewardEntry
from app.storage.types import LogEntry
from shortlist.linear import ages
from shortlist.linear.ages import AgeNumbers
from shortlist.linear.discounted_sums import exact_sum
from shortlist.types import Vector

MOVED = 0.2  # deviations of what an age adds, from which on a version is made
STALE_MS = ages.FIRST_MS // 3  # a version says how old arms were when it was made


def with_entry(sums: AgeSums, entry: LogEntry, reward: RewardEntry, *, sign: Literal[1, -1]) -> AgeSums:
    """The sums with what an entry says of the age of its arm, or without it. Of bandits of one reward."""
    if reward.at_age is None:
        return sums
    age_bin, examined = reward.at_age.bin, 1.0 if reward.examined is None else reward.examined
    n, R, R_error = list(sums.n), list(sums.R), list(sums.R_error)
    own_reward = reward.served[0] - reward.at_age.effect
    expected = examined * (reward.expected[0] + own_reward)
    for (value,), _, begins in changes_of(entry, reward):
        # What is expected is taken off once: with the first value of the decision.
        n[age_bin] += sign * reward.weight * examined**2 if begins else 0.0
        more = sign * reward.weight * examined * (value - expected if begins else value)
        R[age_bin], R_error[age_bin] = exact_sum(R[age_bin], R_error[age_bin], more, 0.0)
    return AgeSums(sums.version + (sign > 0), tuple(n), tuple(R), tuple(R_error))


def fitted_ages(before: AgeFit | None, parts: Sequence[AgeSums], noise: float) -> AgeFit | None:
    """The fit of the sums of all partitions; ``before`` where a stretch of time is not over.

    ``before``: that of the version before; None: nothing was known. ``noise``: the variance of a reward.
    """
    if not parts:
        return before
    n = np.sum([part.n for part in parts], axis=0)
    R = np.sum([np.array(part.R) - part.R_error for part in parts], axis=0)
    age_numbers, n_since, R_since = ages.nothing(), n, R
    if before is not None:
        age_numbers = AgeNumbers(np.array(before.A), np.array(before.r))
        n_since, R_since = n - before.n, R - before.R
    # What a forgotten key has taught in an earlier stretch is in its numbers.
    is_more = n_since > 0.0
    n_since, R_since = np.where(is_more, n_since, 0.0), np.where(is_more, R_since, 0.0)
    if n_since.sum() < ages.STRETCH:
        return before
    age_numbers = ages.added(age_numbers, n_since, R_since)
    effects, deviations = ages.fit(age_numbers, noise)
    lists = [numbers.tolist() for numbers in (deviations, age_numbers.A, age_numbers.r, n, R)]
    return AgeFit(as_in_tokens(effects), *lists)


def have_moved(before: AgeFit | None, after: AgeFit | None, passed_ms: int) -> bool:
    """Return whether a version is due for the ages, so many ms after the one before."""
    if after is None:
        return False
    if any(after.effects) and passed_ms >= STALE_MS:
        return True
    effects_before = np.zeros(ages.BINS) if before is None else np.array(before.effects)
    apart: Vector = np.abs(np.array(after.effects) - effects_before)
    return bool((apart > MOVED * np.array(after.deviations)).any())
