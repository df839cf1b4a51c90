"""The adaptive solver over a catalogue, and its independent solvers.

The ladder (``mips.adaptive``) asks several solvers, so that one which fails does no harm. An exact search
never fails, and a catalogue with exact searches needs no more. For one with a graph, ``COPIES`` further
graphs are built in a thread at the first request. Until they are built its own graph answers alone. They are
as independent as HNSW allows: each has its own random levels and its own random order of insertion. They are
made for one table and go on serving while arms come and go: fresh arms are scanned exactly, dead ones are
left out. No proof says that HNSW answers a fixed query with probability 0.9, so nothing is promised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from app.catalogues.catalogue import Catalogue
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.indexes.snapshot import Snapshot
from app.platform.cache import BoundedCache
from shortlist.index.cancellation import Cancellation, Cancelled
from shortlist.index.index import Index
from shortlist.index.planner import IndexOptions, build_over
from shortlist.index.table import TableSnapshot
from shortlist.mips.adaptive import Ladder
from shortlist.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector

COPIES = 3
SEED = 0x61646170
GRAPH_EF = 64
CHANGED_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class ExactSolver:
    """The solver that compares every eligible arm of a snapshot."""

    arms: LearnerSnapshot

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        return self.arms.search_exact(query, k, exclude)


@dataclass(frozen=True, slots=True)
class LadderWithScan:
    """The ladder, and a scan where it finds fewer arms than were asked for.

    It leaves out arms of small or negative products, but a choice must be made from them too.
    """

    ladder: Ladder
    arms: LearnerSnapshot

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        result = self.ladder.search(query, k, exclude)
        if len(result.rows) < min(k, self.arms.size - len(exclude)):
            return self.arms.search_exact(query, k, exclude)
        return result


@dataclass(frozen=True, slots=True, eq=False)
class IndependentGraphs:
    """``graphs`` over the arms that were alive in ``table``."""

    table: TableSnapshot
    graphs: tuple[Index, ...]

    @classmethod
    def build(
        cls,
        table: TableSnapshot,
        options: IndexOptions,
        *,
        check: Callable[[], None],
        copies: int = COPIES,
        seed: int = SEED,
    ) -> IndependentGraphs:
        """Build ``copies`` graphs on one core. ``check`` is called now and then, and may raise to stop."""
        graphs = []
        for copy in range(copies):
            rows = np.random.default_rng(seed + copy).permutation(table.live_rows)
            graph = build_over(table, rows, options, seed=seed + copy, check=check)
            ef = options.ef_search or GRAPH_EF
            graph.tuned(ef, shortlist=options.shortlist, most=graph.arms)
            graphs.append(graph)
        return cls(table, tuple(graphs))

    @property
    def memory_bytes(self) -> int:
        return sum(graph.memory_bytes for graph in self.graphs)

    def follows(self, table: TableSnapshot) -> bool:
        """True if ``table`` is a later moment of the same table."""
        return table.number == self.table.number and table.rows >= self.table.rows

    def is_stale(self, table: TableSnapshot) -> bool:
        """True if enough has changed since for the graphs to be built again."""
        changed = table.rows - self.table.rows + len(table.dead) - len(self.table.dead)
        return not self.follows(table) or changed > CHANGED_SHARE * self.table.live


class IndependentSolvers:
    """The independent graphs of all catalogues, within ``capacity_bytes``. For any thread."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._graphs: BoundedCache[str, IndependentGraphs] = BoundedCache(capacity_bytes)
        self._building: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="independent-graphs")
        self._stop = Cancellation()

    def of(self, catalogue: Catalogue, snapshot: Snapshot) -> Sequence[Snapshot]:
        """The arms of ``snapshot``, searched by the catalogue's own index and by each independent graph.

        Only by its own index while its searches are exact, and while no other graph is built.
        """
        if not snapshot.proposes:
            return [snapshot]
        with self._lock:
            graphs = self._graphs.get(catalogue.uid)
            if (graphs is None or graphs.is_stale(snapshot.table)) and catalogue.uid not in self._building:
                self._building.add(catalogue.uid)
                self._pool.submit(self._build, catalogue.uid, snapshot, catalogue.index_options)
        if graphs is None or not graphs.follows(snapshot.table):
            return [snapshot]
        return [snapshot, *(snapshot.searched_by(graph) for graph in graphs.graphs)]

    def close(self) -> None:
        self._stop.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _build(self, uid: str, snapshot: Snapshot, options: IndexOptions) -> None:
        graphs = None
        try:
            with self._stop.turn():
                graphs = IndependentGraphs.build(snapshot.table, options, check=self._stop.give_way)
        except Cancelled:
            return
        finally:
            with self._lock:
                self._building.discard(uid)
                if graphs is not None:
                    self._graphs.put(uid, graphs, graphs.memory_bytes)


def ladder(
    solvers: Sequence[LearnerSnapshot],
    features_of: Callable[[Rows], Matrix],
    *,
    largest_norm: float,
    eta: float,
) -> Ladder:
    """The ladder over snapshots of the same arms. Shapes: features_of rows (m,) -> (m, d).

    ``largest_norm`` bounds the norms of the features. ``eta`` is the ratio of the ladder, in (0, 1].
    """
    asked: list[MipsSolver] = [arms if arms.proposes else ExactSolver(arms) for arms in solvers]
    return Ladder(asked, features_of, largest_norm, eta)
