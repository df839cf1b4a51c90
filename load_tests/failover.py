"""Acknowledged rewards that a fail-over of a Redis Cluster loses, counted.

    PYTHONPATH=.:tests/support python -m load_tests.failover [--times N] [--json FILE]

A cluster has three primaries and a replica of each, and syncs its files before it answers. Observations
of many keys are sent to a service without a pause, each under an id of its own, and again under the same
id until they are acknowledged. Then a primary is killed, its replica promoted, and the primary started
again, as a replica. ``cut_s``: for so many seconds before, its replica got nothing, as one that the network
had cut off.

Afterwards every acknowledged observation is sent once more. Those that the store still knows are
duplicates, and those that it takes again had been lost (``lost``, of ``acknowledged``). ``wrong_keys``
counts keys whose learner has another number of observations than there are ids after that: 0 says that
none counted twice. ``refused``: answers 503 while the replica was cut off. ``longest_gap_s``: after the
kill, without an acknowledgement of any key. Needs redis-server.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import redis

from examples.service import SHORTLIST, Server, running
from redis_cluster import RedisCluster
from shortlist_client import Client, ShortlistError
from shortlist_client.bodies import ObservationItem
from studies.measurement import report
from waiting import wait_until_sync

# A replica that was started again does not know how old its data are: here it may be promoted all the same.
ANY_AGE = {"cluster-replica-validity-factor": 0}
SETTINGS: Sequence[Mapping[str, int]] = (
    ANY_AGE,
    {**ANY_AGE, "min-replicas-to-write": 1, "min-replicas-max-lag": 1},
)
CUTS_S = (0.0, 4.0)
KEYS, SENDERS, TOGETHER = 48, 4, 5
BEFORE_S, AFTER_S, AWAY_S = 4.0, 3.0, 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.failover", description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="fail-overs of each kind")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parsed = parser.parse_args(arguments)
    if not RedisCluster.is_possible():
        print("load: redis-server is not installed", file=sys.stderr)
        return 1
    rows = []
    for _, cut_s, settings in itertools.product(range(parsed.times), CUTS_S, SETTINGS):
        rows.append(failover(cut_s, settings))
        print(rows[-1], file=sys.stderr, flush=True)
    found = report("failover", rows, seed=0)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def failover(cut_s: float, settings: Mapping[str, int]) -> dict[str, Any]:
    """One row: a service, its cluster, and the end of a primary."""
    with tempfile.TemporaryDirectory(prefix="shortlist-load-") as name:
        folder = Path(name)
        with RedisCluster(folder / "cluster", replicas=1, settings=settings) as cluster:
            words = [
                "-c",
                SHORTLIST,
                "serve",
                "--port",
                "0",
                "--log-level",
                "info",
                "--data-dir",
                f"{folder}/data",
            ]
            log = folder / "service.log"
            with running([*words, "--redis-url", cluster.url], log=log, start_s=120.0) as server:
                with server.connect() as client:
                    client.put_catalogue("c", dim=2)
                    client.upsert_arms("c", [[1.0, 0.0]], ids=["a"])
                    client.put_bandit("b", catalogue="c", policy="sub_ts", scope="per_key")
                figures = _Senders(server).through(cluster, cut_s)
    return {"min_replicas": settings.get("min-replicas-to-write", 0), "cut_s": cut_s, **figures}


class _Senders:
    """Observations on their way. Each has an id of its own, and is sent until it is acknowledged."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self._acknowledged: dict[str, list[str]] = defaultdict(list)  # by key
        self._refusals: list[float] = []  # moments
        self._answers: list[tuple[str, float]] = []  # keys and moments
        self._ids = itertools.count()

    def through(self, cluster: RedisCluster, cut_s: float) -> dict[str, Any]:
        with ThreadPoolExecutor(SENDERS) as threads:
            done = [threads.submit(self._send, place) for place in range(SENDERS)]
            try:
                time.sleep(BEFORE_S)
                killed_at = _promote(cluster, cut_s)
                time.sleep(AFTER_S)
            finally:
                self._stop.set()
            for each in done:
                each.result()
        after = [moment for _, moment in self._answers if moment > killed_at]
        gaps = [late - early for early, late in itertools.pairwise([killed_at, *after])]
        lost = self._sent_again()
        return {
            "acknowledged": sum(map(len, self._acknowledged.values())),
            "lost": lost,
            "wrong_keys": self._wrong_keys(),
            "refused": sum(moment < killed_at for moment in self._refusals),
            "longest_gap_s": max(gaps),
        }

    def _send(self, place: int) -> None:
        keys = itertools.cycle(f"k{number}" for number in range(place, KEYS, SENDERS))
        with self._server.connect(timeout_s=20.0) as client:
            while not self._stop.is_set():
                key, ids = next(keys), [f"o{next(self._ids)}" for _ in range(TOGETHER)]
                ends = time.monotonic() + AWAY_S
                while not self._observed(client, key, ids):  # a try that was not answered may count: same ids
                    if time.monotonic() > ends:
                        raise RuntimeError("the cluster does not come back")
                    time.sleep(0.05)
                self._acknowledged[key] += ids
                self._answers.append((key, time.monotonic()))

    def _observed(self, client: Client, key: str, ids: Sequence[str]) -> bool:
        try:
            client.observe("b", [{"id": id_, "arm": "a", "value": 1.0, "key": key} for id_ in ids])
        except ShortlistError:
            self._refusals.append(time.monotonic())
            return False
        return True

    def _sent_again(self) -> int:
        """How many acknowledged ones the store takes once more; again until a replica is there."""
        taken = 0
        with self._server.connect() as client:
            for key, ids in self._acknowledged.items():
                items: list[ObservationItem] = [
                    {"id": id_, "arm": "a", "value": 1.0, "key": key} for id_ in ids
                ]
                ends = time.monotonic() + AWAY_S
                while True:
                    try:
                        taken += client.observe("b", items, wait=True).accepted
                        break
                    except ShortlistError:
                        if time.monotonic() > ends:
                            raise
                        time.sleep(0.1)
        return taken

    def _wrong_keys(self) -> int:
        with self._server.connect() as client:
            return sum(
                client.get_learner("b", key).observations != len(ids)
                for key, ids in self._acknowledged.items()
            )


def _promote(cluster: RedisCluster, cut_s: float) -> float:
    """Kill the first primary, and start it again once its replica has its slots; when it was killed."""
    place = len(cluster.ports) // 2
    if cut_s:
        cluster.processes[place].send_signal(signal.SIGSTOP)
        time.sleep(cut_s)
        cluster.kill(place)  # with what its sockets hold unread
    killed_at = time.monotonic()
    cluster.kill(0)
    if cut_s:
        cluster.launch(place)
    wait_until_sync(lambda: _is_primary(cluster.ports[place]), what="the replica is promoted")
    cluster.restart(0)
    return killed_at


def _is_primary(port: int) -> bool:
    with redis.Redis(port=port) as node:
        try:
            return bool(node.info("replication")["role"] == "master")
        except redis.RedisError:
            return False


if __name__ == "__main__":
    sys.exit(main())
