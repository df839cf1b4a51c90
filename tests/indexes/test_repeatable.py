"""What is reported as chosen can be repeated: by the seed, the arms and the options."""

from __future__ import annotations

import numpy as np
import pytest

from app.indexes.live import IndexOptions
from shortlist.index import planner
from shortlist.index.probes import solve
from tests.indexes.brute_force import filled, maintain

pytestmark = pytest.mark.rest

ARMS, DIM = 6_000, 8
FEATURES = np.random.default_rng(3).standard_normal((ARMS, DIM))
OPTIONS = IndexOptions(kind="hnsw", ef_construction=40)
WHAT_WAS_FOUND = ("kind", "size", "recall_at_1", "ratio_mean", "ratio_min", "arms_in_graph", "ef_search")


def built(seed, *, threads=1, queries=0, options=OPTIONS):
    index = filled(FEATURES, options, seed=seed, threads=threads)
    for query in np.random.default_rng(4).standard_normal((queries, DIM)):
        index.snapshot().search(query, 1)
    maintain(index)
    return index


def graph_bytes(index, path):
    index.snapshot().structure.save(path)
    return path.read_bytes()


def found(index):
    status = index.status()
    return {name: getattr(status, name) for name in WHAT_WAS_FOUND}


def probes_of(monkeypatch, seed):
    """The queries on which a plan was measured."""
    seen = []

    def spy(view, queries, **arguments):
        seen.append(queries)
        return solve(view, queries, **arguments)

    monkeypatch.setattr(planner, "solve", spy)
    built(seed, options=IndexOptions(kind="hnsw", m=4, ef_construction=8))
    return seen[0]


def test_one_seed_draws_the_same_probes_and_another_draws_others(monkeypatch):
    one, again, other = (probes_of(monkeypatch, seed) for seed in (5, 5, 6))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_on_one_thread_the_reported_seed_and_ef_repeat_the_graph_bit_for_bit(tmp_path):
    one = built(12_345)
    status = one.status()
    assert (status.seed, status.build_threads, status.recent_probes) == (12_345, 1, 0)
    options = IndexOptions(kind="hnsw", ef_construction=40, ef_search=status.ef_search)
    again = built(status.seed, options=options)
    assert found(again) == found(one)
    assert graph_bytes(again, tmp_path / "again") == graph_bytes(one, tmp_path / "one")
    other = built(12_346, options=options)
    assert graph_bytes(other, tmp_path / "other") != graph_bytes(one, tmp_path / "one")
