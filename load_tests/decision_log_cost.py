"""What the decision log costs choices: their throughput with the log on, beside that with it off.

    python -m load_tests.decision_log_cost [--quick] [--json FILE]

One service process with the embedded store and one bandit. Its ``log`` is changed between runs of wrk: off, a
tenth of the decisions, all; each round begins with another of them. The runs are short and many, since the
machine may be busy with other things: what counts are the medians of the ratios within a round. Two are told,
of the throughput and of the processor time of a choice: that of the service and its store together
until its rows are written. Other work of the machine disturbs the latter less.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.service import Server, temporary_service
from load_tests import command, wrk
from load_tests.filling import BANDIT, decide, fill
from load_tests.wrk import Run
from studies.measurement import report

CONNECTIONS = 32
FULL = {"arms": 100_000, "dim": 32, "keys": 10_000, "rounds": 24, "seconds": 2}
QUICK = {"arms": 5_000, "dim": 32, "keys": 500, "rounds": 9, "seconds": 1}
SEED = 1
WRITTEN_S = 0.5  # what was logged is written
LOGS: Mapping[str, Any] = {"off": None, "tenth": {"share": 0.1}, "all": {"share": 1.0}}
TARGETS = {"tenth": 0.97, "all": 0.85}


@dataclass(frozen=True)
class Logging:
    """One run of wrk. ``cpu_us``: of a choice, in the service and its store; None where it is unknown."""

    run: Run
    cpu_us: float | None


Round = Mapping[str, Logging]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 when it could not be measured."""
    return command.run("decision_log_cost", measure, arguments, description=__doc__, full=FULL, quick=QUICK)


def measure(*, arms: int, dim: int, keys: int, rounds: int, seconds: int) -> dict[str, Any]:
    """The figures of all rounds; prints them as a table."""
    with temporary_service() as service:
        _say(f"filling: {arms:,} arms of dimension {dim}, {keys:,} keys")
        fill(service, arms=arms, dim=dim, keys=keys, seed=SEED)
        decide(service, keys, keys)  # every learner is in memory from now on
        _say(f"choose: {rounds} rounds of {len(LOGS)} times {seconds} s")
        found = [_round(service, keys, seconds, first=number) for number in range(rounds)]
        dropped = _dropped(service)
    rows = [_row(name, found) for name in LOGS]
    result = report("decision_log_cost", rows, seed=SEED)
    for row in rows:
        if (target := TARGETS.get(row["log"])) is not None:
            verdict = "reached" if row["ratio"] >= target else "missed"
            costs = "" if row["cpu_ratio"] is None else f", {row['cpu_ratio']:.2f} times the processor time"
            print(
                f"log of {row['log']}: {row['ratio']:.1%} of the throughput{costs}; "
                f"target {target:.0%} of the throughput: {verdict}"
            )
    print(f"rows dropped: {dropped:g}")
    setting = {"arms": arms, "dim": dim, "keys": keys, "rounds": rounds, "seconds": seconds}
    return result | {"setting": setting | {"connections": CONNECTIONS}, "rows_dropped": dropped}


def _round(service: Server, keys: int, seconds: int, *, first: int) -> Round:
    names = list(LOGS)
    found: dict[str, Logging] = {}
    for place in range(len(names)):
        name = names[(first + place) % len(names)]
        with service.connect() as client:
            client.patch_bandit(BANDIT, log=LOGS[name])
        before = wrk.family_cpu_s(service.pid)
        run = wrk.drive(service, "choose", BANDIT, keys, seconds=seconds, connections=CONNECTIONS)
        time.sleep(WRITTEN_S)
        after = wrk.family_cpu_s(service.pid)
        spent = None if before is None or after is None else 1e6 * (after - before) / run.requests
        found[name] = Logging(run, spent)
    return found


def _row(name: str, rounds: Sequence[Round]) -> dict[str, Any]:
    runs = [found[name].run for found in rounds]
    ratios = [found[name].run.per_s / found["off"].run.per_s for found in rounds]
    costs = [
        (own, off)
        for own, off in ((found[name].cpu_us, found["off"].cpu_us) for found in rounds)
        if own is not None and off is not None
    ]
    return {
        "log": name,
        "per_s": statistics.median(run.per_s for run in runs),
        "p50_ms": statistics.median(run.p50_ms for run in runs),
        "p99_ms": statistics.median(run.p99_ms for run in runs),
        "cpu_us": statistics.median(own for own, _ in costs) if costs else None,
        "ratio": statistics.median(ratios),
        "cpu_ratio": statistics.median(own / off for own, off in costs) if costs else None,
        "ratios": [round(ratio, 4) for ratio in ratios],
    }


def _dropped(service: Server) -> float:
    """Rows that the service could not write in time: with some, the figures are too good."""
    with service.connect() as client:
        lines = client.metrics().splitlines()
    found = [line for line in lines if line.startswith('shortlist_log_rows_total{outcome="dropped"}')]
    return float(found[0].split()[-1]) if found else 0.0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
