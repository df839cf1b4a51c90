"""The benchmark of filters on catalogues small enough for a test: what it counts is what happened."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from app.filtering.filter_limits import FilterLimits
from app.filtering.filtered_snapshot import FilteredSnapshot
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.filters.filter import MAX_CONDITIONS, parse
from app.platform.settings import Settings
from shortlist.types import TopK
from studies.bench import attribute_memory, filter_churn, filters, largest_filter, served_filters

pytestmark = pytest.mark.rest

EVERYTHING = parse({})


SMALL = filters.Sizes(
    arms=(2_000,),
    shares=(0.5, 0.01),
    queries=60,
    turn=15,
    limits=FilterLimits(small_numbers=-1),  # no filter is small
    largest=2_000,
    churn=filter_churn.Sizes(arms=1_000, shares=(0.5, 0.05), answers=2_000, arms_per_s=1_000_000),
    memory=2_000,
)


@pytest.fixture
def unchanged_switch_interval(monkeypatch):
    monkeypatch.setattr(filter_churn.sys, "setswitchinterval", lambda seconds: None)


def test_every_case_and_part_has_its_rows(unchanged_switch_interval, capsys):
    result = filters.run(quick=True, sizes=SMALL)
    assert result["benchmark"] == "filters"
    rows = result["rows"]
    searches = [row for row in rows if row["part"] == "search"]
    assert [(row["norms"], row["placement"], row["share"], row["filter"]) for row in searches] == [
        (norms, placement, share, state)
        for norms in filters.NORMS
        for placement in filters.PLACEMENTS
        for share in (0.5, 0.01)
        for state in ("new", "known")
    ]
    for row in searches:
        assert row["eligible"] == 2_000 * row["share"]
        assert 0.0 < row["p50_us"] <= row["p99_us"]
        assert min(row["vs_numpy"], row["vs_unfiltered"], row["prepare_ms"]) > 0.0
        assert row["numpy"] in {"mask", "gather"}
        assert (row["ineligible"], row["false_exact"]) == (0, 0)
        if row["filter"] == "new":
            assert (row["exact"], row["recall_at_1"], row["reported"]) == (1.0, 1.0, 1.0)
    churn = [row for row in rows if row["part"] == "churn"]
    assert sum(row["answers"] for row in churn) >= 2_000
    for row in churn:
        assert (row["K"], row["ineligible"], row["dead"]) == (1_000, 0, 0)
        assert row["recall_at_1"] > 0.9
    (memory,) = (row for row in rows if row["part"] == "memory")
    assert memory["fields"] == 5
    printed = capsys.readouterr().out
    assert "vs_numpy" in printed
    assert "bytes_an_arm" in printed


@pytest.fixture(scope="module")
def arms():
    return filters.make(2_000, "gaussian")


def searched(arms, placement="independent", share=0.1, sizes=SMALL):
    return {row["filter"]: row for row in asyncio.run(filters.case(arms, placement, share, sizes))}


def test_an_ineligible_answer_shows(arms, monkeypatch):
    """A broken variant: the filter is forgotten."""
    monkeypatch.setattr(FilteredSnapshot, "search", lambda self, query, k: self.all_arms.search(query, k))
    for row in searched(arms, "clustered").values():
        assert row["ineligible"] == 60


def test_an_answer_that_wrongly_says_exact_shows(arms, monkeypatch):
    """A broken variant: the worst eligible arm is found."""

    def worst(self, query, k):
        found = self.search_exact(-query, k)
        return TopK(found.rows, -found.scores, exact=True)

    monkeypatch.setattr(FilteredSnapshot, "search", worst)
    for row in searched(arms).values():
        assert (row["false_exact"], row["recall_at_1"], row["ineligible"]) == (60, 0.0, 0)
        assert row["ratio_mean"] < 0.5


def test_dead_answers_show(unchanged_switch_interval, monkeypatch):
    """A broken variant: deleted arms stay in the index."""
    monkeypatch.setattr(filter_churn.Shop, "delete", lambda self, ids: None)
    rows = filter_churn.rows(SMALL.churn)
    assert all(row["dead"] > 0.5 * row["answers"] for row in rows)


@pytest.mark.slow
def test_ineligible_answers_show_while_arms_are_replaced(unchanged_switch_interval, monkeypatch):
    """A broken variant: once arms were replaced, the filter is forgotten."""
    original = FilteredSnapshots.of

    async def forgetful(self, catalogue, wanted):
        eligible = (await original(self, catalogue, wanted)).members
        return await original(self, catalogue, EVERYTHING if len(eligible.mask) > 1_100 else wanted)

    monkeypatch.setattr(FilteredSnapshots, "of", forgetful)
    assert any(row["ineligible"] > 0.1 * row["answers"] for row in filter_churn.rows(SMALL.churn))


@pytest.mark.parametrize("share", [0.5, 0.01, 0.0005])
def test_the_programs_in_numpy_find_the_best_eligible_arm(share):
    rng = np.random.default_rng(3)
    features, queries = rng.standard_normal((4_000, 8)), rng.standard_normal((20, 8))
    column = rng.permutation(4_000).astype(float)
    let_in = column < 4_000 * share
    scores = np.where(let_in, queries @ features.T, -np.inf)
    ids = [f"a{row}" for row in range(4_000)]
    plain = filters.Plain(features, features.astype(np.float32), ids)
    known, new = filters.of_known(plain, let_in), filters.of_new(plain, column, 4_000 * share)
    for program in (*known.values(), *new.values(), filters.fastest(known, queries)[1]):
        for query, expected in zip(queries, scores, strict=True):
            row, arm, score = program(query)
            assert (row, arm) == (expected.argmax(), f"a{row}")
            assert score == pytest.approx(expected[row])


def test_the_largest_filter_is_as_large_as_allowed_and_right():
    wanted = largest_filter.largest()
    assert wanted.conditions == MAX_CONDITIONS
    row = largest_filter.row(500)
    rng = np.random.default_rng(largest_filter.SEED)
    rng.standard_normal((500, largest_filter.DIM))
    let_in = [wanted.matches(*document) for document in attribute_memory.documents(500, rng)]
    assert (row["K"], row["eligible"]) == (500, sum(let_in))


@pytest.mark.slow
def test_a_missed_target_is_said_and_wrong_answers_fail(unchanged_switch_interval, monkeypatch, capsys):
    one = replace(SMALL, norms=("gaussian",), shares=(0.5,), placements=("independent",))
    one = replace(one, churn=replace(SMALL.churn, answers=500))
    never = {**filters.TARGETS, "vs_numpy": ("most", 0.0)}
    slow = filters.run(quick=True, sizes=one, targets=never)
    assert not slow["failed"]
    assert "vs_numpy" in slow["rows"][0]["missed"]
    assert "missed: search, 2000, gaussian, independent, 0.5, new: vs_numpy" in capsys.readouterr().out
    monkeypatch.setattr(FilteredSnapshot, "search", lambda self, query, k: self.all_arms.search(query, k))
    assert filters.run(quick=True, sizes=one, targets=never)["failed"]


@pytest.mark.parametrize("placement", filters.PLACEMENTS)
def test_placements_are_as_described(arms, placement):
    let_in = arms.lots[placement] < 1_000
    assert let_in.sum() == 200
    along = arms.features @ arms.away
    queries = filters.queries_of(arms, placement, 200, np.random.default_rng(1))
    clustered = placement == "clustered"
    assert (along[let_in].min() >= along[~let_in].max()) == clustered
    assert ((queries @ arms.away).max() <= -filters.AVERSION + 1e-9) == clustered


def test_answers_come_back_in_the_order_of_the_queries():
    queries = np.arange(50.0)[:, None]
    methods = [filters.Method(lambda query: (int(query[0]), "", 0.0)) for _ in range(3)]
    asyncio.run(filters.take_turns(methods, queries, size=7))
    for method in methods:
        assert method.rows == list(range(50))
        assert len(method.us) == 50
        assert method.times(method) == 1.0


def test_the_memory_is_that_of_the_service():
    assert Settings.model_fields["search_cache_mb"].default << 20 == served_filters.CACHE_BYTES


def test_memory_is_measured_beside_the_tables_own_account():
    row = attribute_memory.row(5_000)
    assert 0.5 < row["reported_an_arm"] / row["bytes_an_arm"] < 2.0
    assert row["bytes_an_arm"] < row["bytes_an_arm_replaced"]
