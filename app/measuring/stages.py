"""The decisions of two groups, counted apart for each share of the holdout, and their joint figures.

A stage is all decisions made with one share of the holdout. Groups are compared within stages
(``shortlist.evaluation.stages``), so a change of the share is no difference between the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from app.measuring.outcomes import Bounds
from app.measuring.report_answer import GroupCounts, GroupName, ReportedStage, Unit
from shortlist.evaluation.two_groups import (
    GroupIntervals,
    GroupNumber,
    KeyIntervals,
    ValueSequence,
    joined_intervals,
)


@dataclass(slots=True)
class Counts:
    """Counts of some decisions."""

    decisions: int = 0
    rewarded: int = 0
    total: float = 0.0

    def add(self, value: float, *, rewarded: bool) -> None:
        self.decisions += 1
        self.rewarded += rewarded
        self.total += value

    @property
    def mean(self) -> float | None:
        return self.total / self.decisions if self.decisions else None

    def shown(self, group: GroupName) -> GroupCounts:
        return GroupCounts(group, self.decisions, self.rewarded, self.mean)


@dataclass(slots=True)
class StageGroup:
    """Decisions of one group in one stage, in their order. ``at_look``: those until the last look."""

    counts: Counts = field(default_factory=Counts)
    at_look: Counts = field(default_factory=Counts)
    values: ValueSequence = field(default_factory=ValueSequence)


@dataclass(slots=True)
class Stage:
    """``number``: as they come. ``groups``: the policy and the holdout."""

    number: int
    groups: tuple[StageGroup, StageGroup] = field(default_factory=lambda: (StageGroup(), StageGroup()))


class GroupTotals(NamedTuple):
    """Totals of a group in the stages which count. ``mean``: of their means, weighted; None without
    decisions.
    """

    decisions: int
    rewarded: int
    mean: float | None


class Stages:
    """Two groups over all stages of one bandit. ``settle`` takes up what was added."""

    def __init__(self, unit: Unit, *, level: float) -> None:
        self.decisions = 0
        self._unit, self._level = unit, level
        self._stages: dict[float | None, Stage] = {}
        self._by_key = KeyIntervals(level=level)

    def add(
        self,
        share: float | None,
        group: GroupNumber,
        key: str | None,
        value: float,
        bounds: Bounds | None,
        *,
        rewarded: bool,
    ) -> None:
        """Count a decision that was made with this share of the holdout."""
        self.decisions += 1
        stage = self._stages.get(share)
        if stage is None:
            stage = self._stages[share] = Stage(len(self._stages))
        counts = stage.groups[group]
        counts.counts.add(value, rewarded=rewarded)
        if self._unit == "decision":
            counts.values.add(value, bounds)
        elif self._by_key.add(group, key, value, bounds, stage=stage.number):
            for groups_of_stage in self._groups():
                groups_of_stage.at_look = replace(groups_of_stage.counts)

    def settle(self) -> None:
        for groups_of_stage in self._groups():
            groups_of_stage.values.settle()

    def intervals(self) -> GroupIntervals:
        """The intervals so far, or at the last look. Cost: O(S)."""
        if self._unit == "key":
            return self._by_key.intervals()
        values = [(one.values, other.values) for one, other in self._pairs()]
        return joined_intervals(values, level=self._level)

    def totals(self, weights: Sequence[float]) -> tuple[GroupTotals, GroupTotals]:
        """Both groups in the stages which count with ``weights``, as of ``intervals``."""
        return self._totals(0, weights), self._totals(1, weights)

    def reported(self, weights: Sequence[float]) -> list[ReportedStage]:
        """All stages, in the order of their first decisions. ``weights``: of some, 0 of the others."""
        padded = [*weights, *(0.0 for _ in range(len(self._stages) - len(weights)))]
        return [
            ReportedStage(share, one.counts.decisions, other.counts.decisions, weight)
            for share, (one, other), weight in zip(self._stages, self._pairs(), padded, strict=True)
        ]

    def _totals(self, group: GroupNumber, weights: Sequence[float]) -> GroupTotals:
        parts = [
            (pair[group].counts if self._unit == "decision" else pair[group].at_look, weight)
            for pair, weight in zip(self._pairs(), weights, strict=False)
            if weight > 0.0
        ]
        decisions = sum(counts.decisions for counts, _ in parts)
        # Where the group has no decisions in a counting stage, this stage counts alone.
        mean = sum(weight * (counts.mean or 0.0) for counts, weight in parts) if decisions else None
        return GroupTotals(decisions, sum(counts.rewarded for counts, _ in parts), mean)

    def _pairs(self) -> list[tuple[StageGroup, StageGroup]]:
        return [stage.groups for stage in self._stages.values()]

    def _groups(self) -> list[StageGroup]:
        return [group for pair in self._pairs() for group in pair]
