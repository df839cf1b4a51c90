"""The slow and obvious answers that indexes are compared with."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from app.indexes import index_kinds
from app.indexes.live import IndexOptions, LiveIndex


def scores_of(features, query):
    return [float(np.add.reduce(row * query)) for row in features]


def best_ids(arms, query, k, exclude=()):
    """(ids, scores) of the best of ``arms``, a dict id -> (revision, features); ties by revision."""
    eligible = [arm_id for arm_id in arms if arm_id not in set(exclude)]
    score = dict(zip(eligible, scores_of([arms[a][1] for a in eligible], query), strict=True))
    eligible.sort(key=lambda arm_id: (-score[arm_id], arms[arm_id][0]))
    return eligible[:k], [score[arm_id] for arm_id in eligible[:k]]


def filled(features, options=None, **arguments):
    """An index of arms "0", "1", … with revisions 0, 1, …"""
    index = LiveIndex(features.shape[1], options or IndexOptions(), **arguments)
    index.upsert([str(row) for row in range(len(features))], features, range(len(features)))
    return index


@contextmanager
def only_structures(*structures):
    """The planner tries these alone."""
    registered = index_kinds.CANDIDATES[:]
    index_kinds.CANDIDATES[:] = structures
    try:
        yield
    finally:
        index_kinds.CANDIDATES[:] = registered


def limit(index, **changes):
    """From now on work is due by other limits."""
    index.limits = replace(index.limits, **changes)


def maintain(index):
    """Do everything that is due; the kinds of work that were done."""
    done = []
    while True:
        if (job := index.begin_maintenance()) is not None:
            job.run()
            index.finish(job)
            done.append("compaction" if job.compacted is not None else "plan")
        elif (job := index.begin_measurement()) is not None:
            job.run()
            index.finish(job)
            done.append("measurement")
        else:
            return done
        assert len(done) < 6, "maintenance does not come to rest"


def measure_anew(index):
    """Measure its graph again, which is due."""
    job = index.begin_measurement()
    job.run()
    index.finish(job)
