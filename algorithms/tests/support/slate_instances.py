"""Instances, designs, whole campaigns and brute force for the tests of slates."""

from itertools import combinations

import numpy as np

from shortlist.slates import ask_tell, exhaustive, icb, sa_foa, saqm
from shortlist.slates.least_squares import fit
from shortlist.slates.matroids import UniformMatroid

METHODS = {"saqm": saqm, "sa_foa": sa_foa, "icb": icb, "exhaustive": exhaustive}


def start(method, **options):
    defaults = {
        "n": 8, "k": 3, "epsilon": 0.5, "delta": 0.05, "noise_std": 1.0, "reach": None,
        "allocation": "uniform", "bound": "certified", "seed": 1, "matroid": None,
    }  # fmt: skip
    return METHODS[method].start(**(defaults | options))


def means(n, k, gap, seed):
    """As the paper: the k best in [0, 1], the next ``gap`` below the least of them, the rest below that."""
    rng = np.random.default_rng(seed)
    theta = np.empty(n)
    theta[:k] = rng.uniform(0.0, 1.0, k)
    theta[k] = theta[:k].min() - gap
    theta[k + 1 :] = rng.uniform(-1.0, theta[k], n - k - 1)
    return rng.permutation(theta)


def play(state, theta, seed, *, noise=1.0, batch=100, most=10**6):
    """Run a campaign to its end on Gaussian noise."""
    rng = np.random.default_rng(seed)
    while not state.done:
        assert state.observed < most
        state, pulls = ask_tell.ask(state, batch)
        totals = [float(theta[list(p.slate)].sum() + noise * rng.standard_normal()) for p in pulls]
        state = ask_tell.tell(state, list(zip([p.number for p in pulls], totals, strict=True)))
    return state


def lost(state, theta):
    """By how much the best slate exceeds the one that was found."""
    k = state.settings.k
    return float(np.sort(theta)[-k:].sum() - theta[state.report.best].sum())


def designs(n, k, seed):
    """Inverses of A of three kinds: few slates, many slates, and a Wishart matrix."""
    rng = np.random.default_rng(seed)
    for pulls in (2 * n, 50 * n):
        slates = np.array([rng.permutation(n)[:k] for _ in range(pulls)])
        x = np.zeros((pulls, n))
        np.put_along_axis(x, slates, 1.0, axis=1)
        A = x.T @ x
        if np.linalg.matrix_rank(A) == n:
            yield np.linalg.inv(A)
    z = rng.standard_normal((n + 2, n))
    yield z.T @ z


def fits(n, k, seed):
    """Estimates over these designs, some near a tie, some not."""
    rng = np.random.default_rng(seed + 1)
    for W in designs(n, k, seed):
        theta = rng.standard_normal(n) * rng.choice([0.01, 1.0])
        A = np.linalg.inv(W)
        found = fit(A, A @ theta, UniformMatroid(n, k))
        if found is not None:
            yield found


def indicators(n, k):
    """Every slate."""
    x = np.zeros((len(list(combinations(range(n), k))), n))
    for row, members in enumerate(combinations(range(n), k)):
        x[row, list(members)] = 1.0
    return x
