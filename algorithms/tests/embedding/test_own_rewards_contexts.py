"""Coordinates from a bandit's own rewards where decisions had contexts."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.embedding.own_rewards import Contexts, Rewards, estimates
from shortlist.linear import bilinear, learned_prior

pytestmark = pytest.mark.rest

KEYS, ARMS, SHOWN = 40, 50, 4_000


def rewards_by_taste(interactions, seed=1):
    """Rewards by a table of two numbers, of which the first counts as the context says."""
    rng = np.random.default_rng(seed)
    table, tastes = rng.standard_normal((ARMS, 2)), rng.standard_normal((KEYS, 2))
    table[:, 0] *= 3.0  # so it is the first direction
    keys, arms = rng.integers(KEYS, size=SHOWN), rng.integers(ARMS, size=SHOWN)
    contexts = rng.standard_normal((SHOWN, 1))
    means = np.einsum("nd,nd->n", table[arms], tastes[keys]) + 2.0 * contexts[:, 0] * table[arms, 0]
    values = means + 0.5 * rng.standard_normal(SHOWN)
    return Rewards(keys, arms, values, KEYS, Contexts(contexts, interactions)), table


@pytest.mark.parametrize("interactions", [None, 1])
def test_learners_see_arms_in_the_context_of_the_decision(interactions):
    rewards, table = rewards_by_taste(interactions)
    first, last = rewards.part(slice(0, 3_600)), rewards.part(slice(3_600, None))
    found = estimates(first, last, table, np.random.default_rng(0))
    directions = None if interactions is None else bilinear.directions(table.T @ table, interactions)

    def joint(part):
        told = bilinear.phi(table[part.arms], directions, part.contexts.numbers)
        return np.column_stack((told, np.ones(len(part))))

    sums = [joint(first)[first.keys == key] for key in range(KEYS)]
    values = [first.values[first.keys == key] for key in range(KEYS)]
    prior = learned_prior.fit(
        np.array([x.T @ x for x in sums]),
        np.array([[r @ x] for x, r in zip(sums, values, strict=True)]),
        np.array([[[r @ r]] for r in values]),
        np.array([float(len(r)) for r in values]),
    )
    thetas = [
        np.linalg.solve(x.T @ x + prior.precision, r @ x + prior.pull[0])
        for x, r in zip(sums, values, strict=True)
    ]
    expected = np.einsum("nd,nd->n", joint(last), np.array(thetas)[last.keys])
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert np.mean((last.values - found) ** 2) < 0.5  # the noise has .25, the context 36
