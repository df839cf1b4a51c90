"""What a catalogue costs by its size: import, memory, builds, latency, restart. Linux only.

    python -m load_tests.scale [--arms N] [--dim N] [--workers N] [--restart] [--json FILE]

Gaussian arms are imported from a file by `shortlist import` into a service with its embedded store. One
client chooses all the while, until the index is at rest. Then choices are timed one after the other, and
``QUERIES`` searches by the index are compared with exact ones. Where wrk is, it says how many choices there
are in a second, and what processor time each took. ``--workers``: so many service processes share the arms.
``--restart``: service and store are killed and started again; the first choice and the first one by the
index are timed, and how long after the first process the last one was ready.

Memory is what Linux counts for service and store together (proportional set size), looked at every two
seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from examples.service import SHORTLIST, Server, running
from load_tests import wrk
from shortlist_client import Client, ShortlistError
from studies.measurement import report

ARMS, DIM, SEED = 1_000_000, 32, 1
LOOK_S, POLL_S = 2.0, 0.5
QUIET_S, LONGEST_S = 30.0, 4 * 3_600.0
REST_S, REST = 30.0, 1.2  # an index rests for as long as its last build took
CHOICES, QUERIES, KEYS = 2_000, 100, 100
BLOCK = 250_000
LOADED_S, CONNECTIONS = 20, 32


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.scale", description=__doc__)
    parser.add_argument("--arms", type=int, default=ARMS)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--restart", action="store_true", help="also kill it and start it again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and all figures")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        row = measured(Path(folder), parsed.arms, parsed.dim, workers=parsed.workers, restart=parsed.restart)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(report("scale", [row], seed=SEED), indent=1) + "\n")
    return 0


def measured(folder: Path, arms: int, dim: int, *, workers: int, restart: bool) -> dict[str, Any]:
    """All figures of one catalogue."""
    folder.mkdir(exist_ok=True)
    file = _file(folder, arms, dim)
    row: dict[str, Any] = {"arms": arms, "dim": dim, "workers": workers}

    def note(**figures: float | str) -> None:
        row.update(figures)
        shown = (
            f"{name} {value:,.3f}" if isinstance(value, float) else f"{name} {value}"
            for name, value in figures.items()
        )
        print(", ".join(shown), flush=True)

    with (
        _service(folder, workers) as server,
        _memory(server.pid) as memory,
        Client(server.url, timeout_s=600) as client,
    ):
        client.put_catalogue("c", dim=dim)
        client.put_bandit("b", catalogue="c", policy="sub_ts", scope="per_key")
        with _choosing(server) as times_ms:
            began, cpu_s = time.monotonic(), _cpu_s(server.pid)
            subprocess.run(
                [sys.executable, "-c", SHORTLIST, "import", "c", file, "--url", server.url],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            took_s = time.monotonic() - began
            note(import_s=took_s, arms_per_s=arms / took_s, import_peak_gb=max(memory) / 2**30)
            note(import_p50_ms=float(np.median(times_ms)), import_p99_ms=float(np.quantile(times_ms, 0.99)))
            note(built_s=_await_rest(server), build_cpu_s=_cpu_s(server.pid) - cpu_s)
        note(
            peak_gb=max(memory) / 2**30,
            gb=_pss(_tree(server.pid)) / 2**30,
            service_gb=_pss(_processes(server.pid)) / 2**30,
        )
        index = client.get_catalogue("c").index
        note(
            kind=str(index["kind"]),
            recall_at_1=float(index["recall_at_1"] or 1.0),
        )
        note(**_latency(client), **_ratio(client, dim))
        if shutil.which("wrk") is not None:
            note(**_throughput(server))
        note(
            disk_gb=sum(each.stat().st_size for each in (folder / "data").rglob("*") if each.is_file())
            / 2**30
        )
        for pid in _tree(server.pid):
            os.kill(pid, signal.SIGKILL)
    if restart:
        began = time.monotonic()
        with (
            _service(folder, workers) as server,
            _memory(server.pid) as memory,
            Client(server.url, timeout_s=600) as client,
        ):
            _await(lambda: client.choose("b", key="u0", once=False))
            note(restart_s=time.monotonic() - began)
            _await(lambda: client.get_catalogue("c").index["kind"] == row["kind"] or None)
            note(restart_index_s=time.monotonic() - began)
            note(processes_apart_s=_processes_apart_s(folder / "service.log"))
            note(restart_rest_s=_await_rest(server), restart_peak_gb=max(memory) / 2**30)
            note(restart_service_gb=_pss(_processes(server.pid)) / 2**30)
    return row


def _file(folder: Path, arms: int, dim: int) -> Path:
    """A matrix of float32, written block by block."""
    rng, path = np.random.default_rng(SEED), folder / "arms.npy"
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(arms, dim))
    for first in range(0, arms, BLOCK):
        block = rows[first : first + BLOCK]
        block[:] = rng.standard_normal(block.shape, dtype=np.float32)
    rows.flush()
    with (folder / "arms.ids").open("w") as ids:
        ids.writelines(f"arm-{number}\n" for number in range(arms))
    return path


@contextmanager
def _service(folder: Path, workers: int) -> Iterator[Server]:
    options = ["--log-level", "info", "--data-dir", f"{folder}/data", "--workers", str(workers)]
    command = ["-c", SHORTLIST, "serve", "--port", "0", *options]
    with running(command, log=folder / "service.log", start_s=LONGEST_S) as server:
        yield server


@contextmanager
def _choosing(server: Server) -> Iterator[list[float]]:
    """One client that chooses twenty times a second; milliseconds of each choice."""
    times_ms: list[float] = []
    ends = threading.Event()

    def choose() -> None:
        with Client(server.url, timeout_s=600) as client:
            while not ends.wait(0.05):
                began = time.perf_counter()
                try:
                    client.choose("b", key=f"u{len(times_ms) % KEYS}", once=False)
                except ShortlistError:  # before the first arm is there
                    continue
                times_ms.append(1e3 * (time.perf_counter() - began))

    with _thread(choose, ends):
        yield times_ms


@contextmanager
def _memory(pid: int) -> Iterator[list[int]]:
    """Bytes of the service and its store, again and again."""
    found = [_pss(_tree(pid))]
    ends = threading.Event()

    def look() -> None:
        while not ends.wait(LOOK_S):
            found.append(_pss(_tree(pid)))

    with _thread(look, ends):
        yield found


@contextmanager
def _thread(work: Callable[[], None], ends: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def _tree(pid: int) -> list[int]:
    """A process and all that it has started."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def _pss(pids: Sequence[int]) -> int:
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
    return total


