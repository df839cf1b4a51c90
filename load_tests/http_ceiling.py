"""How much of a bare FastAPI endpoint's throughput is left when the endpoint decides and learns.

    python -m load_tests.http_ceiling [--quick] [--json FILE]

One service process with the embedded store, and one process with the bare endpoint, are driven by wrk in
alternating rounds with the same requests and answers of the same size. What counts are the ratios within a
round: the machine may be busy with other things. How to read the figures: load_tests/README.md.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from examples.service import Server, running, temporary_service
from load_tests import command, wrk
from load_tests.filling import BANDIT, CATALOGUE, decide, fill
from load_tests.wrk import Run
from studies.measurement import report

CONNECTIONS = 32
FULL = {"arms": 100_000, "dim": 32, "keys": 10_000, "rounds": 5, "seconds": 5}
QUICK = {"arms": 5_000, "dim": 32, "keys": 500, "rounds": 2, "seconds": 2}
PROBE_PAUSE_S = 0.01
WARM_S = 1
SPARE = 1.5
TARGETS = {"choose": 0.45, "rewards": 0.45}
APPLIED_WITHIN_MS = 100.0
SEED = 1

Pair = tuple[Run, Run]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 when it could not be measured."""
    return command.run("http_ceiling", measure, arguments, description=__doc__, full=FULL, quick=QUICK)


