"""LinUCB against the printed formula, arm by arm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.linear import linucb, ridge, ridge_sums

DIM, ARMS = 4, 30
RNG = np.random.default_rng(4)
FEATURES = RNG.normal(size=(ARMS, DIM))
SEEN = RNG.normal(size=(9, DIM))
VALUES = RNG.normal(size=9)
SUMS = ridge_sums.add(ridge_sums.empty(DIM), SEEN, VALUES, np.ones(9, dtype=bool))


def by_hand(alpha: float, sigma: float) -> np.ndarray:
    precision = 0.5 * np.eye(DIM) + SEEN.T @ SEEN
    theta = np.linalg.solve(precision, SEEN.T @ VALUES)
    widths = [np.sqrt(x @ np.linalg.solve(precision, x)) for x in FEATURES]
    return FEATURES @ theta + alpha * sigma * np.array(widths)


@given(
    st.floats(0, 50),
    st.floats(0.01, 10),
    st.integers(1, 40),
    st.lists(st.integers(0, ARMS - 1), max_size=29, unique=True),
)
def test_the_largest_bounds_come_first(alpha: float, sigma: float, k: int, exclude: list[int]):
    posterior = ridge.with_noise(ridge.posterior(SUMS, ridge=0.5), sigma)
    found = linucb.choose(posterior, FEATURES, k=k, alpha=alpha, exclude=np.array(exclude, dtype=np.int64))
    bounds = by_hand(alpha, sigma)
    left = [arm for arm in range(ARMS) if arm not in exclude]
    wanted = sorted(left, key=lambda arm: -bounds[arm])[:k]
    assert found.exact
    assert found.scores == pytest.approx(bounds[wanted], rel=1e-9, abs=1e-9)
    assert found.scores == pytest.approx(bounds[found.rows], rel=1e-9, abs=1e-9)
    assert set(found.rows.tolist()) <= set(left)
    assert len(set(found.rows.tolist())) == len(wanted)


def test_without_alpha_it_is_the_order_of_estimates_and_alpha_is_in_standard_deviations():
    """A broken bound that forgets the noise, or the root, is another order."""
    posterior = ridge.with_noise(ridge.posterior(SUMS, ridge=0.5), 3.0)
    found = linucb.choose(posterior, FEATURES, k=ARMS, alpha=0.0)
    assert found.rows.tolist() == np.argsort(-(FEATURES @ posterior.theta)).tolist()
    found = linucb.choose(posterior, FEATURES, k=ARMS, alpha=1.0)
    assert found.rows.tolist() == np.argsort(-by_hand(1.0, 3.0)).tolist()
    assert found.rows.tolist() != np.argsort(-by_hand(1.0, 1.0)).tolist()
