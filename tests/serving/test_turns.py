"""Choices of a key in turn: who waits too long is told, and who has left is not served."""

from __future__ import annotations

import pytest

from app.platform.deadlines import Caller, CallerLeft, set_caller
from app.platform.errors import Unavailable
from app.serving.turns import Turns
from app.storage.types import LearnerId

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ANN, BOB = LearnerId("b" * 16, "ann"), LearnerId("b" * 16, "bob")


async def test_a_turn_that_does_not_come_is_an_error_and_other_keys_go_on():
    turns = Turns(max_wait_s=0.0)
    async with turns.of(ANN), turns.of(BOB), turns.of(None), turns.of(None):
        with pytest.raises(Unavailable, match="of this key"):
            async with turns.of(ANN):
                pass
    async with turns.of(ANN):
        pass


async def test_who_left_in_the_queue_is_not_served_and_the_next_one_is():
    turns, caller = Turns(), Caller()
    caller.left = True
    set_caller(caller)
    with pytest.raises(CallerLeft):
        async with turns.of(ANN):
            pass
    set_caller(None)
    async with turns.of(ANN):
        pass
