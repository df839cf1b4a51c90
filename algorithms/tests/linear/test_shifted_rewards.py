"""The transformation of section 6.1: order kept, rewards moved to [0, 1], norms still at most 1."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.errors import InvalidShape
from shortlist.linear import ridge, ridge_sums
from shortlist.linear.shifted_rewards import shift_features, shift_rewards, unshift_scores


def test_the_shifted_parameter_gives_the_shifted_reward():
    rng = np.random.default_rng(0)
    features, theta = rng.standard_normal((50, 4)), rng.standard_normal(4)
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
    theta_shifted = shift_features(theta[None])[0]
    shifted = shift_features(features)
    np.testing.assert_allclose(shifted @ theta_shifted, shift_rewards(features @ theta), rtol=1e-12)
    np.testing.assert_allclose(unshift_scores(shift_rewards(features @ theta)), features @ theta, atol=1e-12)
    assert np.linalg.norm(shifted, axis=1).max() <= 1 + 1e-12


def test_ridge_regression_recovers_it_when_every_reward_is_negative():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((4000, 3))
    values = features @ np.array([0.2, -0.1, 0.3]) - 5.0
    sums = ridge_sums.add(
        ridge_sums.empty(4), shift_features(features), shift_rewards(values), np.ones(4000, dtype=bool)
    )
    estimate = ridge.posterior(sums, ridge=1.0)
    found = unshift_scores(shift_features(features) @ estimate.theta)
    np.testing.assert_allclose(found, values, atol=0.02)


@pytest.mark.rest
def test_inputs_stay_and_shapes_are_checked():
    features = np.ones((2, 3))
    features.setflags(write=False)
    assert shift_features(features).shape == (2, 4)
    with pytest.raises(InvalidShape, match="features"):
        shift_features(np.ones(3))