def _processes(pid: int) -> list[int]:
    """The processes of the service, without the store's."""
    store = re.compile(rb"redis|valkey")
    return [each for each in _tree(pid) if not store.search(Path(f"/proc/{each}/cmdline").read_bytes()[:200])]


def _cpu_s(pid: int) -> float:
    """Processor time of the service without the store."""
    return sum(wrk.cpu_s(each) or 0.0 for each in _processes(pid))


def _processes_apart_s(log: Path) -> float:
    """How long after the first process of the service the last one was ready; 0 for one."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if "service process" in line]
    times = [datetime.fromisoformat(line["time"]) for line in lines if line["message"].endswith("is ready")]
    return (max(times) - min(times)).total_seconds() if times else 0.0


def _throughput(server: Server) -> dict[str, float]:
    """Choices a second, and processor time of service and store for each."""
    before = sum(wrk.cpu_s(each) or 0.0 for each in _tree(server.pid))
    run = wrk.drive(server, "choose", "b", KEYS, seconds=LOADED_S, connections=CONNECTIONS)
    spent = sum(wrk.cpu_s(each) or 0.0 for each in _tree(server.pid)) - before
    return {"choices_per_s": run.per_s, "cpu_us": 1e6 * spent / run.requests}


def _await_rest(server: Server) -> float:
    """Seconds until the index has nothing to do; then it has had nothing to do for ``QUIET_S``.

    Each look is a new connection, so that it meets any process of the service. Fresh arms may be taken over
    after a rest as long as the last build took.
    """
    began = last = built = rested = time.monotonic()
    while time.monotonic() - last < QUIET_S:
        time.sleep(POLL_S)
        with Client(server.url, timeout_s=600) as client:
            index, now = client.get_catalogue("c").index, time.monotonic()
        if index["state"] != "ready":
            last = built = now
            continue
        rests_until = built + REST_S + REST * (built - rested) if index["fresh"] else now
        if index["fresh"] > 0.02 * index["size"] or now < rests_until:
            last = now
        else:
            rested = now
        if last - began > LONGEST_S:
            raise TimeoutError("the index does not come to rest")
    return last - began


def _await(asked: Callable[[], object]) -> None:
    """Until it answers something; an error of the service is not yet."""
    while True:
        try:
            if asked() is not None:
                return
        except ShortlistError:
            pass
        time.sleep(0.02)


def _latency(client: Client) -> dict[str, float]:
    times_ms = []
    for number in range(CHOICES):
        began = time.perf_counter()
        client.choose("b", key=f"u{number % KEYS}", once=False)
        times_ms.append(1e3 * (time.perf_counter() - began))
    return {"p50_ms": float(np.median(times_ms)), "p99_ms": float(np.quantile(times_ms, 0.99))}


def _ratio(client: Client, dim: int) -> dict[str, float]:
    """The best score found / the best there is, in the mean, and how often the best arm is found."""
    rng, ratios, hits = np.random.default_rng(SEED + 1), [], 0
    for _ in range(QUERIES):
        query = rng.standard_normal(dim).tolist()
        found, best = (client.mips("c", query=query, method=method).arms[0] for method in ("hnsw", "exact"))
        ratios.append(found.value / best.value)
        hits += found.id == best.id
    return {"ratio": float(np.mean(ratios)), "found": hits / QUERIES}


if __name__ == "__main__":
    raise SystemExit(main())
