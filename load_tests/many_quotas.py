"""What do as many quotas as a bandit may have do to choices, and to everybody else? Linux only.

    python -m load_tests.many_quotas [--arms N] [--quotas N] [--dim N] [--quick] [--json FILE]

One service process with the embedded store, and bandits over one catalogue: one without quotas, one with a
quota for each campaign. A third have an even pace, and a twentieth are used up after two. While quotas are
put, arms change, arms are deleted, lists are chosen and quotas are deleted, a process of its own probes
``/healthz`` and choices of that bandit.

    healthz_ms, choose_ms   the longest wait of a probe; busy_ms, late_ms as in ``load_tests.stalls``
    each_ms                 median time of a step: a PUT, a change of an arm, ...
    added_us                time of a choice with quotas - that of one without, at the tenth quantile; at the
                            median: added_p50_us. Blocks of both take turns. added_cpu_us: CPU of the service
    service_gb              memory of the service (proportional set size), before and after
    rest_cores              what the service uses of a core while nobody asks, without and with the quotas,
                            once the work that changes of arms have left, such as graphs, is done
    paced_rest_cores        likewise, with 100 groups of campaigns with an even pace, which make up half of
                            the catalogue; paced_added_us of a choice with those
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from examples.service import Server, temporary_service
from load_tests.stalls import Answer, cpu_s, probed, probing
from shortlist_client import Client
from shortlist_client.bodies import QuotaBody
from studies.measurement import report

SEED = 52
BATCH = 1_000
FULL, QUICK = (1_000_000, 10_000, 16), (20_000, 300, 8)
STEPS, DAY_S = 100, 86_400
TOGETHER = 4  # steps that are under way at once
TURNS, TURN = 150, 20
CAMPAIGNS = 100
REST_S, SETTLE_S = 5.0, 900.0
WINDOW_S, QUIET_WINDOWS, QUIET_CORES = 0.5, 10, 0.1  # at rest: so many windows, with less than that in each
WORDS = ("new", "sale", "old", "late")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.many_quotas", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="300 quotas over 20,000 arms")
    for name, own in zip(("--arms", "--quotas", "--dim"), ("arms", "quotas", "dimensions"), strict=True):
        parser.add_argument(name, type=int, metavar="N", help=f"how many {own}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and all figures")
    parsed = parser.parse_args(arguments)
    arms, quotas, dim = QUICK if parsed.quick else FULL
    row = measured(parsed.arms or arms, parsed.quotas or quotas, parsed.dim or dim)
    result = report("many_quotas", [row], seed=SEED)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def measured(arms: int, quotas: int, dim: int) -> dict[str, Any]:
    """All figures of one catalogue."""
    row: dict[str, Any] = {"arms": arms, "quotas": quotas, "dim": dim}

    def note(**figures: float) -> None:
        row.update(figures)
        print(
            ", ".join(f"{name} {value:,.3f}" for name, value in figures.items()), file=sys.stderr, flush=True
        )

    rng = np.random.default_rng(SEED)
    with temporary_service() as service, service.connect(timeout_s=SETTLE_S) as client:
        client.put_catalogue("c", dim=dim)
        client.import_arms("c", (line for line in _lines(arms, quotas, dim, rng)))
        for bandit in ("plain", "many", "paced"):
            client.put_bandit(bandit, catalogue="c", policy="sub_ts")
        note(service_gb_before=_pss(service.pid) / 2**30, rest_cores_before=_rest_cores(service, client))
        probes = {"healthz": _request("GET", "/healthz"), "choose": _choose("many")}
        with probing(service, probes) as prober:
            phases = _phases(client, arms, quotas, dim, rng)
            for name, step, steps in phases:
                with probed(prober) as waits, ThreadPoolExecutor(TOGETHER) as threads:
                    each = [*threads.map(partial(_timed, step), range(steps))]
                found = waits[0]._asdict() | {"each_ms": float(np.median(each)), "most_ms": max(each)}
                note(**{f"{name}_{figure}": value for figure, value in found.items()})
                if name == "put":
                    note(service_gb=_pss(service.pid) / 2**30, rest_cores=_rest_cores(service, client))
                    note(**_added(service, "many"))
        for number in range(CAMPAIGNS):
            body: QuotaBody = {"filter": {"group": number}, "most": 10**4, "per_s": DAY_S}
            body["pace"], body["from"] = "even", datetime.now(UTC).isoformat()
            client.put_quota("paced", f"p{number}", **body)
        note(paced_rest_cores=_rest_cores(service, client))
        note(**{f"paced_{name}": value for name, value in _added(service, "paced").items()})
    return row


def _lines(arms: int, quotas: int, dim: int, rng: np.random.Generator) -> Iterator[bytes]:
    for first in range(0, arms, BATCH):
        rows = range(first, min(first + BATCH, arms))
        features = rng.standard_normal((len(rows), dim)).round(4).tolist()
        yield b"".join(
            json.dumps({"id": f"a{row}", "features": own, **_described(row, arms, quotas)}).encode() + b"\n"
            for row, own in zip(rows, features, strict=True)
        )


def _described(row: int, arms: int, quotas: int) -> dict[str, Any]:
    """The tags and metadata of an arm: one of ten has no stock, and one of seven no tag."""
    metadata = {
        "campaign": row % quotas,
        "group": 2 * CAMPAIGNS * row // arms,
        "word": WORDS[row % len(WORDS)],
    }
    if row % 10:
        metadata["stock"] = row % 7
    return {"metadata": metadata, "tags": ["shown"] if row % 7 else []}


def _phases(
    client: Client, arms: int, quotas: int, dim: int, rng: np.random.Generator
) -> list[tuple[str, Callable[[int], object], int]]:
    def put(number: int) -> None:
        body: QuotaBody = {"filter": {"campaign": number}, "most": 10**9, "per_s": DAY_S}
        if number % 20 == 1:
            body["most"] = 2
        if number % 3 == 0:
            body["pace"] = "even"
        client.put_quota("many", f"q{number}", **body)

    def change(number: int) -> None:
        described = _described(number * 7, arms, quotas)
        described["metadata"]["campaign"] = int(rng.integers(quotas))
        features = rng.standard_normal((1, dim))
        row = {"id": f"a{number * 7}", "features": features[0].tolist(), **described}
        client.import_arms("c", json.dumps(row).encode() + b"\n")

    def delete_arm(number: int) -> None:
        client.delete_arms("c", [f"a{number * 11 + 3}"])

    def choose(_: int) -> None:
        client.choose("many", k=10, once=False)

    def delete_quota(number: int) -> None:
        client.delete_quota("many", f"q{number}")

    return [
        ("put", put, quotas),
        ("change", change, STEPS),
        ("delete_arm", delete_arm, STEPS),
        ("list", choose, STEPS),
        ("delete_quota", delete_quota, min(STEPS, quotas)),
    ]


def _timed(step: Callable[[int], object], number: int) -> float:
    began = time.perf_counter()
    step(number)
    return 1e3 * (time.perf_counter() - began)


def _added(service: Server, bandit: str) -> dict[str, float]:
    """What a choice of this bandit costs more than one of the plain one, in microseconds."""
    requests = {name: _choose(name) for name in ("plain", bandit)}
    times: Mapping[str, list[float]] = {name: [] for name in requests}
    used = dict.fromkeys(requests, 0.0)
    with socket.create_connection((service.host, service.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for turn in range(TURNS + 1):
            for name, request in requests.items():
                before = cpu_s(service.pid)
                for _ in range(TURN):
                    began, answer = time.perf_counter(), Answer()
                    connection.sendall(request)
                    while not answer.complete:
                        answer.take(connection.recv(1 << 16))
                    if answer.status != 200:
                        raise ConnectionError(f"a choice was answered with {answer.status}")
                    if turn:  # not the first ones
                        times[name].append(1e6 * (time.perf_counter() - began))
                used[name] += cpu_s(service.pid) - before
    low, middle = (
        float(np.quantile(times[bandit], share) - np.quantile(times["plain"], share)) for share in (0.1, 0.5)
    )
    cpu = (used[bandit] - used["plain"]) / ((TURNS + 1) * TURN)
    return {"added_us": low, "added_p50_us": middle, "added_cpu_us": 1e6 * cpu}


def _rest_cores(service: Server, client: Client) -> float:
    used_s = partial(cpu_s, service.pid)
    if not settled(lambda: client.get_catalogue("c").index["state"] == "ready", used_s, time.sleep):
        print(
            f"no rest within {SETTLE_S:.0f} s: what follows was measured beside other work", file=sys.stderr
        )
    before = used_s()
    time.sleep(REST_S)
    return (used_s() - before) / REST_S


def settled(
    is_ready: Callable[[], bool], used_s: Callable[[], float], sleep: Callable[[float], object]
) -> bool:
    """Wait until an index is ready and the process rests; False if it does not within ``SETTLE_S``.

    ``used_s``: its CPU time so far. An index that is ready may be built anew in the background all the same.
    """
    quiet = 0
    for _ in range(round(SETTLE_S / WINDOW_S)):
        before = used_s()
        sleep(WINDOW_S)
        is_quiet = used_s() - before < QUIET_CORES * WINDOW_S
        quiet = quiet + 1 if is_quiet and is_ready() else 0
        if quiet == QUIET_WINDOWS:
            return True
    return False


def _choose(bandit: str) -> bytes:
    return _request("POST", f"/v1/bandits/{bandit}/choose", b"{}")


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )


def _pss(pid: int) -> int:
    """Memory of the process in bytes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


if __name__ == "__main__":
    sys.exit(main())
