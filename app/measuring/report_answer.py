"""The answer of a report: groups, their difference, places, buckets, signals, guardrails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from app.platform.documents import Answer
from shortlist.evaluation.two_groups import Interval, IntervalKind

GroupName = Literal["policy", "holdout"]
Unit = Literal["key", "decision"]
GuardrailState = Literal["kept", "broken", "unknown"]


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Decisions of a group. ``rewarded``: decisions with a reward sent by somebody. ``mean_reward``: of these
    decisions; null without any. Where several stages count, the mean of their means by their weights.
    """

    group: GroupName
    decisions: int
    rewarded: int
    mean_reward: float | None


@dataclass(frozen=True, slots=True)
class GroupReport(GroupCounts):
    """As ``GroupCounts``. ``interval``: holds the mean with 95 % probability at all looks together; null: not
    known yet.
    """

    interval: Interval | None


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """The earnings of arms at one place of longer lists. ``place``: from 1.

    ``examination``: of the holdout, of random lists: how likely the place is looked at, relative to the
    first, by the position-based model. ``interval`` holds at all looks together.
    """

    group: GroupName
    place: int
    decisions: int
    mean_reward: float
    examination: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class Lift:
    """The mean reward of the policy less the holdout's, compared within each stage of one share."""

    value: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class ReportedStage:
    """Decisions made with one share of the holdout, so far. ``policy``, ``holdout``: their number in each
    group. ``weight``: how much the stage counts in means and lift, 0 to 1; 0 while a group has too few.
    """

    share: float | None
    policy: int
    holdout: int
    weight: float


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """The agreement of the policy with the lists of a holdout of candidates. ``decisions``: beside which the
    policy ranked. ``same_first``: the share of them with the same first arm. ``overlap``: the share of common
    arms, on average. Pinned arms are left out of both.
    """

    decisions: int
    same_first: float
    overlap: float


class Bucket(Answer, frozen=True, rename={"from_ms": "from"}):
    """Decisions of a piece of time. ``from``: its begin, in ms since 1970."""

    from_ms: int
    groups: list[GroupCounts]


@dataclass(frozen=True, slots=True)
class SignalReport:
    """The result of one signal: as the groups and the lift of the sum."""

    signal: str
    groups: list[GroupReport]
    lift: Lift
    interval_kind: IntervalKind
    interval_decisions: int
    places: list[PlaceReport]


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A rule, and whether it is surely kept or broken by the policy, by the ``interval`` of its mean."""

    signal: str
    most: float | None
    least: float | None
    state: GuardrailState
    mean: float | None
    interval: Interval | None


class ReportedMove(Answer, frozen=True, rename={"left": "from", "joined": "to"}):
    """A move of the bandit: when, in ms since 1970, ``from`` which catalogue and ``to`` which."""

    time: int
    left: str
    joined: str


@dataclass(frozen=True, slots=True)
class Report:
    """``unit``: drawn for the groups: the keys of a per_key bandit, the decisions of a global one.

    ``decisions``           of both groups, so far
    ``as_of_decisions``     groups and lift, with their intervals, are of the first so many of them: with keys
                            a power of two, else all. Buckets and places are of all
    ``next_look``           at how many decisions they are made anew; null: at each
    ``interval_kind``       bounded ones hold exactly, asymptotic ones the better the more there are
    ``interval_decisions``  the same as ``as_of_decisions``, as it was named first
    ``ungrouped``           decisions without comparison: made before there was a holdout, while its share
                            was 0 or 1, or for a baseline
    ``stages``              the shares of the holdout in this time, the earliest first
    ``places``              of decisions with several arms: the earnings of each place, the first hundred
    ``warnings``            why a group has no interval, whether the policy is the worse one, or why there are
                            no decisions
    ``complete_from``       when it begins, in ms since 1970, since rows from before are gone; null: as asked
    ``agreement``           of a holdout of candidates, in all of its decisions; null: none
    ``moves``               of the bandit to other catalogues in this time, the earliest first; absent: none

    Of a bandit with signals groups and lift are of the sum by its current ``weights``. All intervals, of the
    sum and of each signal, hold together: each has an equal share of the 5 % to fail.
    """

    groups: list[GroupReport]
    lift: Lift
    unit: Unit
    decisions: int
    as_of_decisions: int
    next_look: int | None
    interval_kind: IntervalKind
    interval_decisions: int
    ungrouped: int
    buckets: list[Bucket]
    places: list[PlaceReport]
    warnings: list[str]
    complete_from: int | None
    agreement: AgreementReport | None = None
    stages: list[ReportedStage] = field(default_factory=list)
    weights: dict[str, float] | None = None
    signals: list[SignalReport] = field(default_factory=list)
    guardrails: list[Guardrail] = field(default_factory=list)
    moves: list[ReportedMove] = field(default_factory=list)
