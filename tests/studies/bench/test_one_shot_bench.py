"""The benchmark of one-shot search, on a case small enough for a test."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.mips.read_costs import READS_ALONE
from studies.bench import bounded_me
from studies.bench.screening_methods import Sweep
from studies.experiments import bounded_me_guarantee

pytestmark = pytest.mark.rest

METHODS = {"bounded_me", "racing", "greedy_mips", "lsh_mips", "pca_mips", "hnswlib"}


FEW = bounded_me.Settings(
    shares=(0.01, 0.5),
    ef_search=(16,),
    screening=Sweep(budgets=(0.02, 1.0), hashes=((2, 2), (20, 2)), depths=(0, 4)),
    least_s=0.0,
)


def check(rows):
    assert {row["method"] for row in rows} >= METHODS
    assert {row["k"] for row in rows} == set(bounded_me.KS)
    for row in rows:
        assert 0 <= row["precision"] <= 1
        assert row["suboptimality"] <= (row["epsilon"] or np.inf)
        assert row["time"] > 0
        if row["guarantee"] == "exact":
            assert (row["precision"], row["reads"]) == (1, 1)
        if row["reads"] is not None:
            assert 0 < row["reads"] <= 1 or row["method"] == "lsh_mips"  # hashing may cost more than a scan
        if (row["method"], row["setting"]) in {("greedy_mips", 1.0), ("pca_mips", 0)}:
            assert (row["precision"], row["suboptimality"], row["reads"]) == (1, 0, 1)


def test_every_method_has_its_rows_and_the_exact_ones_are_exact():
    check(bounded_me.case("low_rank", 200, 1_000, 2, READS_ALONE, settings=FEW))


def test_figure_1_is_below_the_diagonal():
    for order, plan in bounded_me_guarantee.CASES:
        row = bounded_me_guarantee.row(order, 0.3, 2, plan, n=500, dim=20_000)
        assert row["below_epsilon"]
        assert row["failures"] == 0
        assert 0 < row["reads"] < 1
