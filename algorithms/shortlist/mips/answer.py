"""The answer of a one-shot search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shortlist.guarantee import Guarantee
from shortlist.types import Rows, Vector

Objective = Literal["inner_product", "nearest"]
VIOLATED = Guarantee("none", reason="a coordinate's term lies outside value_range")


@dataclass(frozen=True, slots=True)
class Answer:
    """Arms and what they cost. Shapes: rows (k,), values (k,), best first, ties in row order.

    ``values`` are inner products, or squared distances, in float64 over all coordinates. ``reads`` counts the
    coordinates of arms that were read, None if they were not counted; ``exhaustive_reads`` is n N. The
    guarantee's epsilon bounds how far the mean of the k-th arm, its value / N, is from the k-th best one.
    """

    rows: Rows
    values: Vector
    reads: int | None
    exhaustive_reads: int
    guarantee: Guarantee
