"""What choices and rewards cost, by process, for 1 to 8 replicas over a Redis Cluster of 1 and of 3 nodes.

    PYTHONPATH=.:tests/support python -m load_tests.replicas [--quick] [--json FILE]

Replicas apply no rewards; one worker does. One wrk drives each replica, all at the same time. Every node
syncs its append-only file before it answers. On few cores the rates say how many cores there are. What counts
is the processor time a request, in microseconds: of the replicas (``choice_us``, ``reward_us``), the worker
(``reward_worker_us``), all nodes (``choice_store_us``, ``reward_store_us``) and the busiest node
(``reward_busiest_us``). It includes what polling takes, which is also measured alone: the share of a core
that one replica (``idle_replica``) and all nodes (``idle_store``) use while nothing is asked. Rewards are
counted until they are applied. ``SHORTLIST_PARTITIONS`` of the environment holds. Linux only, with
redis-server and wrk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from examples.service import SHORTLIST, Server, running
from load_tests import command, wrk
from load_tests.filling import BANDIT, await_index, decide, fill
from load_tests.wrk import LoadError
from redis_cluster import RedisCluster
from studies.measurement import report

NODES = (1, 3)
COUNTS = (1, 2, 4, 8)
FULL = {"arms": 20_000, "dim": 32, "keys": 1_000, "most": 8, "seconds": 5}
QUICK = {"arms": 2_000, "dim": 32, "keys": 200, "most": 2, "seconds": 2}
CONNECTIONS = 32
SETTLE_S = 1.0  # replicas and nodes have done what they do after the last request
PARTITIONS = os.environ.get("SHORTLIST_PARTITIONS", "16")  # the worker inherits it
TOKENS_PER_S = 4_000  # more than two cores can reward
SEED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 when it could not be measured."""
    return command.run("replicas", measure, arguments, description=__doc__, full=FULL, quick=QUICK)


def measure(*, arms: int, dim: int, keys: int, most: int, seconds: int) -> dict[str, Any]:
    """A row for each number of nodes, and of replicas up to ``most``."""
    if not RedisCluster.is_possible():
        raise LoadError("redis-server is not installed")
    rows = []
    for nodes in NODES:
        with ExitStack() as stack:
            installation = Installation(stack, nodes)
            fill(installation.add(), arms=arms, dim=dim, keys=keys, seed=SEED)
            for count in (count for count in COUNTS if count <= most):
                installation.grow(count, arms)
                rows.append({"nodes": nodes, **installation.measured(keys, seconds)})
                print(rows[-1], file=sys.stderr, flush=True)
    setting = {"arms": arms, "dim": dim, "keys": keys, "seconds": seconds, "connections": CONNECTIONS}
    return report("replicas", rows, seed=SEED) | {"setting": setting}


