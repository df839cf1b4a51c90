"""The slate experiments on instances small enough for a test: their rows, instances and chart."""

from __future__ import annotations

import math

import pytest

from studies.bench import slates as bench
from studies.experiments import slate_bounds, slate_crowdsourcing, slate_figures

pytestmark = pytest.mark.rest

FEW = slate_bounds.Instances(n=6, k=2, gaps=(0.5, 1.0))


@pytest.mark.slow
def test_the_figures():
    rows = [*slate_figures.precision(2_000, FEW), *slate_figures.times((6, 30))]
    rows += slate_figures.samples(1, 5_000, FEW)
    first = [row for row in rows if row["figure"] == 1]
    for row in first:
        assert 0.0 < row["saqm_ratio"] <= 1.0 + 1e-9
        assert row["saqm_bound"] >= 1.0 - 1e-9
        assert (
            math.isnan(row["sa_foa_ratio"]) or row["sa_foa_ratio"] <= 1.0 + 1e-9 <= row["sa_foa_bound"] + 2e-9
        )
    third = {(row["method"], row["bound"]): row for row in rows if row["figure"] == 3}
    assert third["sa_foa", "certified"]["gap 0.5"] <= third["icb", "certified"]["gap 0.5"]
    assert all(row["not within epsilon"] == 0 for row in third.values())


def test_the_crowdsourcing_table_names_what_was_printed(capsys):
    (row,) = slate_crowdsourcing.run(
        "slates-crowdsourcing", True, None, k=3,
        tasks=(("IT", 12, 0.54, 0.84, (46_658, 68_328, 3_421)),),
        methods=(("icb", "certified"), ("sa_foa", "certified")),
    )["rows"]  # fmt: skip
    assert row["sa_foa"] <= row["icb"]
    assert (row["icb printed"], row["not within epsilon"]) == (46_658, 0)
    assert "printed" in capsys.readouterr().out


@pytest.mark.slow
def test_the_benchmark_measures_what_it_says():
    few = bench.Sizes(timed=((8, 2), (16, 3)), long=(8, 2, 300), small=((6, 2),), seeds=2)
    rows = bench.run(quick=True, sizes=few)["rows"]
    assert [row["n"] for row in rows] == [8, 16, "exponent", 8, 6]
    assert all(row["saqm_look_ms"] > 0 for row in rows[:2])
    assert rows[-1]["sa_foa_ratio"] >= 1.0
    assert rows[-1]["saqm_theorem_1_over_certified"] > 10
