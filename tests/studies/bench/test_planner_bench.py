"""The planner's benchmark on catalogues small enough for a test."""

from __future__ import annotations

import sys
import threading

import pytest

from app.indexes.index_limits import IndexLimits
from server import cli
from studies.bench import planner as bench

pytestmark = pytest.mark.rest


SMALL = bench.Sizes(arms=400, dim=4, checked=40, limits=IndexLimits(small_numbers=0))


@pytest.mark.slow
def test_every_seed_is_built_next_to_every_neighbour(capsys):
    rows = bench.run(quick=True, sizes=SMALL)["rows"]
    seeds = [bench.SEED + build for build in range(bench.QUICK_BUILDS)]
    assert [(row["seed"], row["neighbour"]) for row in rows] == [
        (seed, neighbour) for seed in seeds for neighbour in ("nothing", "process", "thread")
    ]
    for row in rows:
        assert row["speedup"] == pytest.approx(row["scan_us"] / row["us"])
        assert 0.0 < row["checked"] <= 1.0
    assert "of 3 builds are served by a graph" in capsys.readouterr().out


@pytest.mark.slow
def test_a_build_is_repeated_by_its_seed():
    one, again, other = (bench.run(quick=False, seed=seed, sizes=SMALL)["rows"] for seed in (77, 77, 78))
    assert [row["seed"] for row in one] == [77, 77, 77]
    for row, repeated, different in zip(one, again, other, strict=True):
        if row["ef"] == repeated["ef"]:  # which ef serves depends on times as well
            assert (row["recall"], row["checked"]) == (repeated["recall"], repeated["checked"])
        assert row["ratio_mean"] != different["ratio_mean"] or row["kind"] == "exact"


@pytest.mark.slow
def test_the_busy_process_ends_with_the_block():
    with bench.busy_process():
        (process,) = bench.multiprocessing.active_children()
        assert process.is_alive()
    assert not process.is_alive()


def test_the_busy_thread_ends_with_the_block_and_leaves_the_interpreter_as_it_was():
    before = threading.active_count(), sys.getswitchinterval()
    with bench.busy_thread():
        assert threading.active_count() == before[0] + 1
    assert (threading.active_count(), sys.getswitchinterval()) == before


def test_a_seed_is_refused_where_seeds_are_fixed(capsys):
    assert cli.main(["bench", "churn", "--seed", "1"]) == 2
    assert "fixed" in capsys.readouterr().err
