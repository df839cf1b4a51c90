"""What the Python client adds to a call beside raw httpx: processor time of this process, in microseconds.

    python -m load_tests.client_overhead [--calls N] [--rounds N] [--json FILE]

Answers come from memory, so that only the client's side is measured: the same httpx, the same request and
answer, as bytes into ``post(url, json=...).json()`` and as a call of the client. Both in turn, in one run;
``added_us`` is the median over the rounds of their difference.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx

from shortlist_client import AsyncClient, Client
from shortlist_client.answers import Bandit
from studies.measurement import report

CALLS, ROUNDS = 500, 15
TARGET_US = 150.0
URL = "http://service"
TOKEN = "t" * 120


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; the exit status is 1 when a call costs more than the target."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.client_overhead", description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help="in each round")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and all figures")
    parsed = parser.parse_args(arguments)
    rows = [*_threads(parsed.calls, parsed.rounds), *asyncio.run(_tasks(parsed.calls, parsed.rounds))]
    result = report("client_overhead", rows, seed=0)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row["added_us"] <= TARGET_US for row in rows) else 1


def _threads(calls: int, rounds: int) -> list[dict[str, Any]]:
    http = httpx.Client(transport=httpx.MockTransport(_answer))
    client = Client(URL, http=http)
    pairs = {
        "choose, k = 1": (lambda: _post(http, "choose", k=1), lambda: client.choose("home", key="u", k=1)),
        "choose, k = 10": (lambda: _post(http, "choose", k=10), lambda: client.choose("home", key="u", k=10)),
        "reward": (lambda: _post(http, "rewards"), lambda: client.reward(TOKEN, 1.0)),
    }
    return [
        _row("Client", name, [_round(raw, ours, calls) for _ in range(rounds)])
        for name, (raw, ours) in pairs.items()
    ]


async def _tasks(calls: int, rounds: int) -> list[dict[str, Any]]:
    http = httpx.AsyncClient(transport=httpx.MockTransport(_answer))
    client = AsyncClient(URL, http=http)

    async def raw() -> Any:
        answer = await http.post(f"{URL}/v1/bandits/home/choose", json={"key": "u", "k": 1})
        return answer.json()

    async def ours() -> Any:
        return await client.choose("home", key="u", k=1)

    found = [await _async_round(raw, ours, calls) for _ in range(rounds)]
    return [_row("AsyncClient", "choose, k = 1", found)]


def _row(client: str, call: str, rounds: list[tuple[float, float]]) -> dict[str, Any]:
    return {
        "client": client,
        "call": call,
        "httpx_us": round(statistics.median(raw for raw, _ in rounds), 1),
        "client_us": round(statistics.median(ours for _, ours in rounds), 1),
        "added_us": round(statistics.median(ours - raw for raw, ours in rounds), 1),
        "target_us": TARGET_US,
    }


def _round(raw: Callable[[], Any], ours: Callable[[], Any], calls: int) -> tuple[float, float]:
    return _cost(raw, calls), _cost(ours, calls)


def _cost(call: Callable[[], Any], calls: int) -> float:
    call()
    began = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - began) / calls * 1e6


async def _async_round(
    raw: Callable[[], Awaitable[Any]], ours: Callable[[], Awaitable[Any]], calls: int
) -> tuple[float, float]:
    return await _async_cost(raw, calls), await _async_cost(ours, calls)


async def _async_cost(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    await call()
    began = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - began) / calls * 1e6


def _post(http: httpx.Client, what: str, k: int = 1) -> Any:
    if what == "choose":
        return http.post(f"{URL}/v1/bandits/home/choose", json={"key": "u", "k": k}).json()
    return http.post(f"{URL}/v1/rewards", json={"rewards": [{"decision": TOKEN, "value": 1.0}]}).json()


def _choice(k: int) -> bytes:
    arms = [{"id": f"film-{number}", "score": 1.0 / (number + 3)} for number in range(k)]
    choice = {"decision": TOKEN, "arms": arms, "policy": "sub_ts", "learner_version": 1}
    return json.dumps({**choice, "catalogue_version": 2, "exact": True}).encode()


CHOICES = {k: _choice(k) for k in (1, 10)}
RECEIPT = json.dumps({"accepted": 1, "duplicate": 0, "rejected": []}).encode()
BANDIT = json.dumps(dict.fromkeys(field.name for field in fields(Bandit)) | {"reward": {}}).encode()


def _answer(request: httpx.Request) -> httpx.Response:
    if request.method == "GET":
        return httpx.Response(200, content=BANDIT)
    if request.url.path.endswith("choose"):
        return httpx.Response(200, content=CHOICES[10 if b"10" in request.content else 1])
    return httpx.Response(202, content=RECEIPT)


if __name__ == "__main__":
    raise SystemExit(main())
