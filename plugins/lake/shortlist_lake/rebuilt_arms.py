"""Rebuilds the sums of arms of a bandit with arm effects from its lake, as its learners are rebuilt.

An arm has the rewards of the bandit's newest catalogue and of its newest features in the lake. Contributions
of forgotten keys are not included. All rewards fade by the half-life of arms at the last export. If the
half-life was never changed and the lake has all rewards, the sums are those of the service, of all partitions
together, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shortlist.types import Vector
from shortlist_lake.files import Lake
from shortlist_lake.rebuild import BATCH_SIZE, counted, plan_of
from shortlist_service.learners import ArmSums

COLUMNS = (
    "partition", "number", "kind", "key", "arm", "revision", "value", "decided", "first", "before",
    "replaces", "examined", "signal_number", "had", "space", "expected", "weight", "age",
)  # fmt: skip

ARM_SUMS = pa.schema(
    [
        ("arm", pa.string()),
        ("revision", pa.int64()),
        ("decisions", pa.int64()),
        *((name, pa.float64()) for name in "nF"),
        *((name, pa.list_(pa.float64())) for name in "RQ"),
    ]
)


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write sums of arms as Parquet, with the columns of ``ARM_SUMS``."""
    pq.write_table(pa.table(dict(columns), schema=ARM_SUMS), path)


@dataclass(slots=True)
class _Rewards:
    """Rewards of one arm with its newest features, one row for each value added or taken away."""

    revision: int
    decided: list[int] = field(default_factory=list)
    begins: list[bool] = field(default_factory=list)
    examined: list[float] = field(default_factory=list)
    changes: list[Vector] = field(default_factory=list)  # of the surprise of each signal
    squares: list[Vector] = field(default_factory=list)  # of its square

    def sums(self, space: int, half_life_s: float) -> ArmSums:
        decided, begins = np.array(self.decided), np.array(self.begins)
        newest = int(decided.max()) if half_life_s else 0
        w = np.exp2((decided - newest) / (1_000.0 * half_life_s)) if half_life_s else np.ones(len(decided))
        weight = w * np.array(self.examined)
        count = max(map(len, self.changes))
        changes, squares = (
            np.array([np.pad(row, (0, count - len(row))) for row in rows])
            for rows in (self.changes, self.squares)
        )
        n = w * np.array(self.examined) ** 2
        return ArmSums(
            len(decided), int(begins.sum()), space, self.revision, newest,
            n=float(n @ begins), F=float(n**2 @ begins),
            R=tuple((weight @ changes).tolist()), Q=tuple((weight**2 @ squares).tolist()),
        )  # fmt: skip


def rebuilt_arms(lake: Lake) -> Mapping[str, ArmSums]:
    """The sums of the arms of a lake; empty of a bandit without arm effects.

    Cost: some ten microseconds for each reward, and as much memory as they take.
    """
    plan, arms = plan_of(lake), dict[str, _Rewards]()
    for name in lake.files("rewards"):
        for batch in lake.batches(name, BATCH_SIZE, COLUMNS):
            is_counted = counted(plan, batch).to_pylist()
            for row, counts in zip(batch.to_pylist(), is_counted, strict=True):
                if row["expected"] is None or (row["space"] or 0) != plan.space:
                    continue
                rewards = arms.get(row["arm"])
                if rewards is None or rewards.revision < row["revision"]:
                    rewards = arms[row["arm"]] = _Rewards(row["revision"])
                if counts and rewards.revision == row["revision"]:
                    _add(rewards, row)
    return {
        arm: rewards.sums(plan.space, plan.arm_half_life_s)
        for arm, rewards in arms.items()
        if any(rewards.begins)
    }


def _add(rewards: _Rewards, row: Mapping[str, Any]) -> None:
    root = 1.0 if row["weight"] is None else math.sqrt(row["weight"])
    examined = root * (1.0 if row["examined"] is None else row["examined"])
    for value, earlier, begins in ((root * v, root * former, begins) for v, former, begins in _changes(row)):
        expected = np.zeros(len(value))
        # With what the age of the arm added: an effect is what neither features nor age say.
        expected[: len(row["expected"])] = np.array(row["expected"]) + (row["age"] or 0.0)
        # What was expected is taken off once: with the first value of the decision.
        surprise = np.zeros(len(value)) if begins else earlier - examined * expected
        change = value - examined * expected if begins else value
        rewards.decided.append(round(row["decided"].timestamp() * 1_000.0))
        rewards.begins.append(begins)
        rewards.examined.append(examined)
        rewards.changes.append(change)
        rewards.squares.append((surprise + change) ** 2 - surprise**2)


def _changes(row: Mapping[str, Any]) -> Iterator[tuple[Vector, Vector, bool]]:
    """The value added by a row, the value before, and whether the row is the first of its decision.
    Shapes: (J,).
    """
    if row["had"] is None:  # of a bandit without signals
        if row["replaces"] is not None:
            replaced = np.array([row["replaces"]])
            yield -replaced, replaced, False
        yield np.array([row["value"]]), np.array([row["before"]]), row["first"]
        return
    number = row["signal_number"]
    earlier = np.zeros(max(len(row["expected"]), len(row["had"]), 1 + (number or 0)))
    earlier[: len(row["had"])] = row["had"]
    added = np.zeros(len(earlier))
    if row["first"]:
        added[:] = earlier
        if number is not None:
            added[number] = row["value"]
        yield added, np.zeros(len(earlier)), True
    elif number is not None:
        if row["replaces"] is not None:
            taken_back = np.zeros(len(earlier))
            taken_back[number] = -row["replaces"]
            yield taken_back, earlier, False
            earlier = earlier + taken_back
        added[number] = row["value"]
        yield added, earlier, False
