"""One way to search among vectors, as the benchmark of one-shot search compares them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from studies.experiments.coordinates import Single

Rows = NDArray[np.int64]
Find = Callable[[Single, int], "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """Rows found, products of numbers computed (None: not counted), guarantee and R in units of a mean."""

    rows: Rows
    reads: int | None
    kind: Literal["exact", "pac", "none"]
    epsilon: float | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """One way to search, after a preparation of ``build_s`` seconds; ``setting`` is what is swept."""

    name: str
    setting: float | str | None
    build_s: float
    find: Find
