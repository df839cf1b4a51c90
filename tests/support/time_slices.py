"""The slice of time that long loops share: none of it left, for tests of what goes on between two steps."""

import time
from itertools import count

import pytest

from app.platform import deadlines

STEP_S = 10 * deadlines.SLICE_S


def let_no_time_be_left(patch: pytest.MonkeyPatch) -> None:
    """Every look at the clock finds it later by several slices: each step is a long one."""
    patch.setattr(deadlines._Slice, "ends", 0.0)
    clock = count(time.perf_counter(), STEP_S)
    patch.setattr(time, "perf_counter", lambda: next(clock))
