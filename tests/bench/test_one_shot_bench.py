"""The benchmark of one-shot search, on a case small enough for a test."""

from __future__ import annotations

import numpy as np
import pytest

from app import cli
from app.algorithms.mips.read_costs import READS_ALONE
from app.bench import bounded_me
from app.experiments import bounded_me_guarantee, coordinates


def test_every_method_has_its_rows_and_the_exact_ones_are_exact(monkeypatch):
    monkeypatch.setattr(bounded_me, "SHARES", (0.01, 0.5))
    rows = bounded_me.case("low_rank", 200, 1_000, 2, READS_ALONE)
    assert {row["method"] for row in rows} >= {"bounded_me", "racing", "hnswlib"}
    assert {row["k"] for row in rows} == set(bounded_me.KS)
    for row in rows:
        assert 0 <= row["precision"] <= 1
        assert row["suboptimality"] <= (row["epsilon"] or np.inf)
        assert row["time"] > 0
        if row["guarantee"] == "exact":
            assert (row["precision"], row["reads"]) == (1, 1)
        if row["reads"] is not None:
            assert 0 < row["reads"] <= 1


@pytest.mark.parametrize("data", bounded_me.DATA)
def test_data_is_as_described(data):
    vectors, asked = coordinates.make(data, 300, 400, 5, np.random.default_rng(0))
    assert vectors.shape == (300, 400)
    assert asked.shape == (5, 400)
    assert vectors.dtype == np.float32
    share = (np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False) ** 2)[: coordinates.RANK].sum()
    assert (share > 0.9 * (vectors**2).sum()) == (data == "low_rank")
    assert (vectors.min() >= 0) == (data == "uniform")


def test_figure_1_is_below_the_diagonal(monkeypatch):
    monkeypatch.setattr(bounded_me_guarantee, "ARMS", 500)
    monkeypatch.setattr(bounded_me_guarantee, "REWARDS", 20_000)
    for order, plan in bounded_me_guarantee.CASES:
        row = bounded_me_guarantee.row(order, 0.3, 2, plan)
        assert row["below_epsilon"]
        assert row["failures"] == 0
        assert 0 < row["reads"] < 1


def test_what_can_be_reproduced_exists():
    for name in ("figure1-bounded-me", "figures2to4-bounded-me"):
        module, text = cli.REPRODUCTIONS[name]
        assert text
        assert module.startswith("app.")
