"""The study of propensities by draws: its counts, and that the forms differ as the theory says."""

from __future__ import annotations

import pytest

from studies.bench import logged_draws
from studies.bench.logged_draws import FORMS, World, rows_of, summary_of

pytestmark = pytest.mark.rest

SMALL = World("small", arms=5, k=2, fold=10, decisions=200, draws=100, logs=2)


def test_each_target_and_form_has_a_row_and_rows_are_summed_up() -> None:
    rows = rows_of(SMALL, seed=1)
    seen = {(row["target"], row["form"], row["estimator"]) for row in rows}
    near = {(target, form, "snips") for target in logged_draws.NEAR for form in FORMS}
    assert near <= seen
    assert all(row["logs"] == SMALL.logs for row in rows)
    assert {row["form"] for row in summary_of(rows)} <= set(FORMS)
    assert rows == rows_of(SMALL, seed=1)
