"""The solvers inside the adaptive one, for every catalogue that is asked adaptively.

A catalogue that is searched exactly needs one solver, which never fails. One that is searched by a graph has
``COPIES`` more, built in a thread when they are first asked for; until they are there its own graph answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from app.algorithms.mips.adaptive import Ladder
from app.algorithms.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector
from app.indexes.independent import IndependentGraphs
from app.indexes.live import IndexOptions
from app.indexes.snapshot import Snapshot
from app.services.bounded.cache import BoundedCache
from app.services.catalogues.catalogues import Catalogue
from app.services.catalogues.learner_view import LearnerView

COPIES = 3
_SEED = 0x61646170


class Stopped(Exception):
    """The service ends; the build is of no use."""


@dataclass(frozen=True, slots=True)
class ExactSolver:
    """Every eligible arm is compared."""

    view: LearnerView

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        return self.view.search_exact(query, k, exclude)


@dataclass(frozen=True, slots=True)
class NeverNull:
    """The ladder, and a scan for what it leaves out: a choice must be made also when no arm is good."""

    ladder: Ladder
    view: LearnerView

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        found = self.ladder.search(query, k, exclude)
        if len(found.rows) < min(k, self.view.size - len(exclude)):
            return self.view.search_exact(query, k, exclude)
        return found


class IndependentSolvers:
    """For any thread."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._graphs: BoundedCache[str, IndependentGraphs] = BoundedCache(capacity_bytes)
        self._building: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="independent-graphs")
        self._stopped = threading.Event()

    def of(self, catalogue: Catalogue, snapshot: Snapshot) -> Sequence[Snapshot]:
        """The graphs for a moment of a catalogue, its own first; only that if it is searched exactly."""
        if snapshot.kind != "hnsw":
            return [snapshot]
        with self._lock:
            held = self._graphs.get(catalogue.uid)
            if (held is None or held.is_stale(snapshot.view)) and catalogue.uid not in self._building:
                self._building.add(catalogue.uid)
                options = IndexOptions(**catalogue.record.index)  # type: ignore[arg-type]  # checked when made
                self._pool.submit(partial(self._build, catalogue.uid, snapshot, options))
        if held is None or not held.follows(snapshot.view):
            return [snapshot]
        return [snapshot, *held.solvers(snapshot)]

    def close(self) -> None:
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _build(self, uid: str, snapshot: Snapshot, options: IndexOptions) -> None:
        made = None
        try:
            made = IndependentGraphs.build(snapshot.view, COPIES, options, seed=_SEED, check=self._check)
        except Stopped:
            return
        finally:
            with self._lock:
                self._building.discard(uid)
                if made is not None:
                    self._graphs.put(uid, made, made.memory_bytes)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Stopped


def solver_of(view: LearnerView) -> MipsSolver:
    """A graph as it is, everything else exactly."""
    return view if view.kind == "hnsw" else ExactSolver(view)


def ladder(
    solvers: Sequence[LearnerView], features_of: Callable[[Rows], Matrix], *, largest_norm: float, eta: float
) -> Ladder:
    """The ladder over some snapshots of the same arms."""
    return Ladder([solver_of(view) for view in solvers], features_of, largest_norm, eta)
