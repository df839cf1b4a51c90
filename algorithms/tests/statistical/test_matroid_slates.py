"""ICB under a matroid keeps its promise: an allowed slate, within epsilon of the best allowed one.

Of each of two makers at most one arm is allowed. The three best arms are of one maker, so the best set of
three arms is forbidden; the best slate has one of them, and every other one is 1.1 epsilon worse or more.

With failure probability at most delta = 0.05, more than 14 failures in 60 campaigns have probability below
7e-7: that is the false-alarm probability. A failure rate of 0.39 is seen with probability 0.99.
"""

import numpy as np
import pytest

from shortlist.slates import icb, least_squares, widths
from shortlist.slates.allocation import UNIFORM, slates
from shortlist.slates.matroids import PartitionMatroid, UniformMatroid, unseen

pytestmark = pytest.mark.rest

EPSILON, DELTA, NOISE = 1.0, 0.05, 1.5
RUNS, MOST = 60, 14
# With a free arm more than is needed all arms can be told apart; where every group is full they cannot.
INSTANCES = {
    "free arms": (
        PartitionMatroid((0, 0, 0, 1, 1, 2, 3), (1, 1, 1, 1), 3),
        (2.2, 1.1, 1.1, 0.0, -1.1, 0.0, -1.1),
    ),
    "full groups": (PartitionMatroid((0, 0, 0, 1, 1, 1), (1, 1), 2), (2.2, 1.1, 1.1, 0.0, -1.1, -1.1)),
}
instances = pytest.mark.parametrize(("matroid", "theta"), INSTANCES.values(), ids=INSTANCES)


def failures(matroid, theta):
    """Campaigns whose slate is forbidden, or more than epsilon below the best allowed one."""
    theta, wrong = np.array(theta) * EPSILON, 0
    best = theta[matroid.best(theta)].sum()
    for seed in range(RUNS):
        rng = np.random.default_rng((seed, 78))

        def totals(rows, rng=rng):
            return theta[rows].sum(axis=1) + NOISE * rng.standard_normal(len(rows))

        found = icb.identify(matroid, totals, epsilon=EPSILON, delta=DELTA, noise_std=NOISE, seed=seed)
        assert found.done
        chi = np.isin(np.arange(len(theta)), found.best)
        wrong += not matroid.has(chi[np.newaxis])[0] or theta[found.best].sum() < best - EPSILON
    return wrong


@instances
def test_the_slate_is_allowed_and_within_epsilon(matroid, theta):
    assert failures(matroid, theta) <= MOST


@instances
def test_without_its_widths_it_fails(matroid, theta, monkeypatch):
    monkeypatch.setattr(widths.Look, "width", lambda look, events, directions: 1e-6)
    assert failures(matroid, theta) > MOST


def test_with_the_slates_of_any_k_arms_it_fails(monkeypatch):
    """The gap to the best k arms, whatever the rules say, ends with a slate that is forbidden."""
    matroid, theta = INSTANCES["free arms"]
    real = least_squares.fit
    monkeypatch.setattr(icb, "fit", lambda A, b, rules: real(A, b, UniformMatroid(rules.n, rules.k)))
    assert failures(matroid, theta) > MOST


def violations(matroid, scale):
    """Of 400 runs of 40 looks, those in which some arm leaves its interval at some look."""
    rng, n = np.random.default_rng(6), matroid.n
    hidden = unseen(matroid)
    looks = [int(30 * 1.1**j) for j in range(40)]
    x = np.zeros((looks[-1], n))
    np.put_along_axis(x, slates(UNIFORM, matroid, 1, np.arange(looks[-1])), 1.0, axis=1)
    noise = rng.standard_normal((400, len(x)))
    left = np.zeros(400, dtype=bool)
    for index, t in enumerate(looks, start=1):
        W = np.linalg.inv(x[:t].T @ x[:t] + hidden @ hidden.T) - hidden @ hidden.T
        C = widths.arm_width(widths.Look(1.0, DELTA, "certified", t, index), n)
        errors = np.abs(noise[:, :t] @ x[:t] @ W)
        left |= (errors > scale * C * np.sqrt(np.maximum(np.diag(W), 0.0)) + 1e-9).any(axis=1)
    return int(left.sum())


@instances
def test_the_intervals_hold_for_all_arms_at_all_looks_at_once(matroid, theta):
    """More than 47 of 400 have probability below 1e-7 if one run violates with probability at most 0.05."""
    assert violations(matroid, 1.0) <= 47
    assert violations(matroid, 0.5) > 47
