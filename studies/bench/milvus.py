"""`shortlist bench milvus`: a choice from a catalogue in Milvus beside a bare search, and what it holds.

Notation
    K, d        number of arms, 300,000; 64, Gaussian with log-normal lengths
    callers     requests that are under way at a time

A service runs with Milvus Lite as its child or, where SHORTLIST_MILVUS_URI is an address, with that
Milvus. Then its choices (HTTP, a draw, the search, features from the store, scores in float64) and bare
searches of the same engine by pymilvus (the same collection, limit, output fields, consistency and ``ef``,
queries of the same kind) take turns, block by block. Times are medians of blocks of both, in milliseconds;
``times_bare`` is their ratio. Choices are asked for by a bare HTTP client: httpx would take a core for 1.5 ms
more, which is neither of the service nor of the engine. ``held_mb``: what the service holds more than it did
empty, with the extra loaded; ``engine_mb``: what Milvus Lite holds.

At last changes are written for ten seconds, ``changes_per_s`` if that is possible.
``changes_written``: how many a second were; ``most_pending``: how many the engine lacked at most;
``behind_s``: how long after the last write it lacked some. Needs the extra `milvus`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from pymilvus import AsyncMilvusClient

from shortlist_client import Client
from shortlist_client.progress import progress
from shortlist_milvus.embedded_engine import is_embedded
from studies.measurement import report

DIM, TOGETHER = 64, 2_000
CALLERS = (1, 8)
CHANGES_PER_S, BATCH = 2_000, 200
K = 10
SEED = 2026
START_S, FOLLOWED_S = 60.0, 600.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``block``: calls of a block. ``follow_s``: how long changes are written."""

    arms: int = 300_000
    blocks: int = 5
    block: int = 32
    follow_s: float = 10.0


WHOLE, QUICK = Sizes(), Sizes(arms=20_000, blocks=3)


