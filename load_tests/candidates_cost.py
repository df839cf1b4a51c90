"""What candidates of a request cost: processor time of a choice among 200, beside one among a single arm.

    python -m load_tests.candidates_cost [--quick]

One bandit over a large catalogue is asked in turns: among one id, among 200 ids, which are others in each
request, and among 200 arms that the request brings; a second bandit logs its decisions. What counts is the
processor time of the service process, which reads and answers the requests. A choice without candidates,
which searches the catalogue, depends on its index; here it scans all arms, so ``--quick`` alone tells of it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from examples.service import Server, temporary_service

FULL, QUICK = 1_000_000, 20_000
DIM, CANDIDATES, KEYS, SEED = 32, 200, 100, 1
TOGETHER = 10_000
REQUESTS = 500  # of a turn
DIGITS = 4  # of a number: 200 arms are a body of 60 kB
TICKS = os.sysconf("SC_CLK_TCK")
Bodies = Callable[[np.random.Generator, int], Sequence[bytes]]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.candidates_cost", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer arms and rounds")
    quick = parser.parse_args(arguments).quick
    arms, rounds = (QUICK, 6) if quick else (FULL, 20)
    rng, used = np.random.default_rng(SEED), {name: list[float]() for name in KINDS}
    with temporary_service() as service:
        _fill(service, rng, arms)
        kinds = KINDS if quick else {name: kind for name, kind in KINDS.items() if name != NOTHING}
        for turn in range(rounds + 1):
            for name, (bandit, bodies) in list(kinds.items())[:: 1 if turn % 2 else -1]:
                us = _ask(service, bandit, bodies(rng, arms))
                if turn:  # the first reads learners into memory
                    used[name].append(us)
    print(f"{arms:,} arms of {DIM} numbers, {CANDIDATES} candidates; us of the processor a choice:")
    for name in kinds:
        found = used[name]
        more = [with_them - without for with_them, without in zip(found, used[BASE], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        print(f"{name}: {statistics.median(found):.0f}; {middle:+.0f} (quartiles {low:+.0f}, {high:+.0f})")
    return 0


def _fill(service: Server, rng: np.random.Generator, arms: int) -> None:
    with service.connect() as client:
        client.put_catalogue("c", dim=DIM, index={"kind": "exact"})
        for first in range(0, arms, TOGETHER):
            ids = [f"arm-{row}" for row in range(first, first + TOGETHER)]
            client.upsert_arms("c", rng.standard_normal((TOGETHER, DIM)), ids=ids)
        client.put_bandit("plain", catalogue="c", policy="sub_ts", scope="per_key")
        client.put_bandit("logged", catalogue="c", policy="sub_ts", scope="per_key", log={})


def _ask(service: Server, bandit: str, bodies: Sequence[bytes]) -> float:
    """Microseconds of the service's processor time for each."""
    connection = http.client.HTTPConnection(service.host, service.port)
    before_s = _cpu_s(service.pid)
    for body in bodies:
        connection.request("POST", f"/v1/bandits/{bandit}/choose", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"a choice was refused: {text.decode()}")
    used_s = _cpu_s(service.pid) - before_s
    connection.close()
    return 1e6 * used_s / len(bodies)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _bodies(candidates: Callable[[np.random.Generator, int], object]) -> Bodies:
    def made(rng: np.random.Generator, arms: int) -> Sequence[bytes]:
        asked = (
            {"key": f"user-{n % KEYS:05d}", "candidates": candidates(rng, arms)} for n in range(REQUESTS)
        )
        return [json.dumps({name: value for name, value in body.items() if value}).encode() for body in asked]

    return made


def _none(rng: np.random.Generator, arms: int) -> None:
    return None


def _one(rng: np.random.Generator, arms: int) -> list[str]:
    return [f"arm-{rng.integers(arms)}"]


def _ids(rng: np.random.Generator, arms: int) -> list[str]:
    return [f"arm-{row}" for row in rng.choice(arms, CANDIDATES, replace=False)]


def _own(rng: np.random.Generator, arms: int) -> list[dict[str, object]]:
    rows = rng.standard_normal((CANDIDATES, DIM)).round(DIGITS).tolist()
    return [{"id": f"new-{number}", "features": row} for number, row in enumerate(rows)]


BASE, NOTHING = "one id", "no candidates"
KINDS: Mapping[str, tuple[str, Bodies]] = {
    BASE: ("plain", _bodies(_one)),
    NOTHING: ("plain", _bodies(_none)),
    "200 ids": ("plain", _bodies(_ids)),
    "200 arms of the request": ("plain", _bodies(_own)),
    "one id, logged": ("logged", _bodies(_one)),
    "200 ids, logged": ("logged", _bodies(_ids)),
    "200 arms of the request, logged": ("logged", _bodies(_own)),
}

if __name__ == "__main__":
    sys.exit(main())
