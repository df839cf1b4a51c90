"""No request keeps others waiting: the heaviest of every route, on a real service."""

from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from load_tests import many_quotas
from load_tests.heavy_log_requests import ALL_KINDS
from load_tests.heavy_requests import Kind
from load_tests.stalls import Measure, stalls

pytestmark = pytest.mark.rest

MOST_MS = 250.0  # where little else runs they wait for less than 100 ms: docs/measurements.md
TIMEOUT_S = 1_200


@pytest.fixture(scope="module")
def measure() -> Iterator[Measure]:
    with stalls() as measure:
        yield measure


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_no_request_keeps_others_waiting(measure: Measure, kind: Kind):
    """On a busy machine a wait may be long although the service does little: then its CPU time counts."""
    found = measure(kind.name, kind.make)
    assert found["status"] < 500
    assert min(found["wait_ms"], found["busy_ms"]) < MOST_MS, found


def test_every_kind_has_a_name_of_its_own():
    assert len({kind.name for kind in ALL_KINDS}) == len(ALL_KINDS)


def test_a_process_rests_once_it_has_used_little_for_a_while_and_is_ready():
    """An index that is ready works on in the background, pauses, and is built again."""
    window, needed = many_quotas.WINDOW_S, many_quotas.QUIET_WINDOWS
    cores = [0.965] * 40 + [0.0] * (needed - 1) + [0.5] * 3
    states = chain([False] * 5, repeat(True))
    found, used, windows = passed(chain(cores, repeat(0.01)), states)
    assert found
    assert (used, windows) == (pytest.approx(window * (sum(cores) + 0.01 * needed)), len(cores) + needed)
    most = round(many_quotas.SETTLE_S / window)
    assert passed(repeat(0.2), repeat(True))[::2] == (False, most)
    assert passed(repeat(0.0), repeat(False))[::2] == (False, most)


def passed(cores: Iterator[float], states: Iterator[bool]) -> tuple[bool, float, int]:
    """What ``settled`` says of a process with this work in each window; CPU time and windows by then."""
    used, windows = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal used, windows
        used, windows = used + seconds * next(cores), windows + 1

    return many_quotas.settled(lambda: next(states), lambda: used, sleep), used, windows