class Installation:
    """A cluster, a worker, and replicas that are added one by one. All end with ``stack``."""

    def __init__(self, stack: ExitStack, nodes: int) -> None:
        self._stack = stack
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shortlist-load-")))
        self.cluster = stack.enter_context(RedisCluster(self.folder / "cluster", nodes=nodes))
        self.replicas: list[Server] = []
        self.worker = stack.enter_context(_worker(self.folder, self.cluster.url))

    def add(self) -> Server:
        place = self.folder / f"replica-{len(self.replicas)}"
        options = ["serve", "--port", "0", "--no-worker", "--log-level", "info", "--data-dir", f"{place}"]
        log = place.with_suffix(".log")
        words = ["-c", SHORTLIST, *options, "--redis-url", self.cluster.url]
        settings = {"SHORTLIST_PARTITIONS": PARTITIONS}
        self.replicas.append(self._stack.enter_context(running(words, log=log, settings=settings)))
        return self.replicas[-1]

    def grow(self, count: int, arms: int) -> None:
        """Add replicas until there are ``count``; returns when their indexes are at rest."""
        added = [self.add() for _ in range(count - len(self.replicas))]

        def await_rest(replica: Server) -> None:
            with replica.connect() as client:
                await_index(client, arms)

        with ThreadPoolExecutor(len(added) or 1) as threads:
            list(threads.map(await_rest, added))

    def measured(self, keys: int, seconds: int) -> dict[str, float]:
        """One row."""
        for replica in self.replicas:
            decide(replica, keys, keys)  # every learner is in memory of each from now on
        idle = self._spent(lambda: time.sleep(seconds))
        row: dict[str, float] = {
            "replicas": len(self.replicas),
            "idle_replica": sum(idle["replicas"]) / len(self.replicas) / seconds,
            "idle_store": sum(idle["nodes"]) / seconds,
        }
        choices = [("choose", BANDIT, keys)] * len(self.replicas)
        row |= self._driven("choice", choices, seconds)
        rewards = [("rewards", self._tokens(place, keys, seconds)) for place in range(len(self.replicas))]
        return row | self._driven("reward", rewards, seconds)

    def _tokens(self, place: int, keys: int, seconds: int) -> Path:
        """A file of new decisions: a reward that repeats one would cost nothing."""
        path = self.folder / f"tokens-{place}"
        count = TOKENS_PER_S * seconds // len(self.replicas)
        path.write_text("\n".join(decide(self.replicas[place], count, keys)) + "\n")
        return path

    def _driven(self, what: str, scenarios: Sequence[tuple[Any, ...]], seconds: int) -> dict[str, float]:
        """A scenario for each replica, all at the same time; what a request of it cost."""
        counts: list[int] = []
        spent = self._spent(lambda: counts.extend(self._requests(scenarios, seconds)))
        if what == "reward" and max(counts) >= TOKENS_PER_S * seconds // len(self.replicas):
            raise LoadError("there were too few tokens, so that some were rewarded twice")
        count = sum(counts)
        figures = {
            f"{what}s_per_s": count / seconds,
            f"{what}_us": 1e6 * sum(spent["replicas"]) / count,
            f"{what}_store_us": 1e6 * sum(spent["nodes"]) / count,
        }
        if what == "reward":
            figures["reward_worker_us"] = 1e6 * sum(spent["worker"]) / count
            figures["reward_busiest_us"] = 1e6 * max(spent["nodes"]) / count
        return figures

    def _requests(self, scenarios: Sequence[tuple[Any, ...]], seconds: int) -> list[int]:
        """How many each replica answered, when all of them are applied."""
        options = {"seconds": seconds, "connections": CONNECTIONS // len(self.replicas)}
        started = [
            (wrk.start(replica, *scenario, **options), replica)
            for replica, scenario in zip(self.replicas, scenarios, strict=True)
        ]
        try:
            runs = [wrk.finish(process, replica, None, seconds) for process, replica in started]
        finally:
            for process, _ in started:
                process.kill()
                process.wait()
        with self.replicas[0].connect() as client:
            while client.status().backlog:
                time.sleep(0.02)
        time.sleep(SETTLE_S)
        return [run.requests for run in runs]

    def _spent(self, work: Callable[[], None]) -> Mapping[str, list[float]]:
        """Seconds of processor time that each process spent while ``work`` was done."""
        pids = {
            "replicas": [replica.pid for replica in self.replicas],
            "worker": [self.worker],
            "nodes": [process.pid for process in self.cluster.processes],
        }
        before = {kind: [wrk.cpu_s(pid) for pid in pids[kind]] for kind in pids}
        work()
        return {
            kind: [_since(pid, start) for pid, start in zip(pids[kind], before[kind], strict=True)]
            for kind in pids
        }


def _since(pid: int, before: float | None) -> float:
    now = wrk.cpu_s(pid)
    if now is None or before is None:
        raise LoadError(f"process {pid} has ended, or this system does not tell its processor time")
    return now - before


@contextmanager
def _worker(folder: Path, url: str) -> Iterator[int]:
    """The process that applies rewards, by its id."""
    words = [sys.executable, "-c", SHORTLIST, "worker", "--redis-url", url, "--data-dir", f"{folder}/worker"]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=Path(__file__).parents[1], stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
