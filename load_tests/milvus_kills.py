"""Kills of a Milvus server under choices and changes: when choices are refused, and whether anything is lost.

    PYTHONPATH=.:tests/support python -m load_tests.milvus_kills [--arms N] [--kills N] [--json FILE]

A service with a catalogue in a standalone Milvus is asked for ``RATE`` choices a second, and ``RATE`` arms a
second are written or deleted. Meanwhile bare searches of the same collection are tried. After ``STEADY_S``
seconds the server is killed (SIGKILL) and started again. A row for each kill:

    away_s            from the kill until a bare search is answered
    refused, first_s, last_s    choices that were 503; when the first and last came, after the kill
    slowest_s         the longest that a choice took, since the kill
    behind_s          the last 503 after the first bare search that was answered
    good_s            the first choice that was answered 200 after that search
    early             choices that were refused before the kill
    other             choices and changes with any other answer than 200 and 503
    refused_changes   changes that were 503
    not_ready         questions for /readyz that were answered 503
    falsely_ready     those answered 200 while a choice before it and one after it were 503
    before, choices, changes    choices in a second before the kill; both in a second of all of it

What choices were refused for, how often, and when for the first and the last time, is printed as it goes. And
of all of it: ``stale``, arms that were shown by a choice that was sent after their deletion was
acknowledged; ``lost``, acknowledged changes that the service or Milvus lacks at the end. Linux on x86-64,
with the extra `milvus-server`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from pymilvus import AsyncMilvusClient, MilvusClient, MilvusException

from examples.service import SHORTLIST, Server, running
from milvus_engines import StandaloneMilvus
from studies.bench.milvus import Connection, ask, connected
from studies.measurement import report

DIM, FILLED_TOGETHER = 64, 2_000
RATE, CALLERS = 200, 8
WRITTEN, DELETED = 15, 5  # arms of a change; ten are made in a second
STEADY_S, AFTER_S, BACK_S, FOLLOWED_S = 10.0, 10.0, 240.0, 600.0
SEED = 2026
RECONNECTING = {"grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 200}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.milvus_kills", description=__doc__)
    parser.add_argument("--arms", type=int, default=50_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parsed = parser.parse_args(arguments)
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # bare searches fail while the server is away
    with tempfile.TemporaryDirectory(prefix="shortlist-load-") as name:
        folder = Path(name)
        with StandaloneMilvus(folder / "server", folder / "programs") as server:
            words = ["-c", SHORTLIST, "serve", "--port", "0", "--log-level", "info"]
            settings = {"SHORTLIST_MILVUS_URI": server.uri}
            log = folder / "service.log"
            with running(
                [*words, "--data-dir", f"{folder}/data"], log=log, settings=settings, start_s=120.0
            ) as service:
                _fill(service, parsed.arms)
                rows = asyncio.run(_Run(service, server, parsed.arms).through(parsed.kills))
    found = report("milvus_kills", rows, seed=SEED)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _fill(service: Server, arms: int) -> None:
    rng = np.random.default_rng(SEED)
    with service.connect() as client:
        client.put_catalogue("c", dim=DIM, index={"kind": "milvus"})
        client.put_bandit("b", catalogue="c", policy="sub_ts")
        for first in range(0, arms, FILLED_TOGETHER):
            rows = rng.normal(size=(min(FILLED_TOGETHER, arms - first), DIM))
            client.upsert_arms("c", rows, ids=[f"arm-{first + row}" for row in range(len(rows))])
    _await_followed(service)


def _await_followed(service: Server) -> str:
    """The collection, once it has everything."""
    ends = time.monotonic() + FOLLOWED_S
    with service.connect() as client:
        while (index := client.get_catalogue("c").index)["pending"] or index["overlay"]:
            if time.monotonic() > ends:
                raise RuntimeError("the engine does not come to have every arm")
            time.sleep(0.5)
    return str(index["collection"])


class _Answer(NamedTuple):
    """To a choice. Moments on the monotonic clock; ``detail`` of one that was not 200."""

    asked: float
    moment: float
    status: int
    detail: str


class _Run:
    """Choices, changes and bare searches on their way, and what they were answered."""

    def __init__(self, service: Server, server: StandaloneMilvus, arms: int) -> None:
        self._service, self._server = service, server
        self._rng = np.random.default_rng(SEED + 1)
        self._arms = [f"arm-{number}" for number in range(arms)]
        self._written, self._deleted = set[str](), set[str]()
        self._answers: list[_Answer] = []  # of choices
        self._changes: list[tuple[float, int]] = []
        self._ready: list[
            tuple[float, float, int]
        ] = []  # of /readyz: asked when, answered when, and the status
        self._found: list[float] = []  # when bare searches were answered
        self._stale: list[str] = []
        self._over = False

    async def through(self, kills: int) -> list[dict[str, Any]]:
        collection = await asyncio.to_thread(_await_followed, self._service)
        work = [self._choose(caller) for caller in range(CALLERS)]
        tasks = [
            asyncio.create_task(each)
            for each in (*work, self._change(), self._search(collection), self._ask_ready())
        ]
        rows = []
        for _ in range(kills):
            began = time.monotonic()
            await asyncio.sleep(STEADY_S)
            pid = self._server.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            await self._until_back(killed, tasks)
            await asyncio.sleep(AFTER_S)
            rows.append(self._row(began, killed))
            print(rows[-1], *self._reasons(killed), sep="\n", file=sys.stderr, flush=True)
        self._over = True  # a change that was cancelled might be made, and not be noted
        await asyncio.gather(*tasks)
        await asyncio.to_thread(_await_followed, self._service)
        lost = await asyncio.to_thread(self._lost, collection)
        return [{**row, "stale": len(self._stale), "lost": lost} for row in rows]

    async def _until_back(self, killed: float, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Return when bare searches and choices are answered again."""
        ends = killed + BACK_S
        while time.monotonic() < ends:
            for task in tasks:
                if task.done():
                    task.result()
            refused = max((each.moment for each in self._answers if each.status == 503), default=killed)
            chosen = [each.moment for each in self._answers if each.status == 200]
            if self._found and self._found[-1] > killed + 1.0 and chosen and chosen[-1] > refused + 1.0:
                return
            await asyncio.sleep(0.5)
        raise RuntimeError("the server does not come back")

    async def _choose(self, caller: int) -> None:
        due = time.monotonic() + caller / RATE
        async with connected(self._service.url) as connection:
            while not self._over:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due = max(due + CALLERS / RATE, time.monotonic())
                gone = set(self._deleted)
                asked = time.monotonic()
                status, answer = await ask(connection, "POST", "/v1/bandits/b/choose", b'{"k": 10}')
                body = msgspec.json.decode(answer)
                self._answers.append(_Answer(asked, time.monotonic(), status, body.get("detail", "")))
                if status == 200:
                    self._stale += {arm["id"] for arm in body["arms"]} & gone

    async def _ask_ready(self) -> None:
        async with connected(self._service.url) as connection:
            while not self._over:
                asked = time.monotonic()
                status, _ = await ask(connection, "GET", "/readyz", b"")
                self._ready.append((asked, time.monotonic(), status))
                await asyncio.sleep(0.25)

    async def _change(self) -> None:
        due, names = time.monotonic(), iter(range(10**9))
        async with connected(self._service.url) as connection:
            while not self._over:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due = max(due + (WRITTEN + DELETED) / RATE, time.monotonic())
                fresh = [f"new-{next(names)}" for _ in range(WRITTEN)]
                rows = self._rng.normal(size=(WRITTEN, DIM)).tolist()
                arms = [{"id": arm, "features": row} for arm, row in zip(fresh, rows, strict=True)]
                if await self._changed(connection, "PUT", "arms", {"arms": arms}, WRITTEN):
                    self._arms += fresh
                    self._written.update(fresh)
                places = self._rng.choice(len(self._arms), DELETED, replace=False).tolist()
                ids = [self._arms[place] for place in places]
                if await self._changed(connection, "POST", "arms/delete", {"ids": ids}, DELETED):
                    self._deleted.update(ids)
                    self._written.difference_update(ids)
                    for place in sorted(places, reverse=True):  # the last one takes its place
                        self._arms[place] = self._arms[-1]
                        self._arms.pop()

    async def _changed(self, connection: Connection, method: str, what: str, body: Any, count: int) -> bool:
        status, _ = await ask(connection, method, f"/v1/catalogues/c/{what}", msgspec.json.encode(body))
        self._changes += [(time.monotonic(), status)] * count
        return status == 200

    async def _search(self, collection: str) -> None:
        client = AsyncMilvusClient(self._server.uri, dedicated=True, grpc_options=RECONNECTING)
        while not self._over:
            query = self._rng.normal(size=DIM).astype(np.float32)
            try:
                await client.search(collection, data=[query], limit=32, timeout=1.0)
                self._found.append(time.monotonic())
            except MilvusException:
                pass
            await asyncio.sleep(0.1)

    def _row(self, began: float, killed: float) -> dict[str, Any]:
        ended = time.monotonic()
        answers = [each for each in self._answers if each.moment >= began]
        changes = [(moment, status) for moment, status in self._changes if moment >= began]
        statuses = Counter([*(each.status for each in answers), *(status for _, status in changes)])
        refused = [each.moment for each in answers if each.status == 503]
        good = [each.moment for each in answers if each.status == 200]
        back = min(moment for moment in self._found if moment > killed + 0.2)
        ready = [each for each in self._ready if each[0] > killed]
        return {
            "away_s": back - killed,
            "refused": len(refused),
            "first_s": refused[0] - killed if refused else None,
            "last_s": refused[-1] - killed if refused else None,
            "slowest_s": max(each.moment - each.asked for each in answers if each.moment > killed),
            "behind_s": refused[-1] - back if refused else None,
            "good_s": min(moment for moment in good if moment > back) - back,
            "early": sum(moment < killed for moment in refused),
            "other": statuses.total() - statuses[200] - statuses[503],
            "refused_changes": sum(status == 503 for _, status in changes),
            "not_ready": sum(status == 503 for _, _, status in ready),
            "falsely_ready": sum(
                status == 200 and _is_refused(answers, asked, answered) for asked, answered, status in ready
            ),
            "before": sum(each.moment < killed for each in answers) / (killed - began),
            "choices": len(answers) / (ended - began),
            "changes": len(changes) / (ended - began),
        }

    def _reasons(self, killed: float) -> list[str]:
        """A line for each reason of refused choices."""
        moments: dict[str, list[float]] = {}
        for each in self._answers:
            if each.status != 200 and each.moment > killed:
                moments.setdefault(f"{each.status} {each.detail}", []).append(each.moment - killed)
        return [f"{reason}: {len(at)}, {at[0]:.1f} to {at[-1]:.1f} s" for reason, at in moments.items()]

    def _lost(self, collection: str) -> int:
        """Acknowledged changes that the service, or the engine, does not show."""
        written, deleted = sorted(self._written), sorted(self._deleted)
        with self._service.connect() as client:
            lost = abs(client.get_catalogue("c").size - len(self._arms))
        engine = MilvusClient(self._server.uri)
        for ids, here in ((written, True), (deleted, False)):
            for start in range(0, len(ids), 1_000):
                some = ids[start : start + 1_000]
                found = engine.query(collection, ids=some, output_fields=["id"], consistency_level="Strong")
                lost += len(some) - len(found) if here else len(found)
        count = engine.query(collection, filter="", output_fields=["count(*)"], consistency_level="Strong")
        engine.close()
        return int(lost + abs(count[0]["count(*)"] - len(self._arms)))


def _is_refused(answers: Sequence[_Answer], asked: float, answered: float) -> bool:
    """Whether the last choice before a moment, and the first that was asked for after another, were 503."""
    before = [each.status for each in answers if each.moment < asked]
    after = [each.status for each in answers if each.asked > answered]
    return bool(before and after) and before[-1] == after[0] == 503


if __name__ == "__main__":
    sys.exit(main())
