"""A row of the decision log: one decision, and its rewards.

In JSON every field is written, None as null; all times are ms since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.platform.documents import Answer
from app.storage.types import LearnerId, LogEntry

NO_LOG = "this bandit keeps no log: set `log`, and its next decisions stand in it"


Expectation = float | list[float | None] | None


class Barred(Answer, frozen=True):
    """The arms matched by one of ``filters``, and these ``arms``."""

    filters: list[Mapping[str, Any]]
    arms: list[str]


NOTHING_BARRED = Barred([], [])


class LoggedArm(Answer, frozen=True, omit_defaults=True, gc=False):
    """``propensity``: the probability of this arm given those before it; null where the policy knows none.
    ``expected``: the reward expected by the learner from the features of the arm, and ``effect``: the arm's
    assumed part beyond them, of each signal where there are some; absent without arm effects. ``examined``:
    the assumed probability of a look at its place, and ``weight``: of its reward, relative to the first
    place; absent where the bandit learns nothing of places. ``age``: what its age added, a part of
    ``effect``; absent where its age is unknown.
    """

    id: str
    place: int
    score: float
    propensity: float | None
    pinned: bool
    expected: Expectation = None
    effect: Expectation = None
    examined: float | None = None
    weight: float | None = None
    age: float | None = None


class LoggedReward(Answer, frozen=True, omit_defaults=True, gc=False):
    """``default``: sent by nobody, in place of a reward which did not come in time; of all signals, where
    there are some. ``signal``: its name; absent without signals. ``revised``: number of earlier rewards
    replaced; absent for 0.
    """

    arm: str
    value: float
    time: int
    default: bool
    signal: str | None = None
    revised: int = 0


class LoggedCandidate(Answer, frozen=True, omit_defaults=True, gc=False):
    """``features``: of an arm of the request alone, as float32; absent of an arm of the catalogue. ``match``:
    the request's encoded numbers of the arm; absent for 0.
    """

    id: str
    features: list[float] | None = None
    match: list[float] | None = None


class Agreement(Answer, frozen=True, gc=False):
    """Agreement of a holdout's list, in the order of the caller, with the policy's, pinned arms left out.
    ``same_first``: both begin with the same arm. ``overlap``: the share of common arms.
    """

    same_first: bool
    overlap: float


class Row(Answer, frozen=True, omit_defaults=True):
    """A decision with its rewards. Times in ms since 1970. ``decision``: the token. ``filter``: the condition
    on all arms, the bandit's and the request's. ``rewards``: in the order in which they came. ``barred``:
    arms not allowed by quotas and repeats; left out where there are none, null where unknown.
    ``prior_version``, ``effects_version``: as of a choice. ``candidates``: of the request, in its order; left
    out without any, null where they are not kept: beyond 16 kB, or the decision was deferred. ``agreement``:
    of a holdout with candidates; left out where the policy did not rank.
    """

    decision: str
    time: int
    key: str | None
    bandit_version: int
    learner_version: int
    catalogue_version: int
    policy: str
    group: str | None
    context: list[float] | None  # as it was encoded
    filter: Mapping[str, Any] | None
    eligible: int | None
    arms: list[LoggedArm]
    rewards: list[LoggedReward]  # a late one stands beside the default that it replaces
    weights: dict[str, float] | None = None
    barred: Barred | None = NOTHING_BARRED
    prior_version: int | None = None
    effects_version: int | None = None
    candidates: Sequence[LoggedCandidate] | None = ()
    agreement: Agreement | None = None


class ThinnedRow(Row, frozen=True):
    """A decision of another system's log, which keeps only some. ``stands_for``: 1 / the probability of being
    kept.
    """

    stands_for: float = 1.0


def counted_of(
    row: Row, learner: LearnerId, signals: Sequence[str]
) -> Iterator[tuple[LoggedReward, float | None, LogEntry]]:
    """The rewards of a decision counted by learners, in the order in which they came.

    With each: the replaced default, and its entry of the reward log, without a payload. ``signals``: of
    the bandit, in their order.
    """
    defaults, came = dict[str, float | None](), dict[str, dict[int, float]]()
    for reward in row.rewards:
        is_first = reward.arm not in defaults
        if reward.default and not is_first:
            continue
        replaced = None if is_first else defaults[reward.arm]
        defaults[reward.arm] = reward.value if reward.default else None
        of_arm = came.setdefault(reward.arm, {})  # what has come of it so far, by signal
        yield reward, replaced, LogEntry("", learner, b"", is_first, tuple(of_arm.items()))
        if not reward.default and (reward.signal is None or reward.signal in signals):
            signal_number = 0 if reward.signal is None else signals.index(reward.signal)
            of_arm[signal_number] = of_arm.get(signal_number, 0.0) + reward.value
