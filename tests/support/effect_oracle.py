"""What arms and keys must have learned, from the entries of an exported reward log: decision by decision.

The last value of each decision and arm counts, so nothing here knows how values replace one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Json = dict[str, Any]


@dataclass
class Judged:
    """A decision and arm: what came of each signal in the end."""

    entry: Json
    values: list[float] = field(default_factory=list)


def judged(entries: Iterable[Json]) -> list[Judged]:
    """Every decision and arm, or observation, with its last values. Forgotten keys have none."""
    found = dict[tuple[str, str, str], Judged]()
    for entry in entries:
        if entry["kind"] == "forget":
            found = {name: each for name, each in found.items() if name[0] != entry["key"]}
        elif entry["kind"] in {"reward", "default", "observation"}:
            name = entry["key"], entry["id"], entry["arm"]
            signal = entry["signal_number"]
            if name not in found:
                values = [entry["value"]] if entry["had"] is None else list(entry["had"])
                found[name] = Judged(entry, values)
                if entry["had"] is None or signal is None:
                    continue
            own = found[name]
            place = signal or 0
            own.values += [0.0] * (place + 1 - len(own.values))
            if entry["first"] or entry["replaces"] is not None:
                own.values[place] = entry["value"]
            else:
                own.values[place] += entry["value"]
    return list(found.values())


def arm_sums(
    decisions: Iterable[Judged], revisions: Mapping[str, int], *, signals: int = 1, half_life_s: float = 0.0
) -> dict[str, np.ndarray]:
    """n, F, then R and then Q of each signal, of arms with these features. ``half_life_s``: 0: none."""
    rows = [
        each
        for each in decisions
        if each.entry["expected"] is not None and each.entry["revision"] == revisions.get(each.entry["arm"])
    ]
    newest, sums = dict[str, int](), dict[str, np.ndarray]()
    for each in rows:
        newest[each.entry["arm"]] = max(each.entry["decided"], newest.get(each.entry["arm"], 0))
    for each in rows:
        entry = each.entry
        root, w = (entry.get("weight") or 1.0) ** 0.5, 1.0
        p = root * (entry["examined"] or 1.0)
        if half_life_s:
            w = 0.5 ** ((newest[entry["arm"]] - entry["decided"]) / 1_000.0 / half_life_s)
        y = np.zeros(signals)
        y[: len(each.values)] = each.values
        y *= root
        rho = y - p * (np.array(entry["expected"]) + (entry.get("age") or 0.0))
        own = np.concatenate(([w * p**2, (w * p**2) ** 2], w * p * rho, (w * p * rho) ** 2))
        sums[entry["arm"]] = sums.get(entry["arm"], 0.0) + own
    return sums


def key_moments(
    decisions: Iterable[Judged], features: Mapping[str, np.ndarray], key: str, *, signals: int = 1
) -> np.ndarray:
    """Sum p x (y - p effect) of a key, of each signal: (J, D)."""
    found = np.zeros((signals, len(next(iter(features.values())))))
    for each in decisions:
        if each.entry["key"] == key:
            root, y = (each.entry.get("weight") or 1.0) ** 0.5, np.zeros(signals)
            p = root * (each.entry["examined"] or 1.0)
            y[: len(each.values)] = each.values
            y *= root
            if each.entry["effect"] is not None:
                y -= p * np.array(each.entry["effect"])
            found += np.outer(y, p * features[each.entry["arm"]])
    return found
