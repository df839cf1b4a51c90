"""The comparison of solvers: exact ones never fail, instances and rows are what they say."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from studies.experiments import adaptive_solvers as compared
from studies.experiments.adaptive_solvers import ways

pytestmark = pytest.mark.rest


def rows_of(instance, name):
    return [compared.row(instance, *way, 20) for way in ways(instance) if way[0] == name]


@pytest.mark.parametrize("make", [compared.one_long, compared.gaussian])
def test_every_query_has_an_arm_that_counts(make):
    instance = make(300)
    assert np.linalg.norm(instance.arms, axis=1).max() == pytest.approx(1.0)
    for query in islice(instance.queries(np.random.default_rng(0)), 20):
        assert np.linalg.norm(query) == pytest.approx(1.0)
        assert (instance.arms @ query).max() >= instance.r + instance.epsilon


def test_only_the_long_arm_is_an_answer():
    instance = compared.one_long(300)
    short = np.delete(instance.arms, 0, axis=0)
    assert np.linalg.norm(short, axis=1).max() < instance.c * instance.r


@pytest.mark.parametrize("make", [compared.one_long, compared.gaussian])
def test_each_way_has_its_row(make):
    instance = make(300)
    (scan,) = rows_of(instance, "scan")
    assert (scan["fixed"], scan["adversary"], scan["products"]) == (0, 0, 1.0)
    hashed = rows_of(instance, "hashed")
    assert [row["solvers"] for row in hashed] == [1, 4, instance.kappa]
    assert (hashed[-1]["fixed"], hashed[-1]["adversary"]) == (0, 0)
    assert 0 < hashed[0]["products"] < hashed[1]["products"] < hashed[2]["products"]
    assert [row["solvers"] for row in rows_of(instance, "graph")] == [1, 4]


def test_formulas_count_all_solvers_of_the_theorem():
    found = compared.formulas()
    assert len(found) == len(compared.CONTRACTS) * len(compared.COUNTS)
    kappa = compared.one_long(10).kappa
    for row in found:
        assert row["all"] == pytest.approx(kappa * row["one"])
        assert row["one"] * row["K"] >= row["bits"] * row["tables"]
        assert 0 < row["rho"] < row["rho_printed"] < 1
    (printed,) = {row["rho_printed"] for row in found if (row["c"], row["r"]) == (0.5, 0.8)}
    assert printed == pytest.approx(4 * (2.6 / 2.2) / (1 + 2.6 / 2.2) ** 2)
