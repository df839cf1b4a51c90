"""Rows of a decision log, made by hand or from answers of choose, and logs of such rows in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.bandits.bandit import Bandit
from app.decision_log.reading import DecisionLog
from app.decision_log.rows import LoggedArm, LoggedReward, Row


def reward_of(value: float, arm: str = "a", *, time: int = 1_000, default: bool = False) -> LoggedReward:
    return LoggedReward(arm, value, time, default)


def row(*values: float, arms: Sequence[str | LoggedArm] = ("a",), **changes: Any) -> Row:
    """A decision; its first arms were rewarded with ``values``. ``arms``: ids, or as logged."""
    rewards = [reward_of(value, str(arm)) for arm, value in zip(arms, values, strict=False)]
    fields: dict[str, Any] = {
        "decision": "token", "time": 1_000, "key": None, "bandit_version": 1, "learner_version": 0,
        "catalogue_version": 1, "policy": "softmax", "group": None, "context": None, "filter": None,
        "eligible": None, "arms": _logged(arms), "rewards": rewards,
    }  # fmt: skip
    return Row(**{**fields, **changes})


def _logged(arms: Sequence[str | LoggedArm]) -> list[LoggedArm]:
    return [
        LoggedArm(arm, place, 0.5, None, False) if isinstance(arm, str) else arm
        for place, arm in enumerate(arms, start=1)
    ]


@dataclass
class LogInMemory(DecisionLog):
    """``DecisionLog`` of given rows. ``asked``: how many pages were read so far."""

    rows: Sequence[Row]
    page: int = 100
    asked: int = field(default=0, init=False)
    complete_ms: int | None = None

    async def complete_from(self, bandit: Bandit, from_ms: int | None) -> int | None:
        return self.complete_ms

    async def pages(
        self, bandit: Bandit, *, from_ms: int | None, to_ms: int | None
    ) -> AsyncIterator[Sequence[Row]]:
        chosen = [
            row
            for row in self.rows
            if (from_ms is None or row.time >= from_ms) and (to_ms is None or row.time < to_ms)
        ]
        for start in range(0, len(chosen), self.page):
            self.asked += 1
            yield chosen[start : start + self.page]


class MemoryLog(DecisionLog):
    """``DecisionLog`` of rows in the order of time. ``excluded``: for a test, by decision."""

    def __init__(self, rows: Sequence[Row] = (), *, page: int = 7) -> None:
        self.rows = list(rows)
        self.page = page
        self.excluded: dict[str, Sequence[str]] = {}
        self.begun = 0

    async def complete_from(self, bandit: Bandit, from_ms: int | None) -> int | None:
        return None

    async def pages(
        self, bandit: Bandit, *, from_ms: int | None, to_ms: int | None
    ) -> AsyncIterator[Sequence[Row]]:
        self.begun += 1
        wanted = [
            row
            for row in self.rows
            if (from_ms is None or row.time >= from_ms) and (to_ms is None or row.time < to_ms)
        ]
        for start in range(0, len(wanted), self.page):
            yield wanted[start : start + self.page]


def row_of(
    answer: Mapping[str, Any],
    *rewards: tuple[str, float] | tuple[str, float, bool],
    time: int = 0,
    **others: Any,
) -> Row:
    """The row of an answer of choose. ``rewards``: arm, value, and whether it is a default."""
    arms = [
        LoggedArm(arm["id"], place, arm["score"], arm.get("propensity"), arm.get("pinned", False))
        for place, arm in enumerate(answer["arms"], start=1)
    ]
    came = [LoggedReward(arm, value, time, bool(rest and rest[0])) for arm, value, *rest in rewards]
    fields: dict[str, Any] = {
        "key": None,
        "group": answer.get("group"),
        "context": None,
        "filter": None,
        "eligible": answer.get("eligible"),
        **others,
    }
    return Row(
        decision=answer["decision"],
        time=time,
        bandit_version=answer["bandit_version"],
        learner_version=answer["learner_version"],
        catalogue_version=answer["catalogue_version"],
        policy=answer["policy"],
        arms=arms,
        rewards=came,
        **fields,
    )
