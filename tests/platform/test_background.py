"""Tasks end when they are told to, also when the first telling gets lost."""

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE

import pytest

from app.platform import background
from app.platform.errors import Unavailable
from service_process import environment

pytestmark = pytest.mark.anyio


async def test_all_have_ended_and_those_that_had_are_left_alone() -> None:
    over = asyncio.ensure_future(asyncio.sleep(0))
    await over
    waiting = [asyncio.ensure_future(asyncio.Event().wait()) for _ in range(3)]
    await background.end([over, *waiting])
    assert [task.cancelled() for task in (over, *waiting)] == [False, True, True, True]
    await background.end([])


def test_an_outage_is_logged_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outages = background.OutageLog(lambda: now)
    for tenth in range(1, 1_300):
        outages.warn("rewards wait", Unavailable("the store does not answer"))
        now = tenth / 10.0
    sentence = "the store is not available, rewards wait: the store does not answer"
    more = " (599 more such warnings since the last one)"
    assert caplog.messages == [sentence, sentence + more, sentence + more]


@pytest.mark.rest
async def test_a_cancellation_that_gets_lost_is_asked_for_again() -> None:
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while lost < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1

    task = asyncio.ensure_future(deaf())
    await asyncio.sleep(0)
    await background.end([task], patience_s=0.001)
    assert task.done()
    assert lost == 3


INSERTING = """
import sys, threading
import hnswlib, numpy as np
from app.platform.background import leave

def insert(seed):
    index = hnswlib.Index(space="ip", dim=16)
    index.init_index(1_000_000)
    arms = np.random.default_rng(seed).standard_normal((1_000_000, 16), dtype=np.float32)
    for start in range(0, 1_000_000, 20):
        index.add_items(arms[start : start + 20], np.arange(start, start + 20), num_threads=1)
        if start == 1_000:
            begun.release()

begun = threading.Semaphore(0)
for seed in range(4):
    threading.Thread(target=insert, args=(seed,), daemon=True).start()
for seed in range(4):
    begun.acquire()
print("stopped")
"""


@pytest.mark.rest
@pytest.mark.parametrize(("end", "status"), [("leave()", 0), ("sys.exit(0)", -signal.SIGABRT)])
async def test_a_process_ends_while_threads_build_graphs(end: str, status: int) -> None:
    """The threads come back from C++ every few milliseconds; the ordinary end of an interpreter aborts."""
    words = (sys.executable, "-c", INSERTING + end)
    process = await asyncio.create_subprocess_exec(*words, env=environment(), stdout=PIPE, stderr=DEVNULL)
    async with asyncio.timeout(60.0):
        out, _ = await process.communicate()
    assert (process.returncode, out) == (status, b"stopped\n")


@pytest.mark.rest
async def test_a_job_rests_as_long_as_its_share_of_the_time_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now, rests = 100.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        rests.append(seconds)
        now += seconds

    monkeypatch.setattr(background.time, "monotonic", lambda: now)
    monkeypatch.setattr(background.asyncio, "sleep", sleep)
    pace = background.Pace(0.25)
    for took_s in (0.01, 0.02, 7.0):
        now += took_s
        await pace.rest()
    assert rests == pytest.approx([0.03, 0.06, background.LONGEST_REST_S])
