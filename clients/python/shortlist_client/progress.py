"""How far long work is: a bar on a terminal, and plain lines on standard error elsewhere (a log, a pipe)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

LINE_S = 10.0  # at most one line in this time, after the first and before the last

Item = TypeVar("Item")


def progress(items: Collection[Item], desc: str, *, leave: bool = True) -> Iterator[Item]:
    """Yield the items and show how many are done; ``leave`` keeps the bar at the end."""
    with meter(desc, len(items), leave=leave) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def meter(
    desc: str, total: int | None, unit: str = "", *, leave: bool = True
) -> Iterator[Callable[[int], object]]:
    """Show how much is done of ``total``, None where nobody knows; call what it gives with what was done.

    ``unit`` is what is counted, ``leave`` keeps the bar at the end.
    """
    if sys.stderr.isatty():
        from tqdm import tqdm  # noqa: PLC0415 - of the packages whose work takes long

        with tqdm(desc=desc, total=total, leave=leave, unit=f" {unit or 'it'}") as bar:
            yield bar.update
        return
    done, shown, started = 0, 0, time.monotonic()
    last = started
    of = f" {unit}" * bool(unit) if total is None else f" of {total:,}"
    _line(desc, done, of, 0.0)

    def advance(more: int) -> None:
        nonlocal done, shown, last
        done += more
        now = time.monotonic()
        if now - last >= LINE_S:
            _line(desc, done, of, now - started)
            shown, last = done, now

    yield advance
    if done > shown:
        _line(desc, done, of, time.monotonic() - started)


def _line(desc: str, done: int, of: str, elapsed_s: float) -> None:
    print(f"{desc}: {done:,}{of}, {elapsed_s:.0f} s", file=sys.stderr, flush=True)
