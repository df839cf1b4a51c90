"""Long work takes turns: one at a time, what waits is let in between parts, and all can be told to stop."""

from __future__ import annotations

import threading

import pytest

from shortlist.index.cancellation import Cancellation, Cancelled

pytestmark = pytest.mark.rest

WAITERS = 5


def test_who_gives_way_lets_all_that_wait_in_and_nobody_works_beside_another():
    working, parts, together = [], [], []

    def work(name):
        with Cancellation().turn():
            working.append(name)
            parts.append(name)
            together.append(len(working))
            working.remove(name)

    long = Cancellation()
    threads = [threading.Thread(target=work, args=(name,)) for name in range(WAITERS)]
    with long.turn():
        for thread in threads:
            thread.start()
        while len(parts) < WAITERS:  # for ever, if the others are not let in
            working.append("long")
            together.append(len(working))
            working.remove("long")
            long.give_way()
    for thread in threads:
        thread.join()
    assert sorted(parts) == list(range(WAITERS))
    assert set(together) == {1}


def test_work_that_waits_can_be_told_to_stop_and_holds_nobody_back():
    waiting = Cancellation()
    with Cancellation().turn():
        waiting.cancel()
        with pytest.raises(Cancelled), waiting.turn():
            pytest.fail("two worked at once")
    with Cancellation().turn():
        pass


def test_work_that_is_told_to_stop_within_its_turn_ends_it():
    work = Cancellation()
    work.cancel()
    with pytest.raises(Cancelled), work.turn():
        work.give_way()
    with Cancellation().turn():
        pass
