"""The policy, the constraint and the index keep the contracts of Shortlist."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist_example.indexes import Codes, Flat8, IvfPq
from shortlist_example.policies import EnsembleSampling

from shortlist.linear.ridge import posterior, prior
from shortlist.linear.ridge_sums import of
from shortlist_service.testing import ConstraintCase, ConstraintContract, IndexContract, PolicyContract
from shortlist_service.testing.shop import number


class TestPolicy(PolicyContract):
    @pytest.fixture
    def policy(self) -> EnsembleSampling:
        return EnsembleSampling()


def test_models_that_followed_rewards_spread_as_the_posterior():
    """The quadratic form of 30 models of 400 learners is chi-square: wrong once in 1e7."""
    policy, total = EnsembleSampling(), 0.0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        features, state = rng.normal(size=(5, 2)), policy.start(prior(2, ridge=0.5), rng)
        for count in (1, 2, 5):
            now = posterior(of(features[:count], np.zeros(count), np.ones(count, bool)), ridge=0.5)
            state = policy.follow(state, now, rng)
        noise = (state.noise + 0.5**0.5 * state.start) @ now.root
        total += float((noise**2).sum())
    assert abs(total - 24_000) < 5.33 * (2 * 24_000) ** 0.5


class TestConstraint(ConstraintContract):
    @pytest.fixture
    def case(self) -> ConstraintCase:
        return ConstraintCase(
            lambda lists: all(number(arm) <= 5 for arms in lists for arm in arms),
            settings={"constraints": {"fresh": {"days": 5.5}}},
        )


class TestIndexes(IndexContract):
    @pytest.fixture(params=[Flat8, IvfPq])
    def build(self, request: pytest.FixtureRequest) -> type[Codes]:
        if request.param is IvfPq:
            pytest.importorskip("faiss")
        return request.param
