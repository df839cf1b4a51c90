"""The study of propensities by draws: its counts, and that the forms differ as the theory says."""

from __future__ import annotations

import numpy as np
import pytest

from studies.bench import logged_draws
from studies.bench.logged_draws import FORMS, World, conditional, prefixes, rows_of, summary_of

pytestmark = pytest.mark.rest

SMALL = World("small", arms=5, k=2, fold=10, decisions=200, draws=100, logs=2)


def test_shares_are_those_of_lists_that_begin_alike() -> None:
    simulated = np.array([[0, 1], [0, 2], [0, 1], [3, 1]])
    shares, expected = prefixes(simulated, np.array([[0, 1], [3, 2], [4, 1]]), np.arange(5.0))
    assert shares.tolist() == [[0.75, 0.5], [0.25, 0.0], [0.0, 0.0]]
    assert expected[0].tolist() == pytest.approx([0.75, 4 / 3])
    assert np.isnan(expected[2, 1])
    assert conditional(shares)[0].tolist() == pytest.approx([0.75, 2 / 3])


def test_a_count_with_the_own_draw_has_an_unbiased_inverse() -> None:
    """E[(N + 1) / (c + 1)] = (1 - (1 - p)^(N + 1)) / p, and the plain inverse is above it."""
    draws, p = 50, 0.1
    counts = np.arange(draws + 1)
    binomial = np.array([1.0])
    for _ in range(draws):
        binomial = np.convolve(binomial, [1.0 - p, p])
    own = binomial @ ((draws + 1) / (counts + 1))
    assert own == pytest.approx((1.0 - (1.0 - p) ** (draws + 1)) / p, rel=1e-12)
    assert binomial @ (draws / np.maximum(counts, 1)) > 1.05 / p


def test_each_target_and_form_has_a_row_and_rows_are_summed_up() -> None:
    rows = rows_of(SMALL, seed=1)
    seen = {(row["target"], row["form"], row["estimator"]) for row in rows}
    near = {(target, form, "snips") for target in logged_draws.NEAR for form in FORMS}
    assert near <= seen
    assert all(row["logs"] == SMALL.logs for row in rows)
    assert {row["form"] for row in summary_of(rows)} <= set(FORMS)
    assert rows == rows_of(SMALL, seed=1)
