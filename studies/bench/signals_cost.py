"""What signals cost: a part of `shortlist bench signals`.

Notation
    J           signals; none: a bandit without
    weights     own: those of the bandit. request: others in every request
    choose_us   processor time of a choice in process: weighing, the draw, the search for it. Its ratio is
                that of the medians of a turn to those without signals, the median over all turns
    http_us     processor time of the whole service for a choice over HTTP, its store included; ratio alike
    reward_us   the same for a reward, one in a request, until it is applied
    bytes       that the data folder grows by for a reward; more: than without signals

A decision gets each of its signals, in any order: so the last of J comes when J - 1 are there. All kinds take
turns, so that all see the machine in one state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from examples.service import Server, temporary_service
from shortlist.linear import ridge_sums, signals, sub_ts
from shortlist.linear.scales import Scales
from shortlist.linear.signals import Weighing
from shortlist_client import Client
from shortlist_client.progress import progress
from studies.bench.choose import index_of

SEED = 37
COUNTS = (1, 2, 4, 8)
ARMS, DIM = 100_000, 32
TURN = 50
TURNS, QUICK_TURNS = 40, 8
CALLS, QUICK_CALLS = 64, 32  # of a kind in a turn, over HTTP
HTTP_TURNS, QUICK_HTTP_TURNS = 8, 2


def rows(quick: bool) -> list[dict[str, Any]]:
    """Choices in process, then choices and rewards over HTTP; a row of each kind."""
    features = np.random.default_rng(SEED).standard_normal((ARMS, DIM))
    with threadpool_limits(1):
        found = choices(features, QUICK_TURNS if quick else TURNS)
    over_http = served(features, QUICK_HTTP_TURNS if quick else HTTP_TURNS, QUICK_CALLS if quick else CALLS)
    return [{**row, **over_http.get((row["J"], row["weights"]), {})} for row in found]


def choices(
    features: np.ndarray[Any, Any], turns: int, counts: Sequence[int] = COUNTS
) -> list[dict[str, Any]]:
    """Processor time of choices of each kind, in turns."""
    snapshot = index_of("auto", features, SEED).snapshot()
    rng, ways = np.random.default_rng(SEED), dict[tuple[int, str], Callable[[], object]]()
    scales = Scales(None, 1.0, learns_noise=True)

    def sums(count: int) -> ridge_sums.RidgeSums:
        some = features[:2_000]
        values = rng.standard_normal((2_000, count))
        first = np.ones(2_000, dtype=np.bool_)
        return ridge_sums.add(ridge_sums.empty(DIM), some, values, first)

    plain = scales.posterior(sums(1))
    ways[0, "own"] = lambda: sub_ts.choose(plain, snapshot, k=1, exploration=0.4, rng=rng)
    for count in counts:
        known, nothing = signals.known(sums(count), scales), (None,) * count
        own = known.weighed(Weighing((1.0,) * count, nothing, nothing), scales)

        def by_own(own: Any = own) -> object:
            return sub_ts.choose(own, snapshot, k=1, exploration=0.4, rng=rng)

        asked = cycle([tuple(each) for each in rng.random((TURN, count)).tolist()])

        def by_request(known: Any = known, nothing: Any = nothing, asked: Any = asked) -> object:
            weighing = Weighing(next(asked), nothing, nothing)
            return sub_ts.choose(known.weighed(weighing, scales), snapshot, k=1, exploration=0.4, rng=rng)

        ways[count, "own"], ways[count, "request"] = by_own, by_request
    taken = {name: np.empty((turns, TURN)) for name in ways}
    for turn in progress(range(turns), "turns of choices"):
        for name, way in ways.items():
            for place in range(TURN):
                began = time.thread_time()
                way()
                taken[name][turn, place] = (time.thread_time() - began) * 1e6
    middle = {name: np.median(each, axis=1) for name, each in taken.items()}
    return [
        {
            "J": count,
            "weights": weights,
            "choose_us": float(np.median(each)),
            "choose_ratio": float(np.median(each / middle[0, "own"])),
        }
        for (count, weights), each in middle.items()
    ]


def served(
    features: np.ndarray[Any, Any], turns: int, calls: int
) -> Mapping[tuple[int, str], dict[str, float]]:
    """Processor time of a service for choices and rewards of each kind, and what rewards take on disk."""
    with temporary_service() as service, service.connect() as client:
        client.put_catalogue("c", dim=DIM)
        client.upsert_arms("c", features[:10_000], ids=[f"a{arm}" for arm in range(10_000)])
        for count in (0, *COUNTS):
            rule: Any = {"signals": {f"s{i}": {} for i in range(count)}} if count else {}
            client.put_bandit(f"b{count}", catalogue="c", policy="sub_ts", **rule)
            _rewards(client, count, 20, np.random.default_rng(count))
        return _measured(service, client, turns, calls)


def _measured(
    service: Server, client: Client, turns: int, calls: int
) -> Mapping[tuple[int, str], dict[str, float]]:
    rng, meter = np.random.default_rng(SEED), _Meter(service)
    kinds = [(0, "own"), *((count, weights) for count in COUNTS for weights in ("own", "request"))]
    choose_us = {kind: list[float]() for kind in kinds}
    reward_us = {count: list[float]() for count in (0, *COUNTS)}
    size = {count: list[float]() for count in (0, *COUNTS)}
    for _ in progress(range(turns), "turns over HTTP"):
        for kind in kinds:
            began = meter.seconds()
            for _ in range(calls):
                _choose(client, *kind, rng)
            choose_us[kind].append((meter.seconds() - began) / calls * 1e6)
        for count in (0, *COUNTS):
            items = _planned(client, count, calls, rng)
            began, held = meter.seconds(), meter.bytes()
            for item in items:
                client.reward_batch([item], wait=True)
            reward_us[count].append((meter.seconds() - began) / len(items) * 1e6)
            size[count].append((meter.bytes() - held) / len(items))
    found = dict[tuple[int, str], dict[str, float]]()
    for kind in kinds:
        ratio = np.median(np.array(choose_us[kind]) / np.array(choose_us[0, "own"]))
        found[kind] = {"http_us": float(np.median(choose_us[kind])), "http_ratio": float(ratio)}
    for count in (0, *COUNTS):
        ratio = np.median(np.array(reward_us[count]) / np.array(reward_us[0]))
        found[count, "own"] |= {
            "reward_us": float(np.median(reward_us[count])),
            "reward_ratio": float(ratio),
            "bytes": float(np.mean(size[count])),  # checkpoints are in some turns and not in others
            "more": float(np.mean(size[count]) - np.mean(size[0])),
        }
    return found


def _choose(client: Client, count: int, weights: str, rng: np.random.Generator) -> object:
    if weights == "own":
        return client.choose(f"b{count}")
    return client.choose(f"b{count}", weights={f"s{i}": float(rng.random()) for i in range(count)})


def _planned(client: Client, count: int, rewards: int, rng: np.random.Generator) -> list[Any]:
    """Rewards of new decisions: of each all its signals, in any order: clicks, prices and seconds."""
    each = max(count, 1)
    choices = client.choose_batch(f"b{count}", [{}] * (rewards // each)).results
    items = list[Any]()
    for choice in choices:
        for place in rng.permutation(each).tolist():
            value = [1.0, 0.0, round(float(rng.gamma(2.0, 10.0)), 2), float(rng.integers(100))][place % 4]
            signal = {"signal": f"s{place}"} if count else {}
            items.append({"decision": choice.decision, "value": value, **signal})
    return items


def _rewards(client: Client, count: int, rewards: int, rng: np.random.Generator) -> None:
    client.reward_batch(_planned(client, count, max(rewards, count), rng), wait=True)


class _Meter:
    """Processor time of a service and its store, and the size of its data folder."""

    def __init__(self, service: Server) -> None:
        self._pids = [service.pid, *_children(service.pid)]
        command = Path(f"/proc/{service.pid}/cmdline").read_text().split("\0")
        self._folder = Path(command[command.index("--data-dir") + 1])

    def seconds(self) -> float:
        """Of all threads that live."""
        return sum(_nanoseconds(pid) for pid in self._pids) / 1e9

    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())


def _nanoseconds(pid: int) -> int:
    """Processor time of the threads of a process, as the scheduler counts it."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in files)


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [child for each in map(int, found) for child in (each, *_children(each))]
