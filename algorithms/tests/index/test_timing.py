"""Times are taken in turn, on a clock of our own: what slows the machine down leaves the ratio as it is."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.index import probes
from shortlist.index.probes import time_alternately, typical_us
from shortlist.types import TopK

pytestmark = pytest.mark.rest

SEARCH_S, EXACT_S = 100e-6, 400e-6


class Machine:
    """A clock, and searches that take their time on it: ``slowness`` times as long as on a quiet machine.

    Every tenth search is interrupted for 10 ms by another process.
    """

    def __init__(self, slowness):
        self.now, self.searches, self._slowness = 0.0, 0, slowness

    def clock(self):
        return self.now

    def search(self, seconds):
        def run(query):
            self.searches += 1
            self.now += seconds * self._slowness(self.now) + (self.searches % 10 == 0) * 10e-3
            return TopK(np.array([0]), np.array([query[0]]), exact=True)

        return run


@pytest.fixture
def machine(monkeypatch):
    def use(slowness):
        machine = Machine(slowness)
        monkeypatch.setattr(probes, "processor_clock", lambda: machine.clock)
        return machine

    return use


QUERIES = np.arange(1_000.0)[:, None]


@pytest.mark.parametrize("period_s", [0.3, 1.0, 5.0])
def test_the_ratio_of_times_is_that_of_a_quiet_machine(machine, period_s):
    """The machine is three times as slow every other ``period_s``, as beside another process."""
    busy = machine(lambda now: 3.0 if int(now / period_s) % 2 else 1.0)
    answers, us, exact_us = time_alternately(busy.search(SEARCH_S), busy.search(EXACT_S), QUERIES)
    assert exact_us / us == pytest.approx(4.0, rel=1e-6)
    assert 100.0 - 1e-6 <= us <= 300.0 + 1e-6
    assert [answer.scores[0] for answer in answers] == QUERIES[:, 0].tolist()


def test_one_after_the_other_would_be_wrong(machine):
    """The broken variant: the machine became busy after the first of the two was timed."""
    busy = machine(lambda now: 3.0 if now > 0.05 else 1.0)
    exact_us = typical_us(busy.search(EXACT_S), QUERIES[:20])
    us = typical_us(busy.search(SEARCH_S), QUERIES)
    assert exact_us / us < 1.5


@pytest.mark.parametrize(("tick_s", "name"), [(1e-7, "thread_time"), (1e-2, "perf_counter")])
def test_processor_time_is_used_where_its_clock_is_fine(monkeypatch, tick_s, name):
    calls = iter(range(1_000_000))
    monkeypatch.setattr(probes.time, "thread_time", lambda: next(calls) // 3 * tick_s)
    probes.processor_clock.cache_clear()
    try:
        assert probes.processor_clock() is getattr(probes.time, name)
    finally:
        probes.processor_clock.cache_clear()
