"""No request keeps others waiting: the heaviest of every route, on a real service."""

from collections.abc import Iterator

import pytest

from load_tests.heavy_log_requests import ALL_KINDS
from load_tests.heavy_requests import Kind
from load_tests.stalls import Measure, stalls

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
