"""An hour at half load: does the memory of a service stay where it is?

    python -m load_tests.soak [--minutes 60] [--json FILE]

One service process with the embedded store. A client chooses, rewards and now and then replaces arms, first
as fast as it can, to know what full load is, then at half of that. Resident memory is read every few seconds;
the slope is that of a least-squares line after the first quarter, with its standard error from blocks of
samples. Decisions, duplicate checks and the log live for two minutes, so that the store could stay level too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from examples.service import Server, temporary_service
from load_tests.filling import BANDIT, CATALOGUE, fill
from studies.measurement import report

ARMS, DIM, KEYS = 5_000, 16, 1_000
FULL_S = 20.0
SAMPLES = 720
WARM_SHARE = 0.25
BLOCKS = 12
REPLACE_EVERY = 50
LIVES_S = "120"
TARGET_MB_PER_H = 1.0
SEED = 1


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and every sample")
    parsed = parser.parse_args(arguments)
    settings = {"SHORTLIST_TOKEN_TTL_S": LIVES_S, "SHORTLIST_REWARD_LOG_S": LIVES_S}
    with temporary_service(**settings) as service:
        fill(service, arms=ARMS, dim=DIM, keys=KEYS, seed=SEED)
        result = soak(service, parsed.minutes * 60)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def soak(service: Server, seconds: float) -> dict[str, Any]:
    """Drive the service, and report rates, latencies and slopes."""
    choose_s: list[float] = []
    turn = _turns(service, choose_s)
    full = _pace(turn, time.monotonic() + FULL_S, 0.0, lambda: None)
    pids = {"service": service.pid, "store": _child(service.pid)}
    samples: list[list[float]] = []
    began = time.monotonic()

    def sample() -> None:
        now = time.monotonic() - began
        if not samples or now - samples[-1][0] >= seconds / SAMPLES:
            samples.append([now, *(_rss_mb(pid) for pid in pids.values())])

    choose_s.clear()
    half = _pace(turn, began + seconds, 2 / full, sample)
    p50, p99 = np.quantile(choose_s, (0.5, 0.99)) * 1e3
    rows = [_slope(name, np.array(samples), column) for column, name in enumerate(pids, start=1)]
    setting = {"arms": ARMS, "dim": DIM, "keys": KEYS, "minutes": seconds / 60, "turns_per_s": [full, half]}
    print(f"{half:.0f} turns/s of {full:.0f}; choose p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    result = report("soak", rows, seed=SEED)
    _conclude(rows[0])
    samples_mb = [[round(value, 2) for value in sample] for sample in samples[:: max(1, len(samples) // 120)]]
    return result | {"setting": setting, "choose_ms": {"p50": p50, "p99": p99}, "samples_s_mb": samples_mb}


def _turns(service: Server, choose_s: list[float]) -> Iterator[None]:
    """One turn after the other: choose, reward, and every so often a new version of an arm.

    ``choose_s`` is given the seconds of every choice.
    """
    rng = np.random.default_rng(SEED)
    with service.connect() as client:
        for number in range(1 << 62):
            key = f"user-{rng.integers(KEYS):05d}"
            began = time.perf_counter()
            choice = client.choose(BANDIT, once=False, key=key)
            choose_s.append(time.perf_counter() - began)
            client.reward(choice.decision, rng.normal())
            if number % REPLACE_EVERY == 0:
                client.upsert_arms(CATALOGUE, rng.normal(size=(1, DIM)), ids=[f"arm-{rng.integers(ARMS)}"])
            yield


def _pace(turn: Iterator[None], until: float, every_s: float, between: Callable[[], None]) -> float:
    """Turns ``every_s`` seconds until a time, and what is done between them; returns turns a second."""
    began, turns = time.monotonic(), 0
    while (now := time.monotonic()) < until:
        next(turn)
        turns += 1
        between()
        time.sleep(max(0.0, began + turns * every_s - now))
    return turns / (time.monotonic() - began)


def _slope(name: str, samples: np.ndarray[Any, np.dtype[np.float64]], column: int) -> dict[str, Any]:
    """MB an hour after the warm-up; the error is that of a line through the means of blocks."""
    warm = samples[samples[:, 0] >= WARM_SHARE * samples[-1, 0]]
    blocks = np.array([block[:, (0, column)].mean(axis=0) for block in np.array_split(warm, BLOCKS)])
    hours, sizes = blocks[:, 0] / 3600, blocks[:, 1]
    (slope, _), covariance = np.polyfit(hours, sizes, 1, cov=True)
    return {
        "process": name,
        "mb_per_h": float(slope),
        "standard_error": float(np.sqrt(covariance[0, 0])),
        "mb_warm": float(sizes[0]),
        "mb_end": float(sizes[-1]),
    }


def _conclude(row: dict[str, Any]) -> None:
    verdict = "reached" if row["mb_per_h"] < TARGET_MB_PER_H else "missed"
    print(f"service: {row['mb_per_h']:+.2f} MB/h; target below {TARGET_MB_PER_H:g}: {verdict}")


def _child(pid: int) -> int:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


def _rss_mb(pid: int) -> float:
    """Resident memory without files: a graph that is being written would count as the service's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return float(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


if __name__ == "__main__":
    sys.exit(main())
