"""What does the heaviest request of every route do to all others?

    python -m load_tests.stalls [--only PATTERN] [--quick] [--list] [--json FILE]

One service process with the embedded store. For each kind of request the heaviest one is sent, at the limits
of its route or beyond them, while a process of its own probes ``/healthz`` and a small choice every 20 ms.
The table shows how long a probe had to wait at worst, in milliseconds.

    control_ms      the same without the request, before it: what the machine itself does to probes
    busy_ms         CPU time of the service during a wait, at worst: on a busy machine a wait may be long
                    although the service does little, and this is what counts
    late_ms         how late the probing process was itself woken: above a few ms the machine is busy
    answer_ms       time until the answer had arrived

A kind whose probes waited for more than ``REPEAT_MS`` is sent again, up to ``TIMES`` times, and the best time
counts: a stall comes back, a busy machine does not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import re
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from examples.service import Server, temporary_service
from load_tests.heavy_log_requests import ALL_KINDS
from load_tests.heavy_requests import Request, World
from studies.measurement import report

PROBE_EVERY_S = 0.02
BEFORE_S, AFTER_S = 0.3, 0.5
SILENCE_S = 600.0
REPEAT_MS, TIMES = 100.0, 3
SEED = 1


class Waits(NamedTuple):
    """The longest waits of probes, what the service did meanwhile, and how late the prober itself was."""

    healthz_ms: float
    choose_ms: float
    busy_ms: float
    late_ms: float


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.stalls", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", default="", help="only kinds whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="without the kinds that take long to set up")
    parser.add_argument("--list", action="store_true", help="print the names of all kinds, and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and every wait")
    parsed = parser.parse_args(arguments)
    wanted = [kind for kind in ALL_KINDS if not (parsed.quick and kind.slow)]
    wanted = [kind for kind in wanted if re.search(parsed.only, kind.name)]
    if parsed.list:
        print("\n".join(kind.name for kind in wanted))
        return 0
    rows = []
    with stalls() as measure:
        for kind in wanted:
            rows.append(measure(kind.name, kind.make))
            row = rows[-1]
            print(
                f"{kind.name}: {row['wait_ms']:.0f} ms, busy {row['busy_ms']:.0f} ms",
                file=sys.stderr,
                flush=True,
            )
    result = report("stalls", rows, seed=SEED)
    print(f"longest wait: {max(row['wait_ms'] for row in rows):.0f} ms")
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


Measure = Callable[[str, Callable[[World], Request]], dict[str, Any]]


@contextmanager
def stalls() -> Iterator[Measure]:
    """A service, and a function that measures one kind of request on it."""
    with (
        temporary_service() as service,
        closing(World(service)) as world,
        probing(service, world.probe()) as prober,
    ):

        def measure(name: str, make: Callable[[World], Request]) -> dict[str, Any]:
            found = [_measured(service, world, prober, name, make)]
            while found[-1]["wait_ms"] > REPEAT_MS and len(found) < TIMES:
                found.append(_measured(service, world, prober, name, make))
            return min(found, key=lambda row: row["wait_ms"]) | {"times": len(found)}

        yield measure


def _measured(
    service: Server, world: World, prober: Connection, name: str, make: Callable[[World], Request]
) -> dict[str, Any]:
    request = make(world)
    world.settle()
    with probed(prober) as control:
        time.sleep(1.0)
    with probed(prober) as waits:
        time.sleep(BEFORE_S)
        began = time.perf_counter()
        status, received = exchange(service, request)
        seconds = time.perf_counter() - began
        time.sleep(AFTER_S)
    found, idle = waits[0], control[0]
    return {
        "request": name,
        "sent": len(request.body),
        "status": status,
        "received": received,
        "answer_ms": seconds * 1e3,
        "healthz_ms": found.healthz_ms,
        "choose_ms": found.choose_ms,
        "wait_ms": max(found.healthz_ms, found.choose_ms),
        "busy_ms": found.busy_ms,
        "control_ms": max(idle.healthz_ms, idle.choose_ms),
        "late_ms": found.late_ms,
    }


def exchange(service: Server, request: Request) -> tuple[int, int]:
    """Send the request, read the answer and let it go; returns its status and size.

    An answer may come before the request is sent: the rest of it is then not sent.
    """
    with socket.create_connection((service.host, service.port), timeout=SILENCE_S) as connection:
        connection.setblocking(False)
        waiting = selectors.DefaultSelector()
        waiting.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        pieces = iter(request.pieces())
        unsent = memoryview(next(pieces))
        answer = Answer()
        while not answer.complete:
            ready = waiting.select(SILENCE_S)
            if not ready:
                raise TimeoutError(f"{request.method} {request.path}: no answer")
            if ready[0][1] & selectors.EVENT_READ:
                received = connection.recv(1 << 20)
                if not received:
                    break
                answer.take(received)
            if ready[0][1] & selectors.EVENT_WRITE:
                try:
                    unsent = unsent[connection.send(unsent[: 1 << 20]) :]
                except (BrokenPipeError, ConnectionResetError):
                    unsent, pieces = memoryview(b""), iter(())
                if not unsent:
                    unsent = memoryview(next(pieces, b""))
                if not unsent:
                    waiting.modify(connection, selectors.EVENT_READ)
        return answer.status, answer.size


class Answer:
    """The answer as it comes in: its status, its size, and whether all of it is there."""

    def __init__(self) -> None:
        self.status = self.size = 0
        self.complete = False
        self._head = b""
        self._left: int | None = None
        self._end = b""

    def take(self, data: bytes) -> None:
        self.size += len(data)
        if not self.status:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            first, *fields = head.split(b"\r\n")
            self.status = int(first.split()[1])
            lengths = [line.split(b":")[1] for line in fields if line.lower().startswith(b"content-length:")]
            self._left = int(lengths[0]) if lengths else 0 if self.status == 204 else None
        if self._left is None:
            self._end = (self._end + data)[-5:]
            self.complete = self._end == b"0\r\n\r\n"
        else:
            self._left -= len(data)
            self.complete = self._left <= 0


@contextmanager
def probing(service: Server, probes: Mapping[str, bytes]) -> Iterator[Connection]:
    """A process that sends two kinds of requests, ``/healthz`` first, whenever it is told: ``probed``."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_probe, args=(theirs, service, probes), daemon=True
    )
    process.start()
    theirs.close()  # so that we see it end
    try:
        yield ours
    finally:
        ours.close()
        process.join(SILENCE_S)


