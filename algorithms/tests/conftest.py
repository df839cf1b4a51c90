"""What all tests of the library share: one core, and the same examples each time."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

# Hypothesis draws the same each time, however slow the machine is; `pytest --hypothesis-profile=other` draws
# others. As in tests/conftest.py: of a run with files of both, the last that is loaded holds for all.
SUPPRESSED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("same", deadline=None, suppress_health_check=SUPPRESSED, derandomize=True)
settings.register_profile("other", deadline=None, suppress_health_check=SUPPRESSED)
settings.load_profile("same")


@pytest.fixture(scope="session", autouse=True)
def one_core_for_each_product() -> Iterator[None]:
    """BLAS threads of several processes on few cores wait for each other."""
    with threadpool_limits(1):
        yield
