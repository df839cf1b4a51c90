"""What a service leaves behind when it stops: nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.platform.metrics import Metrics
from app.platform.settings import Settings
from app.queries.mips import Mips
from app.storage.store import Store
from headless_service import PATIENT
from server.application import PLUGIN_ROUTES
from server.composition import Service
from shortlist_campaigns.campaigns import Campaigns

pytestmark = [pytest.mark.anyio, pytest.mark.rest]
OURS = {"app", "server", "shortlist_campaigns", "workers"}


@pytest.fixture
def service(store: Store, tmp_path: Path) -> Service:
    settings = Settings(redis_url="unix:///not-used", data_dir=tmp_path)
    return Service(settings, store, Metrics(), pauses=PATIENT, routes=PLUGIN_ROUTES)


def parts(whole: object) -> Iterator[object]:
    """Every object of this project that an object holds, itself or in one of these."""
    seen, left = set(), [whole]
    while left:
        found = left.pop()
        if id(found) in seen or type(found).__module__.partition(".")[0] not in OURS:
            continue
        seen.add(id(found))
        yield found
        slots = [name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())]
        left += [*getattr(found, "__dict__", {}).values(), *(getattr(found, name, None) for name in slots)]


def closable(service: Service) -> list[Any]:
    return [part for part in parts(service) if callable(getattr(part, "close", None))]


def record_closing(monkeypatch: pytest.MonkeyPatch, kinds: set[type]) -> list[int]:
    """Record the id of every object of these types that is closed."""
    closed: list[int] = []
    for kind in kinds:

        def close(self: object, *, original: Any = kind.close) -> Any:
            closed.append(id(self))
            return original(self)

        monkeypatch.setattr(kind, "close", close)
    return closed


async def test_everything_that_can_be_closed_is_closed(service: Service, monkeypatch: pytest.MonkeyPatch):
    found = [part for part in closable(service) if part is not service.store]
    kinds = {type(part) for part in found}
    assert {Campaigns, Mips} <= kinds
    assert len(found) > 10  # services, and what they compute with
    closed = record_closing(monkeypatch, kinds)
    await service.start()
    await service.stop()
    assert {id(part) for part in found} == set(closed)


async def test_no_task_and_no_thread_of_a_service_outlives_it(service: Service):
    tasks, others = asyncio.all_tasks(), set(threading.enumerate())
    await service.start()
    for campaigns in (service.slates, service.center_campaigns):
        await campaigns._compute(threading.get_ident)  # private: starts the thread that a campaign starts
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("long-work")]
    threads = [thread for thread in threads if thread not in others]
    assert len(threads) == 2
    await service.stop()
    assert asyncio.all_tasks() == tasks
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


async def test_what_cannot_be_closed_keeps_nothing_else_from_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    await service.start()
    found = [part for part in closable(service) if part is not service.store]
    closed = record_closing(monkeypatch, {type(part) for part in found})

    def fail() -> None:
        raise RuntimeError

    monkeypatch.setattr(service.sampling, "close", fail)
    with pytest.raises(RuntimeError):
        await service.stop()
    left = {type(part).__name__ for part in found if id(part) not in closed}
    assert left == {"Sampling", "LongWork"}
