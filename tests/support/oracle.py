"""Second implementations, written to be plain: the estimates and searches that the service must come to.

``ridge_of`` solves for all rewards of a learner at once; ``best_rows`` looks at every arm. ``judged`` and the
rest compute what arms and keys must have learned from an exported reward log, decision by decision: the
last value of each counts, so nothing there knows how values replace one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Json = dict[str, Any]
Features = Sequence[float]


def ridge_of(
    rows: Any, values: Any, weights: Any = 1.0, *, ridge: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """V = ridge I + X^T W X, and theta = V^-1 X^T W r."""
    X = np.asarray(rows, dtype=float)
    weighed = X.T * np.broadcast_to(weights, len(X))
    precision = ridge * np.eye(X.shape[1]) + weighed @ X
    return precision, np.linalg.solve(precision, weighed @ np.asarray(values, dtype=float))


def ridge_estimate(
    rows: Sequence[tuple[Features, float]], weights: Sequence[float] | None = None
) -> list[float]:
    """Theta of (features, reward), for a ridge of 1. ``weights``: 1 each by default."""
    X, values = [x for x, _ in rows], [reward for _, reward in rows]
    return list(ridge_of(X, values, 1.0 if weights is None else weights)[1])


def best_rows(features: np.ndarray, rows: Any, query: np.ndarray, k: int | None = None) -> list[int]:
    """The ``k`` of these rows with the highest products, of equal ones those of the lowest rows."""
    among = np.asarray(list(rows), dtype=int)
    return among[np.lexsort((among, -(features[among] @ query)))][:k].tolist()


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
