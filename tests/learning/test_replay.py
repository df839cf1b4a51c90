"""A replay: what counts as equal to the state that is stored."""

from dataclasses import replace

import numpy as np
import pytest

from app.learning.replay import _is_equal, compare
from app.records.records import LearnerState, state_to_bytes
from headless_service import HeadlessService
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


@pytest.mark.rest
@pytest.mark.anyio
async def test_learners_that_change_between_two_pages_are_read_again(service: HeadlessService) -> None:
    await service.catalogue()
    bandit, partitions = await service.bandit(), service.store.partitions
    keys = [
        key
        for key in (f"k{number}" for number in range(20 * partitions))
        if bandit.learner_for(key).partition(partitions) == 0
    ]
    *keys, late = keys[:8]
    for key in keys:
        await service.observe(bandit, "one", key=key)
    forget = service.parts.forgetting.forget

    async def change_all() -> None:
        for key in (*keys, late):
            await service.observe(bandit, "two", key=key)
        service.store.before["learners.stored"] = forget_first

    async def forget_first() -> None:
        await forget(bandit.learner_for(keys[0]))
        service.store.before["learners.stored"] = forget_second

    async def forget_second() -> None:
        await forget(bandit.learner_for(keys[1]))
        await service.observe(bandit, "three", key=keys[2])

    async def first() -> None:
        service.store.before["learners.stored"] = change_all

    await service.quiet()
    service.store.before["learners.stored"] = first
    found = await compare(service.parts.store)
    assert not service.store.before, "the first page is one learner, and every change is asked for"
    assert (found.different, found.older) == ([], 0)
    assert found.equal == len(keys) + 1 - 2
