"""The planner's benchmark on catalogues small enough for a test."""

from __future__ import annotations

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


def test_a_seed_is_refused_where_seeds_are_fixed(capsys):
    assert cli.main(["bench", "churn", "--seed", "1"]) == 2
    assert "fixed" in capsys.readouterr().err
