"""What the decision log costs choices: their throughput with the log on, beside that with it off.

    python -m load_tests.decision_log_cost [--quick] [--json FILE]

One service process with the embedded store and one bandit. Its ``log`` is changed between runs of wrk: off, a
tenth of the decisions, all; in the next round the other way round. What counts are the ratios within a round:
the machine may be busy with other things.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.measurement import report
from examples.service import Server, temporary_service
from load_tests import command, wrk
from load_tests.filling import BANDIT, decide, fill
from load_tests.wrk import Run

CONNECTIONS = 32
FULL = {"arms": 100_000, "dim": 32, "keys": 10_000, "rounds": 6, "seconds": 5}
QUICK = {"arms": 5_000, "dim": 32, "keys": 500, "rounds": 4, "seconds": 2}
SEED = 1
HEARD_S = 1.0  # a change of the bandit holds, and what was logged is written
LOGS: Mapping[str, Any] = {"off": None, "tenth": {"share": 0.1}, "all": {"share": 1.0}}
TARGETS = {"tenth": 0.97, "all": 0.85}

Round = Mapping[str, Run]


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
        found = [_round(service, keys, seconds, backwards=bool(number % 2)) for number in range(rounds)]
        dropped = _dropped(service)
    rows = [_row(name, found) for name in LOGS]
    result = report("decision_log_cost", rows, seed=SEED)
    for row in rows:
        if (target := TARGETS.get(row["log"])) is not None:
            verdict = "reached" if row["ratio"] >= target else "missed"
            print(
                f"log of {row['log']}: {row['ratio']:.1%} of the throughput; target {target:.0%}: {verdict}"
            )
    print(f"rows dropped: {dropped:g}")
    setting = {"arms": arms, "dim": dim, "keys": keys, "rounds": rounds, "seconds": seconds}
    return result | {"setting": setting | {"connections": CONNECTIONS}, "rows_dropped": dropped}


def _round(service: Server, keys: int, seconds: int, *, backwards: bool) -> Round:
    runs: dict[str, Run] = {}
    for name in sorted(LOGS, key=list(LOGS).index, reverse=backwards):
        with service.connect() as client:
            client.patch_bandit(BANDIT, log=LOGS[name])
        time.sleep(HEARD_S)
        runs[name] = wrk.drive(service, "choose", BANDIT, keys, seconds=seconds, connections=CONNECTIONS)
    return runs


def _row(name: str, rounds: Sequence[Round]) -> dict[str, Any]:
    ratios = [runs[name].per_s / runs["off"].per_s for runs in rounds]
    cpu = [run.cpu_us for run in (runs[name] for runs in rounds) if run.cpu_us is not None]
    return {
        "log": name,
        "per_s": statistics.median(runs[name].per_s for runs in rounds),
        "p50_ms": statistics.median(runs[name].p50_ms for runs in rounds),
        "p99_ms": statistics.median(runs[name].p99_ms for runs in rounds),
        "cpu_us": statistics.median(cpu) if cpu else None,
        "ratio": statistics.median(ratios),
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
