"""Fixtures for every test that needs a store: one for the run, emptied before each test."""

import gc
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from app.platform.metrics import Metrics
from app.platform.settings import Settings
from app.storage.store import Store
from clock_shim import Clocks
from headless_service import PATIENT, HeadlessService
from lossy_store import LossyStore
from server.composition import Service
from store_clients import connect, flush
from store_server import patient_store, store_server

# Hypothesis draws the same each time, however slow the machine is; `pytest --hypothesis-profile=other` draws
# others. Examples may share a fixture: tests that do so empty it themselves.
SUPPRESSED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("same", deadline=None, suppress_health_check=SUPPRESSED, derandomize=True)
settings.register_profile("other", deadline=None, suppress_health_check=SUPPRESSED)
settings.load_profile("same")

# The stores write each change to the disk before they answer, and no test looks at what a machine that lost
# its power has kept: in memory, where it is possible, nobody waits for a disk.
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 4 << 30


def has_room_in_memory() -> bool:
    """Whether files in memory are possible, may be libraries, and have enough room."""
    return (
        os.access(MEMORY, os.W_OK)
        and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(MEMORY).free > MEMORY_BYTES
    )


if has_room_in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# By what they take, ten seconds of a processor and more; then all of these folders.
LONGEST_FILES = (
    "test_console_pages.py",
    "test_console_questions.py",
    "test_faults.py",
    "test_code_blocks.py",
    "test_lake.py",
    "test_whole_service.py",
    "test_quotas_of_several.py",
    "test_replicas.py",
    "test_evaluations.py",
    "test_openapi.py",
    "test_policy_contract.py",
)
LONGEST_FOLDERS = {"processes", "console", "workers"}


def starts_at(item: pytest.Item) -> int:
    """The files that take longest come first: no core is left waiting for one of them at the end."""
    if item.path.name in LONGEST_FILES:
        return LONGEST_FILES.index(item.path.name)
    return len(LONGEST_FILES) + (item.path.parent.name not in LONGEST_FOLDERS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=starts_at)


def pytest_collection_finish() -> None:
    """As the service does at its start: what is loaded now stays, so collections need not look at it."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def one_core_for_each_product() -> Iterator[None]:
    """As the service does: BLAS threads of several processes on few cores wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def clocks_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Clocks:
    return Clocks(tmp_path_factory.mktemp("clocks"))


@pytest.fixture
def clocks(clocks_of_the_run: Clocks) -> Iterator[Clocks]:
    """Clocks that show the true time. All tests have the same: their processes are forked from one."""
    yield clocks_of_the_run
    clocks_of_the_run.jump_to(0)


@pytest.fixture(scope="session")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that lives as long as the test run; what it holds is whatever tests left there."""
    with store_server(tmp_path_factory.mktemp("store")) as url:
        yield url


@pytest.fixture(scope="session")
def shared_store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Another server, for an application that a module shares.

    On the store of ``store_url`` it would take half of the partitions from the application of each test, and
    look for their rewards only now and then: whoever waits for them would wait for half a second.
    """
    with store_server(tmp_path_factory.mktemp("shared-store")) as url:
        yield url


@pytest.fixture(scope="session")
def milvus_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Milvus that lives as long as the test run."""
    from milvus_engines import engine_of  # noqa: PLC0415 - `make test` has no Milvus

    with engine_of(tmp_path_factory.mktemp("milvus")) as engine:
        yield engine


@pytest.fixture(scope="session")
def milvus_uri(milvus_engine: Any) -> str:
    return str(milvus_engine.uri)


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An open, empty store (``@pytest.mark.anyio``)."""
    async with connect(store_url) as client:
        await flush(client)
    store = patient_store(store_url)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


@pytest.fixture
async def service(store: Store, tmp_path: Path) -> AsyncIterator[HeadlessService]:
    """A started service with a catalogue ``c``, without its HTTP face, over an empty store."""
    lossy: Any = LossyStore(store)
    settings = Settings(redis_url="unix:///not-used", data_dir=tmp_path)
    parts = Service(settings, lossy, Metrics(), pauses=PATIENT)
    await parts.start()
    service = HeadlessService(parts, lossy)
    await service.catalogue()
    yield service
    lossy.refuse.clear()
    lossy.hold.clear()
    await parts.stop()
