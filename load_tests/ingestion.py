"""How fast rewards come in and are learned from, beside what the store and the arithmetic allow.

    python -m load_tests.ingestion [--quick] [--json FILE]

    ingest   observations over HTTP in batches of 500, until applied, beside raw pipelined XADD of entries of
             the same size on the same server, in turns
    apply    a worker over a log that is already there, beside the fold alone on the same entries: both
             by the second of their own CPU. Beside it, by the second of the worker's and the store's CPU
             together (``with_store_per_s``), and by the clock (``clock_per_s``), which shares the machine

Every server syncs its append-only file before it answers. What counts are the ratios within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import redis

from app.fold.fold import fold
from app.records.log_entries import RewardEntry, decoded_all, encode
from app.records.records import vector_to_bytes
from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from app.storage.types import LearnerId, LogEntry, RewardWrite
from examples.service import temporary_service
from shortlist_client import Client
from shortlist_client.routes import OBSERVE
from studies.measurement import report
from workers.reward_ingestion import RewardWorker

DIM, ARMS, KEYS, BATCH = 32, 1_000, 100, 500
ROUNDS, ENTRIES = 5, 20_000
UID = "0123456789abcdef"
TTL_MS = 600_000
SEED = 1


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.ingestion", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer, shorter rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and every ratio")
    parsed = parser.parse_args(arguments)
    rounds, entries = (2, 4_000) if parsed.quick else (ROUNDS, ENTRIES)
    result = report("ingestion", [_ingest(rounds, entries), _apply(rounds, entries)], seed=SEED)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _ingest(rounds: int, entries: int) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="shortlist-load-") as folder,
        EmbeddedServer(Path(folder)) as server,
        temporary_service("--redis-url", server.url) as service,
        redis.Redis.from_url(server.url) as raw,
        service.connect() as client,
    ):
        _fill(client)
        own, bare = [], []
        for cycle in range(rounds):
            own.append(entries / _timed(lambda cycle=cycle: _observe(client, cycle, entries)))
            bare.append(entries / _timed(lambda: _xadd(raw, entries)))
    return _row("ingest", own, bare)


def _fill(client: Client) -> None:
    rng = np.random.default_rng(SEED)
    client.put_catalogue("c", dim=DIM)
    client.upsert_arms("c", rng.normal(size=(ARMS, DIM)), ids=[f"a{i}" for i in range(ARMS)])
    client.put_bandit("b", catalogue="c", policy="sub_ts", scope="per_key")


def _observe(client: Client, cycle: int, entries: int) -> None:
    """Each batch is encoded as a whole: ``Client.observe`` encodes item by item, which takes longer."""
    for first in range(0, entries, BATCH):
        items = [
            {"id": f"{cycle}-{n}", "key": f"u{n % KEYS}", "arm": f"a{n % ARMS}", "value": 1.0}
            for n in range(first, first + BATCH)
        ]
        wait = {"wait": "applied"} if first + BATCH >= entries else None
        client.perform(OBSERVE.call("b", body={"observations": items}, query=wait))
    while client.status().backlog:
        time.sleep(0.01)


def _xadd(raw: redis.Redis, entries: int) -> None:
    payload = _payload(np.ones(DIM))
    for _ in range(0, entries, BATCH):
        pipeline = raw.pipeline(transaction=False)
        for _ in range(BATCH):
            pipeline.xadd("raw", {"b": UID, "l": "ann", "p": payload})
        pipeline.execute()


def _apply(rounds: int, entries: int) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    log = [
        LogEntry(f"1-{n}", LearnerId(UID, f"u{n % KEYS}"), _payload(rng.normal(size=DIM)))
        for n in range(entries)
    ]
    own, alone, with_store, clock = [], [], [], []
    for _ in range(rounds):
        with (
            tempfile.TemporaryDirectory(prefix="shortlist-load-") as folder,
            EmbeddedServer(Path(folder)) as server,
        ):
            worker_s, store_s, clock_s = asyncio.run(_drain(server.url, log))
            own.append(entries / worker_s)
            with_store.append(entries / (worker_s + store_s))
            clock.append(entries / clock_s)
        began = time.process_time()
        _reduce(log)
        alone.append(entries / (time.process_time() - began))
    row = _row("apply", own, alone)
    return {**row, "with_store_per_s": statistics.median(with_store), "clock_per_s": statistics.median(clock)}


async def _drain(url: str, log: list[LogEntry]) -> tuple[float, float, float]:
    """Seconds of the worker's CPU, of the store's, and of the clock."""
    store = Store(url, partitions=16)
    await store.open()
    for number, first in enumerate(range(0, len(log), BATCH)):
        writes = [
            RewardWrite(e.learner, 0, e.payload, e.entry_id, ttl_ms=TTL_MS)
            for e in log[first : first + BATCH]
        ]
        await store.rewards.append(number % store.partitions, writes)
    worker = RewardWorker(
        store,
        poll_s=1.0,
        reward_log_s=600,
        capacity_bytes=64 << 20,
    )
    with redis.Redis.from_url(url) as server:
        began = time.process_time(), store_cpu_s(server), time.perf_counter()
        await worker.drain()
        ended = time.process_time(), store_cpu_s(server), time.perf_counter()
    await store.close()
    worker_s, store_s, clock_s = (after - before for before, after in zip(began, ended, strict=True))
    return worker_s, store_s, clock_s


def store_cpu_s(server: redis.Redis) -> float:
    used: Any = server.info("cpu")
    return float(used["used_cpu_sys"] + used["used_cpu_user"])


def _reduce(log: list[LogEntry]) -> None:
    states: dict[Any, Any] = {}
    for first in range(0, len(log), BATCH):
        states.update(fold(states, decoded_all(log[first : first + BATCH])))


def _payload(features: np.ndarray[Any, np.dtype[np.float64]]) -> bytes:
    return encode(RewardEntry(vector_to_bytes(features), 1.0))


def _timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _row(name: str, own: list[float], bare: list[float]) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(own, bare, strict=True)]
    return {
        "what": name,
        "per_s": statistics.median(own),
        "beside_per_s": statistics.median(bare),
        "ratio": statistics.median(ratios),
        "ratios": [round(ratio, 4) for ratio in ratios],
    }


if __name__ == "__main__":
    sys.exit(main())
