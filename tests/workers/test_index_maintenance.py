"""The loop that keeps indexes in shape: one failure rests, the others go on, and a stop is at once."""

import asyncio
import logging
import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from app.platform.metrics import Metrics
from app.platform.pauses import Pauses
from waiting import wait_until
from workers import index_maintenance

pytestmark = pytest.mark.anyio


class Job:
    def __init__(self, run: Any) -> None:
        self.run = run
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Index:
    """An index that has the same job due until it is finished, and remembers what was asked of it."""

    def __init__(self, run: Any) -> None:
        self.due: Any = Job(run)
        self.begun = self.looks = 0
        self.finished: list[Any] = []
        self.failures: dict[str, str] = {}
        self.settles_at = math.inf

    def begin_maintenance(self) -> Any:
        self.begun += self.due is not None
        self.looks += 1
        return self.due

    def finish(self, job: Any, error: Exception | None) -> None:
        assert job is self.due
        self.finished.append(job)
        if error is None:
            self.failures.pop(type(job).__name__, None)
        else:
            self.failures[type(job).__name__] = f"{type(error).__name__}: {error}"

    def begin_measurement(self) -> Any:
        return None

    def begin_sharing(self) -> Any:
        return None

    def status(self) -> Any:
        return SimpleNamespace(kind="exact", recall_at_1=1.0)

    def __len__(self) -> int:
        return 0


def catalogue(name: str, run: Any) -> Any:
    index = Index(run)
    return SimpleNamespace(name=name, uid=name, index=index, in_memory=index)


@pytest.mark.rest
async def test_one_failure_rests_and_the_others_go_on(caplog: pytest.LogCaptureFixture):
    eager = Pauses(index_poll_s=0.001)

    def fail() -> None:
        raise ValueError("broken")

    bad, good = catalogue("bad", fail), catalogue("good", lambda: None)
    metrics = Metrics()

    def outcomes(outcome: str) -> float:
        labels = {"outcome": outcome}
        return metrics.registry.get_sample_value("shortlist_index_maintenance_total", labels) or 0

    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(index_maintenance.run([bad, good], metrics, eager))

        async def went_on() -> bool:
            return outcomes("done") >= 20

        await wait_until(went_on, what="the good one is maintained again and again")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert bad.index.begun == 1
    assert (bad.index.failures, good.index.failures) == ({"Job": "ValueError: broken"}, {})
    assert bad.index.finished == [bad.index.due]
    assert outcomes("failed") == 1
    assert len([record for record in caplog.records if "bad" in record.message]) == 1
    restless = Pauses(index_poll_s=0.001, index_rest_s=0.0)
    task = asyncio.create_task(index_maintenance.run([bad], metrics, restless))

    async def again() -> bool:
        return outcomes("failed") >= 3

    await wait_until(again, what="it is tried again after its rest")
    task.cancel()


@pytest.mark.rest
async def test_a_catalogue_that_has_settled_is_not_looked_at_until_it_changes():
    quiet, restless = catalogue("quiet", None), catalogue("restless", None)
    quiet.index.due = restless.index.due = None
    quiet.index.settles_at = 0.0
    eager = Pauses(index_poll_s=0.001, index_idle_s=0.001)
    task = asyncio.create_task(index_maintenance.run([quiet, restless], Metrics(), eager))

    async def looked_often() -> bool:
        return bool(restless.index.looks >= 20)

    await wait_until(looked_often, what="the other one is looked at again and again")
    assert quiet.index.looks == 1
    quiet.index.settles_at = math.inf

    async def looked_again() -> bool:
        return bool(quiet.index.looks >= 3)

    await wait_until(looked_again, what="it is looked at again after a change")
    task.cancel()


async def test_a_catalogue_that_changes_while_it_is_looked_at_is_looked_at_again():
    changed, restless = catalogue("changed", None), catalogue("restless", None)
    changed.index.due = restless.index.due = None
    changed.index.settles_at = 0.0

    def begin_maintenance() -> None:
        changed.index.looks += 1
        changed.index.settles_at = time.monotonic()

    changed.index.begin_maintenance = begin_maintenance
    eager = Pauses(index_poll_s=0.001, index_idle_s=0.001)
    task = asyncio.create_task(index_maintenance.run([changed, restless], Metrics(), eager))

    async def looked_often() -> bool:
        return bool(restless.index.looks >= 5)

    await wait_until(looked_often, what="the other one is looked at again and again")
    assert changed.index.looks > 1
    task.cancel()
