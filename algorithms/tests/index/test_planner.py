"""What the planner decides, on catalogues where the right decision is known, and by its written rule."""

from __future__ import annotations

import pytest

from planned_tables import build, decide, gaussian, no_graph, of_one_length, timed_as, view_of
from shortlist.index.planner import SMALL_NUMBERS


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