def measure(*, arms: int, dim: int, keys: int, rounds: int, seconds: int) -> dict[str, Any]:
    """All figures of one service and one bare endpoint; prints them as a table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shortlist-load-")))
        service = stack.enter_context(temporary_service())
        _say(f"filling: {arms:,} arms of dimension {dim}, {keys:,} keys")
        fill(service, arms=arms, dim=dim, keys=keys, seed=SEED)
        samples = folder / "samples.json"
        samples.write_text(json.dumps(_samples(service)))
        bare_command = ["-m", "load_tests.bare_endpoint", str(samples)]
        bare = stack.enter_context(running(bare_command, log=folder / "bare.log"))

        _say(f"choose: {rounds} rounds of {seconds} s each")
        decide(service, keys, keys)  # every learner is in memory from now on
        choose = [_choose_round(service, bare, keys, seconds) for _ in range(rounds)]
        _say(f"rewards: {rounds} rounds of {seconds} s each")
        tokens = TokenFiles(service, folder, keys)
        rate = tokens.drive(service, WARM_S, 20_000).per_s
        rewards = [_rewards_round(service, bare, tokens, rate, seconds) for _ in range(rounds)]
        _say("time until rewards are applied, at half of that")
        half = statistics.median(run.per_s for run, _ in rewards) / 2
        applied = _applied_under_load(service, tokens, half, seconds * 2)
        index = _index(service)
    rows = [_row("choose", choose), _row("rewards", rewards)]
    result = report("http_ceiling", rows, seed=SEED)
    _conclude(rows, applied)
    setting = {"arms": arms, "dim": dim, "keys": keys, "rounds": rounds, "seconds": seconds}
    return result | {"setting": setting | {"connections": CONNECTIONS}, "index": index, "applied": applied}


def _samples(service: Server) -> dict[str, Any]:
    """A decision as the service makes them, for the bare endpoint to repeat."""
    url = f"{service.url}/v1/bandits/{BANDIT}/choose"
    with httpx.Client() as http:  # the answers as they are, which the Python client reads into objects
        answers = [
            http.post(url, json={"key": f"user-{number:05d}"}).raise_for_status().json()
            for number in range(101)
        ]
    answers.sort(key=lambda answer: len(json.dumps(answer)))
    return {"choose": answers[len(answers) // 2]}


def _index(service: Server) -> dict[str, Any]:
    with service.connect() as client:
        return dict(client.get_catalogue(CATALOGUE).index)


def _choose_round(service: Server, bare: Server, keys: int, seconds: int) -> Pair:
    def run(server: Server) -> Run:
        return wrk.drive(server, "choose", BANDIT, keys, seconds=seconds, connections=CONNECTIONS)

    return run(service), run(bare)


def _rewards_round(service: Server, bare: Server, tokens: TokenFiles, rate: float, seconds: int) -> Pair:
    run = tokens.drive(service, seconds, int(rate * SPARE * seconds))
    return run, wrk.drive(bare, "rewards", tokens.path, seconds=seconds, connections=CONNECTIONS)


class TokenFiles:
    """Files of decision tokens, each token used once: a reward that repeats one would cost nothing."""

    def __init__(self, service: Server, folder: Path, keys: int) -> None:
        self._service = service
        self._keys = keys
        self.path = folder / "tokens"

    def renew(self, count: int) -> None:
        self.path.write_text("\n".join(decide(self._service, count, self._keys)) + "\n")

    def drive(self, server: Server, seconds: int, count: int) -> Run:
        """Rewards for ``count`` new decisions, or for twice as many if they do not last, and so on."""
        while True:
            self.renew(count)
            run = wrk.drive(server, "rewards", self.path, seconds=seconds, connections=CONNECTIONS)
            _drain(server)
            if run.requests < count - CONNECTIONS:
                return run
            count *= 2


def _drain(server: Server) -> float:
    """Wait until no reward waits to be applied; the seconds it took."""
    with server.connect() as client:
        started = time.monotonic()
        while client.status().backlog:
            time.sleep(0.02)
        return time.monotonic() - started


def _applied_under_load(service: Server, tokens: TokenFiles, per_s: float, seconds: int) -> dict[str, float]:
    """Decide and reward with wait=applied while wrk rewards other decisions at about ``per_s``."""
    tokens.renew(int(per_s * SPARE * 2 * seconds))
    pause_ms = max(1, round(1e3 * CONNECTIONS / per_s))
    before = wrk.cpu_s(service.pid)
    load = wrk.start(service, "rewards", tokens.path, pause_ms, seconds=seconds, connections=CONNECTIONS)
    try:
        waits = _probe(service, until=time.monotonic() + seconds - 1)
        run = wrk.finish(load, service, before, seconds)
    finally:
        load.kill()
        load.wait()
    half, most = np.quantile(waits, (0.5, 0.99)) * 1e3
    return {"background_per_s": run.per_s, "probes": len(waits), "p50_ms": float(half), "p99_ms": float(most)}


def _probe(service: Server, *, until: float) -> list[float]:
    waits = []
    with service.connect() as client:
        while time.monotonic() < until:
            choice = client.choose(BANDIT, once=False, key="user-00007")
            began = time.perf_counter()
            client.reward(choice.decision, wait=True)
            waits.append(time.perf_counter() - began)
            time.sleep(PROBE_PAUSE_S)
    return waits


def _row(name: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    ratios = [service.per_s / bare.per_s for service, bare in pairs]

    def middle(pick: Callable[[Pair], float | None]) -> float | None:
        values = [value for pair in pairs if (value := pick(pair)) is not None]
        return statistics.median(values) if values else None

    return {
        "endpoint": name,
        "per_s": middle(lambda pair: pair[0].per_s),
        "p50_ms": middle(lambda pair: pair[0].p50_ms),
        "p99_ms": middle(lambda pair: pair[0].p99_ms),
        "cpu_us": middle(lambda pair: pair[0].cpu_us),
        "bare_per_s": middle(lambda pair: pair[1].per_s),
        "bare_p50_ms": middle(lambda pair: pair[1].p50_ms),
        "bare_p99_ms": middle(lambda pair: pair[1].p99_ms),
        "bare_cpu_us": middle(lambda pair: pair[1].cpu_us),
        "ratio": statistics.median(ratios),
        "ratios": [round(ratio, 4) for ratio in ratios],
    }


def _conclude(rows: Sequence[dict[str, Any]], applied: dict[str, float]) -> None:
    for row in rows:
        target = TARGETS.get(row["endpoint"])
        if target is not None:
            verdict = "reached" if row["ratio"] >= target else "missed"
            print(
                f"{row['endpoint']}: {row['ratio']:.0%} of the bare endpoint; target {target:.0%}: {verdict}"
            )
    verdict = "reached" if applied["p99_ms"] <= APPLIED_WITHIN_MS else "missed"
    print(
        f"applied after p50 {applied['p50_ms']:.1f} ms, p99 {applied['p99_ms']:.1f} ms at "
        f"{applied['background_per_s']:,.0f} rewards/s; target {APPLIED_WITHIN_MS:g} ms: {verdict}"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
