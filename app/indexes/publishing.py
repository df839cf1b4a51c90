"""Work on an index that several processes share: one makes publications, the others adopt them.

Both end alike: with a table whose first rows are mapped, and where the arms of the process are in it. So the
process serves its own arms before and after, and what it alone has is in its own memory.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.indexes import arm_file, graph_file
from app.indexes.hnsw import GraphTuning, HnswGraph
from app.indexes.maintenance import Cancellation, Cancelled, probe_generator
from app.indexes.norm_pruned import NormBlocks
from app.indexes.planner import IndexOptions, Plan, plan
from app.indexes.shared_arms import SharedArms
from app.indexes.snapshot import Structure
from app.indexes.table import ArmTable, TableSnapshot
from shortlist.types import NO_ROWS, Rows, Vector

log = logging.getLogger("shortlist.indexes")

_PLAN, _GRAPH = "plan", "graph"
_ARRAYS = "substitutes.npy", "appearances.npy"


class Planned(msgspec.Struct, frozen=True):
    """The file ``plan`` of a publication.

    ``version``: of the catalogue, all of whose changes are in the arms. ``plan`` None: nothing was planned
    yet. ``tuning``: of the graph, None without one. ``digest``: of the others and the arrays beside it.
    """

    version: int
    plan: Plan | None
    tuning: GraphTuning | None
    digest: str = ""

    def digest_with(self, arrays: Sequence[NDArray[Any]]) -> str:
        return arm_file.digest_of(msgspec.json.encode(msgspec.structs.replace(self, digest="")), *arrays)


@dataclass(kw_only=True, slots=True, eq=False)
class Adoption(Cancellation):
    """Serve a publication, with the changes of this process. ``run`` in any thread.

    ``table``: the arms of this process; ``from_start``: it has none yet, and takes those of the publication.
    After ``run``: ``number`` of the publication, None if it could not be read; ``compacted``, the table;
    ``base``, its mapped part; ``positions``, see ``ArmTable.matched``; ``plan`` and ``structure``, None and
    None where there is none; ``version``, see ``Planned``.
    """

    shared: SharedArms
    table: TableSnapshot
    options: IndexOptions
    from_start: bool = False
    number: int | None = None
    compacted: ArmTable | None = None
    base: TableSnapshot | None = None
    positions: Rows = field(default_factory=lambda: NO_ROWS)
    plan: Plan | None = None
    structure: Structure | None = None
    version: int = 0
    seconds: float = 0.0
    attributes: ClassVar[None] = None

    def __post_init__(self) -> None:
        Cancellation.__init__(self)

    def run(self) -> None:
        number = self.shared.current
        if number is None:
            return
        started = time.monotonic()
        try:
            self._read(self.shared.folder_of(number))
        except FileNotFoundError:
            return  # another took its place
        except (OSError, ValueError, EOFError, msgspec.MsgspecError) as error:
            log.warning("a publication of shared arms is damaged and is made again: %s", error)
            self.shared.discard(number)
            return
        self.number, self.seconds = number, time.monotonic() - started

    def _read(self, folder: Path) -> None:
        table = arm_file.read(folder)
        planned = msgspec.json.decode((folder / _PLAN).read_bytes(), type=Planned)
        arrays = [np.load(folder / name) for name in _ARRAYS] if planned.tuning is not None else []
        if planned.digest_with(arrays) != planned.digest:
            raise ValueError(f"the checksum of the plan of {folder.name} is wrong")
        self.base = table.snapshot()
        self.structure = self._structure(folder, planned, self.base, *arrays)
        self.plan, self.version = planned.plan, planned.version
        if not self.from_start:
            self.positions = table.matched(self.table)
        self.compacted = table

    def _structure(
        self, folder: Path, planned: Planned, base: TableSnapshot, *arrays: NDArray[Any]
    ) -> Structure | None:
        if planned.plan is None or planned.plan.kind == "exact":
            return None
        if planned.tuning is None:
            return NormBlocks(base)
        shape = {"m": self.options.m, "ef_construction": self.options.ef_construction}
        graph = graph_file.read(folder / _GRAPH, base, **shape)
        if graph is None:
            raise ValueError(f"the graph of {folder.name} does not fit its arms")
        substitutes, appearances = arrays
        graph.with_tuning(base, planned.tuning, substitutes, appearances)
        return graph


@dataclass(kw_only=True, slots=True, eq=False)
class Publishing(Adoption):
    """Make a publication of ``table``, and serve it. ``run`` in any thread; it raises OSError.

    ``version``: of the catalogue, all of whose changes are in ``table``. ``planned``: also plan for it and
    build. ``same_arms``: number of a publication that has these arms. ``cache``: the file that keeps the
    graph between runs. ``seed``, ``recent``, ``threads`` as of ``Maintenance``.
    """

    planned: bool
    same_arms: int | None
    cache: Path | None
    load: bool
    seed: int
    recent: Sequence[Vector]
    threads: int

    def run(self) -> None:
        started = time.monotonic()
        with suppress(Cancelled), self.shared.publication() as folder:
            self._make(folder)
            self.number = int(folder.name)
        self.seconds = time.monotonic() - started

    def _make(self, folder: Path) -> None:
        if self.same_arms is not None:
            for name in arm_file.FILES:
                os.link(self.shared.folder_of(self.same_arms) / name, folder / name)
        else:
            arm_file.write(folder, self.table, check=self.check)
        table = arm_file.read(folder)
        self.base = base = table.snapshot()
        if self.planned:
            rng = probe_generator(self.seed)

            def make(rows: Rows) -> HnswGraph:
                return self._graph(folder / _GRAPH, base, rows)

            self.plan, self.structure = plan(base, self.options, make, recent=self.recent, rng=rng)
            self.check()
        self._write_plan(folder)
        self.positions = table.matched(self.table)
        self.compacted = table

    def _graph(self, path: Path, base: TableSnapshot, rows: Rows) -> HnswGraph:
        """The graph of the last run if it fits, else a new one; its file is in the publication."""
        shape = {"m": self.options.m, "ef_construction": self.options.ef_construction}
        if self.load and self.cache is not None and self.cache.exists():
            os.link(self.cache, path)
            loaded = graph_file.read(path, base, **shape)
            if loaded is not None:
                return loaded
            path.unlink()
        graph = HnswGraph.build(base, rows, seed=self.seed, threads=self.threads, check=self.check, **shape)
        graph_file.write(path, graph, base, **shape)
        if self.cache is not None:
            # Without the cache the next start builds the graph again.
            with suppress(OSError):
                linked = path.with_suffix(".cache")
                os.link(path, linked)
                linked.replace(self.cache)
        return graph

    def _write_plan(self, folder: Path) -> None:
        tuning, arrays = None, list[NDArray[Any]]()
        if isinstance(self.structure, HnswGraph):
            tuning = self.structure.tuning
            arrays = [self.structure.substitutes, self.structure.degradation.appearances]
            for name, array in zip(_ARRAYS, arrays, strict=True):
                np.save(folder / name, array)
        planned = Planned(self.version, self.plan, tuning)
        planned = msgspec.structs.replace(planned, digest=planned.digest_with(arrays))
        (folder / _PLAN).write_bytes(msgspec.json.encode(planned))
