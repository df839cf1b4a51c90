"""The adaptive solver over a catalogue, and the independent solvers that it asks.

The ladder (``mips.adaptive``) asks several solvers, so that one which fails does no harm. An exact search
never fails: a catalogue that is searched exactly needs no more. For one that is searched by a graph,
``COPIES`` further graphs are built in a thread at the first request. Until they are built its own graph
answers alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from app.catalogues.catalogue import Catalogue
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.indexes.independent import IndependentGraphs
from app.indexes.snapshot import Snapshot
from app.platform.cache import BoundedCache
from shortlist.index.cancellation import Cancellation, Cancelled
from shortlist.index.planner import IndexOptions
from shortlist.mips.adaptive import Ladder
from shortlist.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector

COPIES = 3
_SEED = 0x61646170


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

        Only by its own index while that is exact, and while no other graph is built.
        """
        if not snapshot.proposes:
            return [snapshot]
        with self._lock:
            held = self._graphs.get(catalogue.uid)
            if (held is None or held.is_stale(snapshot.table)) and catalogue.uid not in self._building:
                self._building.add(catalogue.uid)
                self._pool.submit(self._build, catalogue.uid, snapshot, catalogue.index_options)
        if held is None or not held.follows(snapshot.table):
            return [snapshot]
        return [snapshot, *held.solvers(snapshot)]

    def close(self) -> None:
        self._stop.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _build(self, uid: str, snapshot: Snapshot, options: IndexOptions) -> None:
        graphs = None
        try:
            with self._stop.turn():
                graphs = IndependentGraphs.build(
                    snapshot.table, COPIES, options, seed=_SEED, check=self._stop.give_way
                )
        except Cancelled:
            return
        finally:
            with self._lock:
                self._building.discard(uid)
                if graphs is not None:
                    self._graphs.put(uid, graphs, graphs.memory_bytes)


def solver_of(arms: LearnerSnapshot) -> MipsSolver:
    """A solver that searches a graph where one serves, and compares all arms elsewhere."""
    return arms if arms.proposes else ExactSolver(arms)


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
    return Ladder([solver_of(arms) for arms in solvers], features_of, largest_norm, eta)