@contextmanager
def probed(prober: Connection) -> Iterator[list[Waits]]:
    """Probe while this context lives; afterwards the list holds the waits."""
    found = list[Waits]()
    prober.send("start")
    prober.recv()
    try:
        yield found
    finally:
        prober.send("stop")
        found.append(prober.recv())


@dataclass
class _Line:
    """A connection of the prober. ``sent``: when the probe went off that is not answered yet.

    ``used``: CPU time of the service until then.
    """

    connection: socket.socket
    probe: bytes
    due: float = 0.0
    sent: float | None = None
    answer: Answer = field(default_factory=Answer)
    used: float = 0.0
    longest: float = 0.0
    busiest: float = 0.0


def _probe(control: Connection, service: Server, probes: Mapping[str, bytes]) -> None:
    """The probing process: until the other end of ``control`` is closed."""
    while True:
        try:
            control.recv()
        except EOFError:
            return
        lines = [
            _Line(socket.create_connection((service.host, service.port)), probe) for probe in probes.values()
        ]
        waiting = selectors.DefaultSelector()
        now = time.perf_counter()
        for place, line in enumerate(lines):
            line.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            waiting.register(line.connection, selectors.EVENT_READ, line)
            line.due = now + place * PROBE_EVERY_S / 2
        control.send(None)
        late = _run_probes(lines, waiting, control, service.pid)
        control.recv()
        busiest = max(line.busiest for line in lines)
        found = lines[0].longest, lines[1].longest, busiest, late
        control.send(Waits(*(seconds * 1e3 for seconds in found)))
        for line in lines:
            line.connection.close()


def _run_probes(lines: list[_Line], waiting: selectors.BaseSelector, control: Connection, pid: int) -> float:
    """Probe until told to stop, and until the last probe is answered. Returns how late it was at worst."""
    late, stopping = 0.0, False
    while True:
        now = time.perf_counter()
        for line in lines:
            if line.sent is None and line.due <= now and not stopping:
                late = max(late, now - line.due)
                line.used = cpu_s(pid)
                line.connection.sendall(line.probe)
                line.sent, line.answer = time.perf_counter(), Answer()
        stopping = stopping or control.poll()
        if stopping and all(line.sent is None for line in lines):
            return late
        nexts = [line.due for line in lines if line.sent is None]
        for key, _ in waiting.select(max(0.0, min([*nexts, now + 0.05]) - now)):
            line = key.data
            received = line.connection.recv(1 << 16)
            line.answer.take(received)
            if not received or line.answer.status not in {0, 200}:
                raise ConnectionError(f"a probe was answered with {received[:200]!r}")
            if not line.answer.complete:
                continue
            now = time.perf_counter()
            assert line.sent is not None
            line.longest = max(line.longest, now - line.sent)
            line.busiest = max(line.busiest, cpu_s(pid) - line.used)
            line.sent, line.due = None, max(line.due + PROBE_EVERY_S, now)


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process so far, in seconds."""
    used = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            used += int((thread / "schedstat").read_bytes().split()[0])
    return used / 1e9


if __name__ == "__main__":
    sys.exit(main())
