"""Long work on one catalogue's index, over a frozen snapshot: for a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app.filters.attributes import Compaction
from app.indexes import graph_file
from app.indexes.hnsw import HnswGraph
from app.indexes.planner import IndexOptions, Plan, plan
from app.indexes.snapshot import Structure
from app.indexes.table import ArmTable, TableSnapshot
from shortlist.types import NO_ROWS, Rows, Vector

_PROBE_SALT = 0x70726F62


def probe_generator(seed: int) -> np.random.Generator:
    """For probes: features may well have been drawn from the seed of the index itself."""
    return np.random.default_rng((seed, _PROBE_SALT))


class Cancelled(Exception):
    """The work was told to stop."""


class Cancellation:
    """Tells work in another thread to stop."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        """For the work, now and then. Raises Cancelled."""
        if self._cancelled.is_set():
            raise Cancelled


@dataclass(kw_only=True, slots=True, eq=False)
class Maintenance(Cancellation):
    """One piece of work: a compaction, or measuring and building.

    Call ``run`` in any thread, then ``LiveIndex.finish_maintenance`` in the thread of the event loop.
    ``cancel`` makes ``run`` return early, within seconds. After ``run``: ``compacted``, a table, and the
    ``positions`` of the rows in it; ``plan`` and ``structure`` otherwise; ``seconds`` it took.

    ``seed`` fixes probes and graph. ``recent``: queries served lately, each (d,). ``threads``: of a build.
    ``attributes``: if given, their compaction is all that is done. ``growing``: the graph of a catalogue that
    grows, to be added to where that can be.
    With one thread the graph is a function of the arms, the options, the seed and ``recent``.
    """

    table: TableSnapshot
    options: IndexOptions
    compaction: bool
    load_from: Path | None
    save_to: Path | None
    seed: int
    recent: Sequence[Vector]
    threads: int
    attributes: Compaction | None = None
    growing: HnswGraph | None = None
    compacted: ArmTable | None = None
    positions: Rows = field(default_factory=lambda: NO_ROWS)
    plan: Plan | None = None
    structure: Structure | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        Cancellation.__init__(self)

    def run(self) -> None:
        started = time.monotonic()
        try:
            self.check()
            if self.attributes is not None:
                self.attributes.run()
            elif self.compaction:
                self.compacted, self.positions = ArmTable.compacted(self.table, check=self.check)
            else:
                self._measure_and_build()
        except Cancelled:
            self.compacted = self.plan = self.structure = None
        finally:
            self.seconds = time.monotonic() - started

    def _measure_and_build(self) -> None:
        rng = probe_generator(self.seed)
        chosen, structure = plan(
            self.table,
            self.options,
            self._graph,
            recent=self.recent,
            rng=rng,
            is_growing=self.growing is not None,
        )
        self.check()
        self.plan, self.structure = chosen, structure

    def _graph(self, rows: Rows) -> HnswGraph:
        shape = {"m": self.options.m, "ef_construction": self.options.ef_construction}
        if self.load_from is not None:
            loaded = graph_file.read(self.load_from, self.table, **shape)
            if loaded is not None:
                return loaded
            with suppress(OSError):  # nobody is to wait for it
                self.load_from.unlink(missing_ok=True)
        graph = None
        if self.growing is not None:
            graph = self.growing.grown(self.table, rows, threads=self.threads, check=self.check)
        if graph is None:
            graph = HnswGraph.build(
                self.table, rows, seed=self.seed, threads=self.threads, check=self.check, **shape
            )
        graph.is_interim = self.growing is not None
        if self.save_to is not None and not graph.is_interim:
            # If the cache cannot be written, the next start builds the graph again.
            with suppress(OSError):
                graph_file.write(self.save_to, graph, self.table, **shape)
        return graph
