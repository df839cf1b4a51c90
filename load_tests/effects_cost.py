"""What arm effects cost: processor time of a reward, and bytes of a token, beside a bandit without.

    python -m load_tests.effects_cost [--quick]

Two bandits over the same arms and keys are rewarded in turns. What counts is processor time: of the service
that takes the rewards, of the worker that applies them, and of their store. Fits, which come each second
whatever the number of rewards, are not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import redis

from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store
from examples.service import temporary_service
from load_tests.ingestion import store_cpu_s
from shortlist_client import Client
from workers.reward_ingestion import RewardWorker

DIM, ARMS, KEYS, SEED = 32, 1_000, 100, 1
BANDITS: dict[str, Literal["off", "auto"]] = {"off": "off", "on": "auto"}
TOGETHER = {500: 2_000, 1: 200}  # rewards of a call, and of a turn
TICKS = os.sysconf("SC_CLK_TCK")


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.effects_cost", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 8 if parser.parse_args(arguments).quick else 30
    with (
        tempfile.TemporaryDirectory(prefix="shortlist-load-") as folder,
        EmbeddedServer(Path(folder)) as server,
        temporary_service("--redis-url", server.url, SHORTLIST_WORKER="false") as service,
        redis.Redis.from_url(server.url) as raw,
        service.connect() as client,
    ):
        worker = _Worker(server.url)
        _fill(client, worker)

        def used_s() -> float:
            fields = Path(f"/proc/{service.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / TICKS + store_cpu_s(raw)

        for together, count in TOGETHER.items():
            used: dict[str, list[float]] = {name: [] for name in BANDITS}
            for turn in range(rounds):
                for name in list(BANDITS)[:: 1 if turn % 2 else -1]:
                    rewards = _rewards(client, name, turn, count)
                    began = used_s()
                    for start in range(0, count, together):
                        client.reward_batch(rewards[start : start + together])
                    worker_s = worker.drain()
                    used[name].append(1e6 * (worker_s + used_s() - began) / count)
            ratios = [on / off for on, off in zip(used["on"], used["off"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            without, with_them = (statistics.median(used[name]) for name in BANDITS)
            print(f"{together} a call: {without:.0f} us a reward without, {with_them:.0f} with;", end=" ")
            print(f"ratio {middle:.3f} (quartiles {low:.3f}, {high:.3f})")
        for k in (1, 10, 100):
            tokens = [len(client.choose(name, key="u1", k=k).decision) for name in BANDITS]
            print(f"a token of {k} arms: {tokens[0]} bytes without, {tokens[1]} with")
        worker.close()
    return 0


def _fill(client: Client, worker: _Worker) -> None:
    rng = np.random.default_rng(SEED)
    features, effects = rng.normal(size=(ARMS, DIM)) / DIM**0.5, rng.normal(size=ARMS)
    client.put_catalogue("c", dim=DIM)
    client.upsert_arms("c", features, ids=[f"a{i}" for i in range(ARMS)])
    for name, setting in BANDITS.items():
        client.put_bandit(name, catalogue="c", policy="sub_ts", scope="per_key", arm_effects=setting)
        for turn in range(2):
            seen: list[Any] = [
                {"id": f"{turn}-{n}", "key": f"u{n % KEYS}", "arm": f"a{arm}", "value": float(effects[arm])}
                for n, arm in enumerate(rng.integers(0, ARMS, 4_000).tolist())
            ]
            client.observe(name, seen)
            worker.drain()
            client.refresh_prior(name)


def _rewards(client: Client, name: str, turn: int, count: int) -> list[Any]:
    asked: list[Any] = [{"key": f"u{(n + turn) % KEYS}", "k": 1} for n in range(count)]
    choices = [
        choice
        for start in range(0, count, 500)
        for choice in client.choose_batch(name, asked[start : start + 500]).results
    ]
    return [{"decision": choice.decision, "value": float(n % 2)} for n, choice in enumerate(choices)]


class _Worker:
    """Applies what is in the log when it is told to, and keeps what it knows in between."""

    def __init__(self, url: str) -> None:
        self._runner, self._store = asyncio.Runner(), Store(url, partitions=16)
        self._runner.run(self._store.open())
        self._worker = RewardWorker(self._store, poll_s=1.0, reward_log_s=600, capacity_bytes=64 << 20)

    def drain(self) -> float:
        """Seconds of the processor."""
        for partition in range(self._store.partitions):
            self._worker.wake(partition)
        began = time.process_time()
        self._runner.run(self._worker.drain())
        return time.process_time() - began

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()


if __name__ == "__main__":
    sys.exit(main())
