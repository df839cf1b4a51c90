"""The (epsilon, delta)-PAC promise of all four methods, on an instance where a wrong slate is a failure.

The (k+1)-th arm is 1.1 epsilon below the k-th. With failure probability at most delta = 0.05, more than 7
failures in 15 campaigns have probability below 3e-7, and more than 14 in 60 below 7e-7: that is the
false-alarm probability of each test.
"""

import numpy as np
import pytest

from shortlist.slates import ask_tell, exhaustive, icb, sa_foa, saqm, widths

pytestmark = pytest.mark.rest

METHODS = {"saqm": saqm, "sa_foa": sa_foa, "icb": icb, "exhaustive": exhaustive}
N, K, EPSILON, DELTA, NOISE = 7, 3, 1.0, 0.05, 1.5
MOST = {15: 7, 60: 14}  # by campaigns
THETA = np.array([0.0, 0.0, 0.0, -1.1, -1.1, -1.1, -1.1]) * EPSILON


def failures(method, runs, bound="certified"):
    """Campaigns that return a slate more than epsilon below the best."""
    wrong = 0
    for seed in range(runs):
        rng = np.random.default_rng((seed, 77))
        state = METHODS[method].start(
            n=N, k=K, epsilon=EPSILON, delta=DELTA, noise_std=NOISE, reach=None, allocation="uniform",
            bound=bound, seed=seed, matroid=None,
        )  # fmt: skip
        while not state.done:
            state, pulls = ask_tell.ask(state, 400)
            totals = THETA[[p.slate for p in pulls]].sum(axis=1) + NOISE * rng.standard_normal(len(pulls))
            state = ask_tell.tell(state, list(zip([p.number for p in pulls], totals.tolist(), strict=True)))
        wrong += float(THETA[state.report.best].sum()) < -EPSILON
    return wrong


@pytest.mark.parametrize("runs", [15, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_the_slate_is_within_epsilon(method, runs):
    assert failures(method, runs) <= MOST[runs]


@pytest.mark.parametrize("method", METHODS)
def test_without_its_widths_a_method_fails(method, monkeypatch):
    monkeypatch.setattr(widths.Look, "width", lambda look, events, directions: 1e-6)
    assert failures(method, 15) > MOST[15]


def violations(scale):
    """Runs of 40 looks in which some exchange of the true best slate leaves its width, at some look."""
    rng = np.random.default_rng(5)
    slates = np.array([rng.permutation(N)[:K] for _ in range(1_500)])
    x = np.zeros((len(slates), N))
    np.put_along_axis(x, slates, 1.0, axis=1)
    v = exhaustive.all_slates(N, K) - np.repeat([1.0, 0.0], [K, N - K])
    v = v[(v != 0).any(axis=1)]
    sizes = (v > 0).sum(axis=1)
    looks = [int(30 * 1.1**j) for j in range(40)]
    errors = np.zeros((400, len(v)), dtype=bool)
    noise = rng.standard_normal((400, len(slates)))
    for index, t in enumerate(looks, start=1):
        W = np.linalg.inv(x[:t].T @ x[:t])
        C = widths.exchange_widths(widths.Look(1.0, DELTA, "certified", t, index), N, K)
        reach = scale * C[sizes - 1] * np.sqrt(((v @ W) * v).sum(axis=1))
        errors |= noise[:, :t] @ x[:t] @ W @ v.T > reach
    return int(errors.any(axis=1).sum())


def test_the_widths_hold_for_all_exchanges_at_all_looks_at_once():
    """More than 47 of 400 have probability below 1e-7 if one run violates with probability at most 0.05."""
    assert violations(1.0) <= 47
    assert violations(0.5) > 47