def run(quick: bool, sizes: Sizes | None = None) -> dict[str, Any]:
    """Fill a service, and measure it and the engine; a row for each number of callers."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        service = _Service(Path(folder))
        try:
            rows = service.measured(sizes or (QUICK if quick else WHOLE))
        finally:
            service.stop()
    return report("milvus", rows, seed=SEED)


class _Service:
    """`shortlist serve` in a folder, with an engine of its own unless the environment names one."""

    def __init__(self, folder: Path) -> None:
        setting = os.environ.get("SHORTLIST_MILVUS_URI", "")
        self._is_embedded = not setting or is_embedded(setting)
        self._uri = f"unix:{folder / 'arms' / 'engine.sock:0'}" if self._is_embedded else setting
        self._log = folder / "log"
        uri = str(folder / "arms") if self._is_embedded else setting
        environment = {"SHORTLIST_MILVUS_URI": uri, "SHORTLIST_LOG_FORMAT": "text"}
        command = [sys.executable, "-c", "from server.cli import main; main()", "serve", "--port", "0"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - all arguments are our own
                [*command, "--data-dir", str(folder / "data")], env=_with(environment), stderr=log
            )
        self.url = self._address()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def measured(self, sizes: Sizes) -> list[dict[str, Any]]:
        with Client(self.url) as client:
            client.put_catalogue("c", dim=DIM, index={"kind": "milvus"})
            client.put_bandit("b", catalogue="c", policy="sub_ts")
            client.upsert_arms("c", np.ones((1, DIM)), ids=["first"])
            empty = _resident_mb(self._process.pid)
            began = time.monotonic()
            _fill(client, sizes.arms)
            index = _followed(client)
            filled_s = time.monotonic() - began
            rows = [asyncio.run(_compared(self.url, self._uri, index, callers, sizes)) for callers in CALLERS]
            held = _resident_mb(self._process.pid) - empty
            engine = _resident_mb(_engine_of(self._process.pid)) if self._is_embedded else None
            common = {"K": sizes.arms, "held_mb": held, "engine_mb": engine}
            common["arms_per_s"] = sizes.arms / filled_s
            common |= _kept_up(client, sizes)
            client.delete_bandit("b")
            client.delete_catalogue("c")
        return [
            {**row, **common, "recall_at_1": index["recall_at_1"], "ef": index["ef_search"]} for row in rows
        ]

    def _address(self) -> str:
        ends = time.monotonic() + START_S
        while time.monotonic() < ends and self._process.poll() is None:
            words = self._log.read_text("utf-8", "replace").split()
            if address := next((word for word in words if word.startswith("http://")), None):
                return address
            time.sleep(0.05)
        raise RuntimeError(self._log.read_text("utf-8", "replace"))


def _fill(client: Client, arms: int) -> None:
    rng = np.random.default_rng(SEED)
    for first in progress(range(0, arms, TOGETHER), "arms, by 2,000"):
        rows = rng.normal(size=(TOGETHER, DIM)) * rng.lognormal(sigma=0.3, size=(TOGETHER, 1))
        client.upsert_arms("c", rows, ids=[f"arm-{first + row}" for row in range(TOGETHER)])


def _followed(client: Client) -> Mapping[str, Any]:
    """The index once the engine has every arm, and recall was measured: with the graph, if that is built in
    time.
    """
    ends = time.monotonic() + FOLLOWED_S
    while True:
        catalogue = client.get_catalogue("c")
        index: Mapping[str, Any] = catalogue.index
        is_late = time.monotonic() > ends
        is_followed = not index["pending"] and not index["overlay"]
        if is_followed and 1.5 * index["measured_arms"] > catalogue.size:
            if is_late or index["recall_at_1"] >= index["target_recall"]:
                return index
        elif is_late:
            raise RuntimeError("the engine does not come to have every arm")
        time.sleep(0.5)


def _kept_up(client: Client, sizes: Sizes) -> dict[str, float]:
    """How the follower keeps up with changes that come at a steady rate."""
    rng = np.random.default_rng(SEED + 1)
    began, written, most = time.monotonic(), 0, 0
    while (now := time.monotonic()) - began < sizes.follow_s:
        if written > CHANGES_PER_S * (now - began):
            time.sleep(0.01)
            continue
        ids = [f"arm-{number}" for number in rng.choice(sizes.arms, BATCH, replace=False).tolist()]
        client.upsert_arms("c", rng.normal(size=(BATCH, DIM)), ids=ids)
        written += BATCH
        most = max(most, client.get_catalogue("c").index["pending"])
    ended = time.monotonic()
    while client.get_catalogue("c").index["pending"] and time.monotonic() - ended < FOLLOWED_S:
        time.sleep(0.05)
    return {
        "changes_per_s": CHANGES_PER_S,
        "changes_written": written / (ended - began),
        "most_pending": most,
        "behind_s": time.monotonic() - ended,
    }


async def _compared(
    url: str, uri: str, index: Mapping[str, Any], callers: int, sizes: Sizes
) -> dict[str, Any]:
    rng = np.random.default_rng(SEED + callers)
    engine = AsyncMilvusClient(uri)
    parameters = {"metric_type": "IP", "params": {"ef": index["ef_search"]}}

    async def bare(_: int) -> None:
        query = rng.normal(size=(1, DIM)).astype(np.float32)
        await engine.search(
            index["collection"],
            data=list(query),
            limit=32,
            search_params=parameters,
            consistency_level="Bounded",
        )

    async with AsyncExitStack() as connections:
        services = [await connections.enter_async_context(connected(url)) for _ in range(callers)]

        async def choice(caller: int) -> None:
            status, answer = await ask(services[caller], "POST", "/v1/bandits/b/choose", b'{"k": %d}' % K)
            if status != 200:
                raise RuntimeError(f"a choice was answered {status}: {answer!r}")

        times: dict[str, list[float]] = {"bare": [], "choose": []}
        spans = {"bare": 0.0, "choose": 0.0}
        for block in range(sizes.blocks + 1):
            for name, call in (("bare", bare), ("choose", choice)):
                began = time.perf_counter()
                found = await _timed(call, callers, sizes.block)
                if block:  # the first one warms up
                    times[name] += found
                    spans[name] += time.perf_counter() - began
    await engine.close()
    bare_ms, choose_ms = (1e3 * float(np.median(times[name])) for name in ("bare", "choose"))
    return {
        "callers": callers,
        "bare_ms": bare_ms,
        "choose_ms": choose_ms,
        "times_bare": choose_ms / bare_ms,
        "bare_per_s": len(times["bare"]) / spans["bare"],
        "choose_per_s": len(times["choose"]) / spans["choose"],
    }


async def _timed(call: Callable[[int], Awaitable[None]], callers: int, calls: int) -> list[float]:
    """Seconds of each of the calls, so many at a time. ``call`` is told which caller it is of."""
    times: list[float] = []

    async def caller(number: int) -> None:
        for _ in range(calls // callers):
            began = time.perf_counter()
            await call(number)
            times.append(time.perf_counter() - began)

    await asyncio.gather(*map(caller, range(callers)))
    return times


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """A connection to a service, which stays open."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ask(connection: Connection, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """The status of the answer, and its body."""
    reader, writer = connection
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
    (size,) = (int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(size)


def _with(variables: dict[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("SHORTLIST_")}
    return {**own, **variables}


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1_024


def _engine_of(pid: int) -> int:
    words = ["pgrep", "-f", "-P", str(pid), "run_engine.py"]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0])  # noqa: S603
