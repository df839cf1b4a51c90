"""Long work on one catalogue's index, over a frozen view: for a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from app.filters.attributes import Compaction
from app.indexes import graph_file
from app.indexes.hnsw import HnswGraph
from app.indexes.planner import GraphOptions, Plan, plan
from app.indexes.structure import Structure
from app.indexes.table import ArmTable, ArmView
from shortlist import checks
from shortlist.types import Rows, Vector

# Features may well have been drawn from the seed of the index: the probes are drawn from another one.
_PROBE_SALT = 0x70726F62


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """What a catalogue's owner may fix; the rest is measured.

    ``m``: links of an arm in the HNSW graph. ``ef_construction``, ``ef_search``: lengths of the candidate
    lists of an insertion and of a search; ``ef_search`` None: chosen by measuring. ``shortlist``: number of
    arms that the graph proposes and that are scored again in float64.
    Raises InvalidParameter (m outside 2..256, the others below 1).
    """

    kind: Literal["auto", "exact", "hnsw"] = "auto"
    m: int = 16
    ef_construction: int = 100
    ef_search: int | None = None
    shortlist: int = 30

    def __post_init__(self) -> None:
        checks.in_range("m", self.m, least=2, most=256)
        checks.in_range("ef_construction", self.ef_construction, least=1)
        checks.in_range("ef_search", self.ef_search if self.ef_search is not None else 1, least=1)
        checks.in_range("shortlist", self.shortlist, least=1)


class Cancelled(Exception):
    """The work was told to stop."""


class Maintenance:
    """One piece of work: a compaction, or measuring and building.

    Call ``run`` in any thread, then ``LiveIndex.finish_maintenance`` in the thread of the event loop.
    ``cancel`` makes ``run`` return early, within seconds. Attributes after ``run``: ``table`` of a
    compaction; ``plan`` and ``structure`` otherwise; ``seconds`` it took.

    ``seed`` fixes probes and graph. ``recent``: queries served lately, each (d,). ``threads``: of a build.
    ``attributes``: if given, their compaction is all that is done.
    With one thread the graph is a function of the arms, the options, the seed and ``recent``.
    """

    def __init__(
        self,
        view: ArmView,
        options: IndexOptions,
        *,
        compaction: bool,
        load_from: Path | None,
        save_to: Path | None,
        seed: int,
        recent: Sequence[Vector],
        threads: int,
        attributes: Compaction | None = None,
    ) -> None:
        self.view = view
        self.attributes = attributes
        self.table: ArmTable | None = None
        self.plan: Plan | None = None
        self.structure: Structure | None = None
        self.seconds = 0.0
        self._options = options
        self._compaction = compaction
        self._load_from = load_from
        self._save_to = save_to
        self._seed = seed
        self._recent = recent
        self._threads = threads
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def run(self) -> None:
        started = time.monotonic()
        try:
            self._check()
            if self.attributes is not None:
                self.attributes.run()
            elif self._compaction:
                self.table = ArmTable.compacted(self.view, check=self._check)
            else:
                self._measure_and_build()
        except Cancelled:
            self.table = self.plan = self.structure = None
        finally:
            self.seconds = time.monotonic() - started

    def _measure_and_build(self) -> None:
        options, rng = self._options, np.random.default_rng((self._seed, _PROBE_SALT))
        graph = GraphOptions(
            wanted=options.kind == "hnsw",
            ef_search=options.ef_search,
            shortlist=options.shortlist,
            make=self._graph,
        )
        allowed = None if options.kind == "exact" else graph
        chosen, structure = plan(self.view, allowed, recent=self._recent, rng=rng)
        self._check()
        self.plan, self.structure = chosen, structure

    def _graph(self, rows: Rows) -> HnswGraph:
        options = self._options
        shape = {"m": options.m, "ef_construction": options.ef_construction}
        if self._load_from is not None:
            loaded = graph_file.read(self._load_from, self.view, **shape)
            if loaded is not None:
                return loaded
        graph = HnswGraph.build(
            self.view, rows, seed=self._seed, threads=self._threads, check=self._check, **shape
        )
        if self._save_to is not None:
            # If the cache cannot be written, the next start builds the graph again.
            with suppress(OSError):
                graph_file.write(self._save_to, graph, self.view, **shape)
        return graph

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled
