"""Uniform draws from a catalogue: the arms, their propensities, and what is not looked at."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from app.filtering.filtered_snapshot import FilteredSnapshot
from app.filters.filter import parse
from app.indexes.eligible_rows import eligible_rows
from app.indexes.live import LiveIndex
from app.policies.uniform import draw
from shortlist.types import NO_ROWS

ALARM = 1e-7


def made(arms: int, dead: int, *, stocked: int | None = None) -> LiveIndex:
    """``arms`` living arms among ``dead`` rows, of which each of the first ``stocked`` is in stock."""
    index = LiveIndex(1)
    names = [f"a{i}" for i in range(arms + dead)]
    index.upsert(names, np.ones((len(names), 1)), list(range(len(names))))
    index.remove(names[:dead])
    if stocked is not None:
        index.describe(names, [([], {"stock": place < dead + stocked}) for place in range(len(names))])
    return index


def view_of(index: LiveIndex, *, filtered: bool):
    snapshot = index.snapshot()
    if not filtered:
        return snapshot
    eligible = eligible_rows(parse({"stock": True}), snapshot.table, snapshot.attributes)
    return FilteredSnapshot(snapshot.table, None, 1.0, deque(), snapshot.attributes, snapshot, eligible, None)


@settings(max_examples=150)
@given(
    arms=st.integers(0, 30), dead=st.integers(0, 60), stocked=st.none() | st.integers(0, 30),
    excluded=st.integers(0, 12), k=st.integers(1, 20), seeded=st.booleans(), seed=st.integers(0, 2**20),
)  # fmt: skip
def test_what_is_drawn_is_eligible_and_its_propensity_is_one_of_those_left(
    *, arms, dead, stocked, excluded, k, seeded, seed
):
    view = view_of(made(arms, dead, stocked=stocked), filtered=stocked is not None)
    left = list(range(dead, dead + (arms if stocked is None else min(arms, stocked))))
    rng = np.random.default_rng(seed)
    exclude = np.array(rng.permutation(left)[:excluded], dtype=np.int64)
    rows, propensities = draw(view, k=k, rng=rng, exclude=exclude, seeded=seeded)
    free = set(left) - set(exclude.tolist())
    assert len(rows) == len(set(rows.tolist())) == min(k, len(free))
    assert set(rows.tolist()) <= free
    assert propensities == [1 / (len(free) - place) for place in range(len(rows))]


@pytest.mark.parametrize(("dead", "stocked"), [(0, None), (20, None), (200, None), (20, 12), (200, 12)])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_every_arm_is_drawn_as_often_whichever_way_it_is(dead, stocked, k):
    """Dense, sparse, filtered, nearly all: each is another way to draw."""
    view = view_of(made(12, dead, stocked=stocked), filtered=stocked is not None)
    rng = np.random.default_rng(dead + k)
    exclude = np.array([dead, dead + 1])
    firsts: Counter[int] = Counter()
    lasts: Counter[int] = Counter()
    for _ in range(3_000):
        rows = draw(view, k=k, rng=rng, exclude=exclude)[0].tolist()
        firsts[rows[0]] += 1
        lasts[rows[-1]] += 1
    for counts in (firsts, lasts):
        assert stats.chisquare([counts[row] for row in range(dead + 2, dead + 12)]).pvalue > ALARM


@pytest.mark.rest
def test_a_seed_draws_the_same_arms_from_another_layout_of_the_table():
    """A process that started later has no dead rows."""
    one, moved = made(40, 25), LiveIndex(1)
    moved.upsert([f"a{i}" for i in range(25, 65)], np.ones((40, 1)), list(range(25, 65)))
    for seed in range(20):
        drawn = []
        for index in (one, moved):
            view = index.snapshot()
            rows, _ = draw(view, k=3, rng=np.random.default_rng(seed), exclude=NO_ROWS, seeded=True)
            drawn.append([view.id_of(row) for row in rows.tolist()])
        assert drawn[0] == drawn[1]
