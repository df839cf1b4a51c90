"""How much processor time does the longest step of the event loop take, request by request?

    python -m load_tests.steps [--arms N] [--only PATTERN] [--quick] [--list] [--json FILE]

One service process on the plain event loop of asyncio, each of whose steps is timed, with the embedded store.
It is sent every choice of ``drawn_choices`` against a catalogue of so many arms, and every kind of request
that ``load_tests.stalls`` sends. Nothing else is answered during a step, so no step may take ``MOST_MS``.

    step_ms         processor time of the longest step of the loop
    held_ms         processor time of the whole process, at worst, between two turns of the loop: a thread
                    that keeps the interpreter's lock keeps the loop waiting, but makes no step longer
    scale           how much slower than on the reference machine a fixed piece of work ran just after it
    worst_ms        the larger of both, divided by ``scale``

Processor time does not count what other processes do, but a shared core is slower: so what takes too long is
divided by ``scale``, and the request is sent again, up to ``TIMES`` times: a stall comes back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from app.platform.settings import Settings
from examples.service import Server
from load_tests.drawn_choices import drawn
from load_tests.heavy_log_requests import ALL_KINDS
from load_tests.heavy_requests import Kind, World
from load_tests.stalls import exchange
from server.serving import listen, serve_on, with_servers
from studies.measurement import report

MOST_MS = 100.0
TIMES = 3
BEAT_S = 0.001
START_S = 60.0
SEED = 1
REFERENCE_MS = 5.0  # what ``work`` takes on the machine of docs/measurements.md
ARMS = 100_000


class Found(NamedTuple):
    """The longest step, and the longest time between two turns of the loop; see the module."""

    step_ms: float
    held_ms: float


class Steps:
    """Times the steps of the loop of this thread, for good. Other code asks over ``control``.

    What is sent is a function of this object; it is called on the loop, and its result is sent back.
    """

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._loop = asyncio.get_running_loop()
        self.begin()
        self._time_steps()
        self._loop.add_reader(control.fileno(), self._answer)
        self._loop.call_later(BEAT_S, self._beat)

    def begin(self) -> None:
        """Forget what was found."""
        self._step_s = self._held_s = 0.0
        self._beaten = time.process_time()

    def found(self) -> Found:
        held_s = max(self._held_s, time.process_time() - self._beaten)
        return Found(1e3 * self._step_s, 1e3 * held_s)

    def _time_steps(self) -> None:
        run, thread, clock = asyncio.Handle._run, threading.get_ident(), time.thread_time

        def timed(handle: asyncio.Handle) -> None:
            if threading.get_ident() != thread:
                run(handle)
                return
            began = clock()
            run(handle)
            self._step_s = max(self._step_s, clock() - began)

        asyncio.Handle._run = timed  # type: ignore[method-assign]

    def _beat(self) -> None:
        now = time.process_time()
        self._held_s = max(self._held_s, now - self._beaten)
        self._beaten = now
        self._loop.call_later(BEAT_S, self._beat)

    def _answer(self) -> None:
        try:
            ask = self._control.recv()
        except EOFError:
            self._loop.remove_reader(self._control.fileno())
            return
        self._control.send(ask(self))


def _serve(control: Connection, folder: str) -> None:
    """A service process, until it is told to end. As ``shortlist serve``, but on asyncio's own loop."""
    for name in [name for name in os.environ if name.startswith("SHORTLIST_")]:
        del os.environ[name]
    threadpool_limits(1)
    settings = Settings(host="127.0.0.1", port=0, data_dir=Path(folder))
    with listen(settings) as listener, with_servers(settings) as served:

        def ready(_: object) -> None:
            Steps(control)
            control.send(Server(*listener.getsockname()[:2], os.getpid()))

        asyncio.run(serve_on(served, listener, name="serve-1", ready=ready))


class Stepped:
    """A service whose steps are timed. ``measure`` sends it what a kind makes."""

    def __init__(self, service: Server, control: Connection) -> None:
        self.service = service
        self.world = World(service)
        self._control = control

    def ask(self, question: Callable[[Steps], Any]) -> Any:
        """What a function of a module says, called in the service process."""
        self._control.send(question)
        return self._control.recv()

    def measure(self, kind: Kind) -> dict[str, Any]:
        """Send what the kind makes, again where a step took too long; the best time counts."""
        rows = [self._sent(kind)]
        while (
            max(rows[-1]["step_ms"], rows[-1]["held_ms"]) > MOST_MS * rows[-1]["scale"] and len(rows) < TIMES
        ):
            rows.append(self._sent(kind))
        return min(rows, key=lambda row: row["worst_ms"]) | {"times": len(rows)}

    def _sent(self, kind: Kind) -> dict[str, Any]:
        request = kind.make(self.world)
        self.ask(Steps.begin)
        status, received = exchange(self.service, request)
        found: Found = self.ask(Steps.found)
        scale = 1.0 if max(found) < MOST_MS else self.ask(slowness)
        return {
            "request": kind.name,
            "sent": len(request.body),
            "status": status,
            "received": received,
            **found._asdict(),
            "scale": scale,
            "worst_ms": max(found) / scale,
        }


@contextmanager
def stepped() -> Iterator[Stepped]:
    """A new, empty service, which is gone afterwards."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(theirs, folder), daemon=False)
        process.start()
        theirs.close()
        try:
            if not ours.poll(START_S):
                raise TimeoutError("the service did not start")
            service = Stepped(ours.recv(), ours)
            try:
                yield service
            finally:
                service.world.close()
        finally:
            process.terminate()
            process.join(START_S)
            ours.close()


def slowness(_: Steps) -> float:
    """How much slower than on the reference machine this one is now; 1 where it is not slower."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return max(1.0, 1e3 * min(times) / REFERENCE_MS)


def work() -> None:
    """What most steps are: objects that are made and looked up."""
    held = {str(number): [number] for number in range(20_000)}
    sum(held[name][0] for name in held)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the figures; 1 if a step took too long."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.steps", description=__doc__)
    parser.add_argument("--arms", type=int, default=ARMS, help=f"of the catalogue ({ARMS:,})")
    parser.add_argument("--only", metavar="PATTERN", default="", help="only kinds whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="without the kinds that take long to set up")
    parser.add_argument("--list", action="store_true", help="print the names of all kinds, and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and every step")
    parsed = parser.parse_args(arguments)
    kinds = [*drawn(parsed.arms, seed=SEED), *ALL_KINDS]
    kinds = [kind for kind in kinds if not (parsed.quick and kind.slow) and re.search(parsed.only, kind.name)]
    if parsed.list:
        print("\n".join(kind.name for kind in kinds))
        return 0
    rows = []
    with stepped() as service:
        for kind in kinds:
            rows.append(service.measure(kind))
            print(f"{kind.name}: {rows[-1]['worst_ms']:.0f} ms", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: -row["worst_ms"])
    result = report("steps", rows, seed=SEED)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(rows[0]["worst_ms"] > MOST_MS)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
