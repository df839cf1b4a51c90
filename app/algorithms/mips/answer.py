"""What a one-shot search returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.algorithms.types import Rows, Vector

Objective = Literal["inner_product", "nearest"]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """``exact``: the best arms. ``pac``: with probability at least 1 - delta the k-th best arm returned is
    within epsilon of the k-th best of all, in units of a coordinate's mean. ``none``: ``reason`` says why.
    """

    kind: Literal["exact", "pac", "none"]
    epsilon: float | None = None
    delta: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Arms and what they cost. Shapes: rows (k,), values (k,), best first, ties in row order.

    ``values`` are inner products, or squared distances, in float64 over all coordinates. ``reads`` counts the
    coordinates of arms that were read, ``exhaustive_reads`` is n N; reads None: nobody counted.
    """

    rows: Rows
    values: Vector
    reads: int | None
    exhaustive_reads: int
    guarantee: Guarantee


VIOLATED = Guarantee("none", reason="a coordinate's term lies outside value_range")


def exactly(reason: str | None = None) -> Guarantee:
    """The guarantee of whoever compared everything."""
    return Guarantee("exact", 0.0, 0.0, reason)
