"""How far long work is: a bar on a terminal, and plain lines on standard error elsewhere (a log, a pipe)."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from typing import TypeVar

from tqdm import tqdm

LINE_S = 10.0  # at most one line in this time, after the first

Item = TypeVar("Item")


def progress(items: Collection[Item], desc: str, *, leave: bool = True) -> Iterator[Item]:
    """Yield the items and show how many are done; ``leave`` keeps the bar at the end."""
    if sys.stderr.isatty():
        yield from tqdm(items, desc=desc, leave=leave)
        return
    started = last = time.monotonic()
    _line(desc, 0, len(items), 0.0)
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= LINE_S:
            _line(desc, done, len(items), now - started)
            last = now


def _line(desc: str, done: int, of: int, elapsed_s: float) -> None:
    print(f"{desc}: {done:,} of {of:,}, {elapsed_s:.0f} s", file=sys.stderr, flush=True)
