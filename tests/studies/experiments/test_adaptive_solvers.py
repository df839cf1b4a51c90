"""The comparison of solvers: exact ones never fail, instances and rows are what they say."""

from __future__ import annotations

import pytest

from studies.experiments import adaptive_solvers as compared
from studies.experiments.adaptive_solvers import ways

pytestmark = pytest.mark.rest


def rows_of(instance, name):
    return [compared.row(instance, *way, 20) for way in ways(instance) if way[0] == name]


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
