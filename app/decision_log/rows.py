"""A row of the decision log: one decision, and the rewards that came for it.

In JSON every field is written, those that are None as null; all times are ms since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.platform.documents import Answer
from app.storage.types import LearnerId, LogEntry

NO_LOG = "this bandit keeps no log: set `log`, and its next decisions stand in it"


Expectation = float | list[float | None] | None


class Barred(Answer, frozen=True):
    """The arms that one of ``filters`` lets in, and these ``arms``."""

    filters: list[Mapping[str, Any]]
    arms: list[str]


NOTHING_BARRED = Barred([], [])


class LoggedArm(Answer, frozen=True, omit_defaults=True, gc=False):
    """``propensity``: the probability of this arm given those before it; null where the policy knows none.
    ``expected``: the reward that the learner expected of the features of the arm, and ``effect``: what the
    arm was taken to have beyond them, of each signal where there are some; absent without arm effects.
    ``examined``: how likely its place was taken to be looked at, and ``weight``: what its reward weighs
    beside that of the first place; absent where the bandit learns nothing of places.
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


class LoggedReward(Answer, frozen=True, omit_defaults=True, gc=False):
    """``default``: nobody sent it, it stands for a reward that did not come in time; of all signals, where
    there are some. ``signal``: which one it is; absent without signals. ``revised``: how many earlier ones it
    has taken the place of; absent where of none.
    """

    arm: str
    value: float
    time: int
    default: bool
    signal: str | None = None
    revised: int = 0


class LoggedCandidate(Answer, frozen=True, omit_defaults=True, gc=False):
    """``features``: of an arm of the request alone, as float32; absent of an arm of the catalogue. ``match``:
    what the request said of it, as it was encoded; absent where that is 0.
    """

    id: str
    features: list[float] | None = None
    match: list[float] | None = None


class Agreement(Answer, frozen=True, gc=False):
    """Of the list that a holdout was served, in the order of the caller, with that of the policy, pinned arms
    left out. ``same_first``: both begin with the same arm. ``overlap``: the share of arms that both have.
    """

    same_first: bool
    overlap: float


class Row(Answer, frozen=True, omit_defaults=True):
    """A decision with its rewards. Times in ms since 1970. ``decision``: the token. ``filter``: what all arms
    had to be like, the bandit's and the request's. ``rewards``: in the order in which they came.
    ``barred``: what quotas and repeats did not allow; left out where there is none, null where that is
    not known. ``prior_version``, ``effects_version``: as of a choice. ``candidates``: of the request, in its
    order; left out where it named none, null where they are not kept: beyond 16 kB, or the decision was
    deferred. ``agreement``: of a holdout that serves candidates; left out where the policy did not rank.
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
    """A decision of a log of another system, which keeps only some. ``stands_for``: 1 / the probability with
    which it was kept.
    """

    stands_for: float = 1.0


def counted_of(
    row: Row, learner: LearnerId, signals: Sequence[str]
) -> Iterator[tuple[LoggedReward, float | None, LogEntry]]:
    """The rewards of a decision that learners count, in the order in which they came.

    With each: which default it replaces, and its entry of the reward log, without a payload. ``signals``: of
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
            place = 0 if reward.signal is None else signals.index(reward.signal)
            of_arm[place] = of_arm.get(place, 0.0) + reward.value
