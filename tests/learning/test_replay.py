"""A replay: what counts as equal to the state that is stored."""

from dataclasses import replace

import numpy as np
import pytest

from app.learning.replay import _is_equal
from app.records.records import LearnerState, state_to_bytes
from shortlist.linear import ridge_sums

STATE = LearnerState(3, replace(ridge_sums.empty(2), observations=3, weight=1.5), 4_000, 60.0)


@pytest.mark.parametrize(
    ("weight", "equal"), [(1.5, True), (3.0, True), (np.nextafter(1.5, 0), False), (float("nan"), False)]
)
def test_a_stored_state_may_weigh_more_than_the_log_says_and_not_less(weight: float, equal: bool) -> None:
    """Version 0.1.0 kept no weight, and it is taken for the number of observations."""
    stored = replace(STATE, sums=replace(STATE.sums, weight=weight))
    assert _is_equal(state_to_bytes(stored), STATE) is equal


def test_all_else_of_a_stored_state_is_compared_bit_for_bit() -> None:
    data = state_to_bytes(STATE)
    weight = range(40, 48)
    for place in [place for place in range(len(data)) if place not in weight]:
        changed = bytearray(data)
        changed[place] ^= 1
        assert not _is_equal(bytes(changed), STATE), place
    assert _is_equal(None, None)
    assert not _is_equal(None, STATE)
    assert not _is_equal(data, None)
    assert not _is_equal(b"unreadable", STATE)


@pytest.mark.rest
def test_a_stored_state_without_squares_is_that_of_a_log_which_has_them() -> None:
    """Until 0.1.0 none were kept, and they stay unknown."""
    known = replace(STATE, sums=replace(STATE.sums, squares=2.5))
    unknown = replace(STATE, sums=replace(STATE.sums, squares=float("nan")))
    assert _is_equal(state_to_bytes(unknown), known)
    assert not _is_equal(state_to_bytes(known), STATE)
