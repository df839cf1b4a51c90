"""Searches in real threads while arms come and go and the index is maintained."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions
from tests.indexes.brute_force import filled

pytestmark = pytest.mark.rest

LEAST = np.array([400, 2, 200])  # searches, rebuilds, changes
DIM = 8


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_every_answer_is_right_for_the_snapshot_it_came_from(kind, times):
    """The arm "i/r" has features that say so: whatever is returned can be checked against its own id."""
    rng = np.random.default_rng(0)
    options, limits = (
        IndexOptions(kind=kind, m=6, ef_construction=20),
        IndexLimits(least_dead=50, work_rest=0.0),
    )
    index = filled(rng.standard_normal((1_000, DIM)), options, limits=limits)
    stop, errors, counts = threading.Event(), [], [0, 0, 0]

    def search(seed):
        draws = np.random.default_rng(seed)
        while not stop.is_set():
            check(index.snapshot(), draws)
            counts[0] += 1

    def maintain():
        while not stop.is_set():
            # Both ends belong to the thread of changes: here a lock stands in for the event loop.
            with loop:
                job = index.begin_maintenance()
            if job is not None:
                job.run()
                with loop:
                    index.finish(job)
                counts[1] += 1

    loop = threading.Lock()
    threads = [threading.Thread(target=guarded(search, errors, stop), args=(seed,)) for seed in (1, 2, 3)]
    threads.append(threading.Thread(target=guarded(maintain, errors, stop)))
    for thread in threads:
        thread.start()
    revision = 1_000
    while (counts < times * LEAST).any() and not stop.is_set():
        with loop:
            revision = change(index, rng, revision)
        counts[2] += 1
    stop.set()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert not errors, errors


def check(snapshot, draws):
    size = snapshot.size
    query = draws.standard_normal(DIM)
    exclude = snapshot.rows_of([str(number) for number in draws.integers(0, 1_200, 5)])
    found = snapshot.search(query, 7, exclude)
    rows = found.rows.tolist()
    assert len(rows) == len(set(rows)) == min(7, size - len(exclude))
    assert not set(rows) & set(exclude.tolist())
    assert np.array_equal(found.scores, np.add.reduce(snapshot.features_of(found.rows) * query, axis=1))
    assert (np.diff(found.scores) <= 0).all()
    assert snapshot.rows_of([snapshot.id_of(row) for row in rows]).tolist() == rows
    truth = snapshot.search_exact(query, 7, exclude)
    assert truth.scores.tolist() == sorted(brute(snapshot, query, exclude), reverse=True)[:7]
    assert snapshot.size == size


def brute(snapshot, query, exclude):
    rows = np.setdiff1d(snapshot.page(-1, 10_000), exclude)
    return np.add.reduce(snapshot.features_of(rows) * query, axis=1).tolist()


def change(index, rng, revision):
    ids = [str(number) for number in np.unique(rng.integers(0, 1_200, 20))]
    index.upsert(ids, rng.standard_normal((len(ids), DIM)), range(revision, revision + len(ids)))
    index.remove([str(number) for number in rng.integers(0, 1_200, 18)])
    return revision + len(ids)


def guarded(work, errors, stop):
    def run(*arguments):
        try:
            work(*arguments)
        except BaseException as error:  # reported by the test
            errors.append(repr(error))
            stop.set()

    return run
