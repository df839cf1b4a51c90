"""Tables that are planned by graphs which a test gives, and by times that it gives."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.index import graph_file, planner
from shortlist.index.hnsw import HnswGraph
from shortlist.index.index import Build
from shortlist.index.planner import IndexOptions, plan
from shortlist.index.probes import Probes, Quality, Search, Trial, compare
from shortlist.index.table import table_of


def measure(search: Search, probes: Probes) -> Quality:
    """How well a search answers the probes."""
    return compare(search, search, probes).quality


def gaussian(count, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def view_of(features):
    return table_of(features)


ANY_SIZE = 0
"""Small catalogues are planned like large ones."""


def timed_as(monkeypatch, speedup):
    """Graphs seem to be so many times as fast as the best exact search; their quality is measured."""

    def timed(search, exact, probes):
        del exact
        return Trial(measure(search, probes), us=10.0, exact_us=10.0 * speedup)

    monkeypatch.setattr(planner, "compare", timed)


BUILD = Build(seed=0, threads=1, check=lambda: None)


def decide(view, *, wanted=False, make=None, ef_search=None, target=0.95, small_numbers=ANY_SIZE):
    options = IndexOptions(
        "hnsw" if wanted else "auto", ef_search=ef_search, shortlist=10, target_recall=target
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_file, "make", lambda table, rows, build, **shape: (make or no_graph)(rows))
        rng = np.random.default_rng(1)
        return plan(view, options, BUILD, recent=(), rng=rng, small_numbers=small_numbers)


def no_graph(rows):
    pytest.fail("a graph was built")


def build(view, *, spoilt=False):
    def make(rows):
        kept = rows[:: 40 if spoilt else 1]
        return HnswGraph.build(view, kept, m=8, ef_construction=40, seed=0, threads=1, check=lambda: None)

    return make


def of_one_length(count, dim, seed=0):
    directions = gaussian(count, dim, seed)
    return directions / np.linalg.norm(directions, axis=1)[:, None]
