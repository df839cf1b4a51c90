"""What the planner decides, on catalogues where the right decision is known, and by its written rule."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.index import graph_file, planner
from shortlist.index.hnsw import HnswGraph
from shortlist.index.index import Build
from shortlist.index.planner import SMALL_NUMBERS, IndexOptions, plan
from shortlist.index.probes import Trial
from tests.indexes.brute_force import filled, measure


def gaussian(count, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def view_of(features):
    return filled(features).snapshot().table


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


def test_a_small_catalogue_is_scanned_and_no_graph_is_built():
    decided, structure = decide(view_of(gaussian(300, 8)), small_numbers=SMALL_NUMBERS)
    assert (decided.kind, structure, decided.recall_at_1) == ("exact", None, 1.0)
    assert decided.reason.startswith("small")


@pytest.mark.parametrize(("numbers", "kind"), [(2_401, "exact"), (2_400, "hnsw")])
def test_how_many_numbers_are_small_says_whether_a_graph_is_built(monkeypatch, numbers, kind):
    timed_as(monkeypatch, 3.0)
    view = view_of(of_one_length(300, 8))
    assert (
        decide(view, make=build(view) if kind == "hnsw" else no_graph, small_numbers=numbers)[0].kind == kind
    )


def test_below_the_floor_the_index_serves_exactly():
    """A graph that lost 39 of 40 arms: its recall is measured, and it does not serve."""
    view = view_of(gaussian(2_000, 8))
    decided, structure = decide(view, wanted=True, make=build(view, spoilt=True))
    assert (decided.kind, structure, decided.recall_at_1) == ("exact", None, 1.0)
    assert decided.reason.endswith("which does not reach 0.95 for certain")
