"""The benchmark of evaluation on logs small enough for a test: both ways give the same numbers."""

from __future__ import annotations

import pytest

from studies.bench import evaluation
from studies.bench.evaluation import Case

pytestmark = pytest.mark.rest


@pytest.mark.slow
def test_every_case_has_its_row_and_both_ways_agree(capsys):
    cases = tuple(Case(case.name, 40, case.k, 5 if case.situations else 0) for case in evaluation.CASES)
    few = evaluation.Sizes(cases=cases, decisions=600, rounds=3, lengths=(300, 1_200), learned=50, page=100)
    found = evaluation.run(quick=True, sizes=few)
    assert [row["case"] for row in found["rows"]] == [case.name for case in cases]
    for row in found["rows"]:
        assert row["decisions"] == 600
        assert row["differ"] < 1e-9
        assert row["ratio"] == pytest.approx(row["per_s"] / row["loop_per_s"])
    assert [row["decisions"] for row in found["memory"]] == [300, 1_200]
    assert "each its own context" in capsys.readouterr().out
