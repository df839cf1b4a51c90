"""The metrics that /metrics shows: of one process, or of a group with one listening socket.

A scrape of a group reaches any one of its processes, so counters of only that one would fall. Each process
writes its own metrics into a file every ``EVERY_S``, with the label ``process``. The asked process answers
its own as they are now, and the files of the others. Metrics of the whole store have no such label, and come
from the asked process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from app.platform.background import repeat
from app.platform.metrics import Metrics

EVERY_S = 5.0
GONE_S = 60.0
"""A file that is older is of a process that does not run, or hangs: it is left out."""
ENDING = ".metrics"
HEAD = "# HELP "


class ShownMetrics:
    """The metrics of the ``number``th process of the group whose files are in ``folder``; None: one
    process.
    """

    def __init__(self, metrics: Metrics, folder: Path | None = None, number: int = 1) -> None:
        self._metrics = metrics
        self._file = None if folder is None else folder / f"{number}{ENDING}"
        self._registry = metrics.registry
        if folder is not None:
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(_Labelled(metrics, str(number)))

    def text(self) -> bytes:
        """The text for Prometheus. Cost: some ms."""
        # Written too: the next process that is asked must not show less of this one.
        shown = self.write()
        if self._file is None:
            return shown
        parts = dict(_by_metric(shown.decode()))
        for other in sorted({*self._file.parent.glob(f"*{ENDING}")} - {self._file}):
            for name, (head, samples) in _by_metric(_recent(other)):
                if name not in self._metrics.of_store:
                    parts[name] = head, parts.get(name, ("", ""))[1] + samples
        return "".join(head + samples for head, samples in parts.values()).encode()

    def write(self) -> bytes:
        """Write those of this process for the others, and return them. Cost: some ms."""
        shown = generate_latest(self._registry)
        if self._file is not None:
            part = self._file.with_suffix(".part")
            # Where the disk is full the others show an older file, and then none.
            with suppress(OSError):
                part.touch(mode=0o600)
                part.write_bytes(shown)
                part.replace(self._file)
        return shown

    async def run(self, measure: Callable[[], None]) -> None:
        """Write them again and again until cancelled. ``measure`` brings the gauges up to date."""

        async def write() -> None:
            measure()
            self.write()

        if self._file is not None:
            await repeat(write, every_s=EVERY_S)


class _Labelled(Collector):
    """The metrics of a process with one label more."""

    def __init__(self, metrics: Metrics, process: str) -> None:
        self._metrics = metrics
        self._label = {"process": process}

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics.registry.collect():
            if metric.name not in self._metrics.of_store:
                metric.samples = [
                    sample._replace(labels={**sample.labels, **self._label}) for sample in metric.samples
                ]
            yield metric


def _recent(file: Path) -> str:
    """The text of a file; empty if it is too old."""
    try:
        return file.read_text("utf-8") if time.time() - file.stat().st_mtime < GONE_S else ""
    except OSError:
        return ""


def _by_metric(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The name of each metric, the lines of its head, and the lines of its samples."""
    # No text holds this, for a line feed in a help or a label is written as two characters.
    for part in ("\n" + text).split("\n" + HEAD)[1:]:
        meaning, kind, samples = (part.rstrip("\n") + "\n").split("\n", 2)
        yield meaning.partition(" ")[0], (f"{HEAD}{meaning}\n{kind}\n", samples)
