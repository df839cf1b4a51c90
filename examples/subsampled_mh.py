"""Metropolis-Hastings that reads a part of the data at each step: `python -m examples.subsampled_mh`.

A random walk over the weights of a logistic regression. The exact chain evaluates the likelihood of every
observation twice a step; the other one races the two states over the observations, in random order, and stops
when one of them is clearly ahead (Equation 12 of Chen and Ghahramani). With proxies, the log likelihood is
expanded around the maximum first, so that hardly anything is left to race over.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist.sampling.control_variates import Proxy, controlled
from shortlist.sampling.factors import Factors
from shortlist.sampling.metropolis_hastings import metropolis_hastings_step

Array = NDArray[np.float64]
PRIOR_STD = 10.0


@dataclass(frozen=True)
class Data:
    """Shapes: inputs (N, p), signs (N,) of +-1."""

    inputs: Array
    signs: Array

    def log_likelihoods(self, weights: Array, indices: NDArray[np.int64]) -> Array:
        return -np.logaddexp(0.0, -self.signs[indices] * (self.inputs[indices] @ weights))


@dataclass(frozen=True)
class Chain:
    """``reads`` is the share of all likelihoods that were evaluated, two for an observation and step."""

    states: Array
    accepted: float
    reads: float


def make(size: int, dim: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((size, dim))
    chances = 1.0 / (1.0 + np.exp(-inputs @ rng.standard_normal(dim)))
    return Data(inputs, np.where(rng.random(size) < chances, 1.0, -1.0))


def mode(data: Data) -> tuple[Array, Array]:
    """The weights of largest posterior density, and the Hessian of its negative logarithm, by Newton."""
    weights = np.zeros(data.inputs.shape[1])
    for _ in range(25):
        slopes = data.signs / (1.0 + np.exp(data.signs * (data.inputs @ weights)))
        curvature = np.abs(slopes) * (1.0 - np.abs(slopes))
        hessian = data.inputs.T @ (data.inputs * curvature[:, None]) + np.eye(len(weights)) / PRIOR_STD**2
        weights = weights + np.linalg.solve(hessian, data.inputs.T @ slopes - weights / PRIOR_STD**2)
    return weights, hessian


def proxies(data: Data, weights: Array) -> Callable[[Array], Proxy]:
    """For two states: each log likelihood to second order around ``weights``, with its mean over all data."""
    everything = np.arange(len(data.signs))
    values = data.log_likelihoods(weights, everything)
    slopes = data.signs / (1.0 + np.exp(data.signs * (data.inputs @ weights)))
    curvature = np.abs(slopes) * (1.0 - np.abs(slopes))
    mean_slope = data.inputs.T @ slopes / len(slopes)
    mean_curvature = data.inputs.T @ (data.inputs * curvature[:, None]) / len(slopes)

    def of(states: Array) -> Proxy:
        steps = states - weights
        quadratic = np.einsum("ip,pq,iq->i", steps, mean_curvature, steps)
        means = values.mean() + steps @ mean_slope - 0.5 * quadratic

        def some(rows: NDArray[np.int64], indices: NDArray[np.int64]) -> Array:
            moved = steps[rows] @ data.inputs[indices].T
            expanded: Array = values[indices] + moved * slopes[indices] - 0.5 * moved**2 * curvature[indices]
            return expanded

        return Proxy(some, means)

    return of


def walk(
    data: Data, *, steps: int, seed: int, delta: float | None, proxy: Callable[[Array], Proxy] | None = None
) -> Chain:
    """A chain from the mode; ``delta`` None decides exactly."""
    rng = np.random.default_rng(seed)
    state, hessian = mode(data)
    root = np.linalg.inv(np.linalg.cholesky(hessian)).T * (2.4 / np.sqrt(len(state)))
    size, states, reads, accepted = len(data.signs), [], 0, 0
    for _ in range(steps):
        pair = np.stack((state, state + root @ rng.standard_normal(len(state))))
        factors = Factors(
            2, size, lambda rows, n, pair=pair: np.stack([data.log_likelihoods(pair[row], n) for row in rows])
        )
        prior = -0.5 * (pair**2).sum(axis=1) / PRIOR_STD**2
        if delta is None:
            first, second = factors.sums() + prior
            move, read = second - first > -rng.standard_exponential(), factors.exhaustive_reads
        else:
            if proxy is not None:
                factors, constants = controlled(factors, proxy(pair))
                prior = prior + constants
            step = metropolis_hastings_step(
                factors, log_prior=prior, log_proposal=np.zeros(2), delta=delta, rng=rng
            )
            move, read = step.accepted, step.reads
        state = pair[1] if move else state
        states.append(state)
        reads, accepted = reads + read, accepted + bool(move)
    return Chain(np.array(states), accepted / steps, reads / (2 * size * steps))


def main() -> None:
    parser = argparse.ArgumentParser(description="Metropolis-Hastings on a part of the data")
    parser.add_argument("--size", type=int, default=50_000, help="observations")
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--delta", type=float, default=0.05, help="how often a decision may be wrong")
    parsed = parser.parse_args()
    data = make(parsed.size, 3, seed=1)
    expanded = proxies(data, mode(data)[0])
    chains = {
        "exact": walk(data, steps=parsed.steps, seed=2, delta=None),
        "race": walk(data, steps=parsed.steps, seed=2, delta=parsed.delta),
        "race with proxies": walk(data, steps=parsed.steps, seed=2, delta=parsed.delta, proxy=expanded),
    }
    print(f"{'chain':18} {'reads':>8} {'accepted':>8}   posterior mean and standard deviation")
    for name, chain in chains.items():
        mean, std = chain.states.mean(axis=0), chain.states.std(axis=0)
        moments = "  ".join(f"{m:.4f} ({s:.4f})" for m, s in zip(mean, std, strict=True))
        print(f"{name:18} {chain.reads:8.1%} {chain.accepted:8.1%}   {moments}")


if __name__ == "__main__":
    main()
