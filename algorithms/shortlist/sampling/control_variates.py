"""Control variates: subtract from every reward a proxy of known mean, so that less is left to estimate.

Notation
    D, N, p     number of arms, of factors, dimension of an observation
    h_i,n       proxy of log f_n(i); its mean E h_i over n is known
    y_n         observation n (p,); y^ a reference point
    g_i, H_i    gradient (p,) and Hessian (p, p) of l_i(y) = log p(y | i) at y^

l_i,n - h_i,n + E h_i has the mean of l_i,n, so the winner is the same; its variance is small where h is
close. Racing-Normal gains most: the other methods need a bound on the range of l - h, which the caller must
know.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", section 3.4,
Equation 11.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.sampling.factors import Factors, LogFactors
from shortlist.types import Matrix, Rows, Vector


@dataclass(frozen=True, slots=True)
class Proxy:
    """``values(arms (m,), indices (w,)) -> (m, w)`` are the h; ``means`` (D,) the E h over all N indices."""

    values: LogFactors
    means: Vector


def controlled(factors: Factors, proxy: Proxy) -> tuple[Factors, Vector]:
    """Return the factors of l - h, and N E h (D,), which must be added to ``log_prior``.

    Only the l are counted as reads: a proxy must be cheap. Raises: InvalidShape, NonFinite.
    """
    checks.shape("means", proxy.means, (factors.arms,))
    checks.finite("means", proxy.means)

    def residual(arms: Rows, indices: Rows) -> Matrix:
        return factors.read(arms, indices) - proxy.values(arms, indices)

    return Factors(factors.arms, factors.size, residual), factors.size * proxy.means


def taylor_proxy(
    observations: Matrix, *, reference: Vector, values: Vector, gradients: Matrix, hessians: Matrix
) -> Proxy:
    """Return the proxy of Equation 11: l_i to second order around ``reference``.

    Its means follow from the first two moments of the observations.
    Shapes: observations (N, p), reference (p,), values (D,), gradients (D, p), hessians (D, p, p).
    Cost: N p^2 once, p^2 a value. Raises: InvalidShape, NonFinite.
    """
    dim, arms = observations.shape[-1], len(values)
    for name, array, shape in (
        ("observations", observations, (None, dim)),
        ("reference", reference, (dim,)),
        ("values", values, (arms,)),
        ("gradients", gradients, (arms, dim)),
        ("hessians", hessians, (arms, dim, dim)),
    ):
        checks.shape(name, array, shape)
        checks.finite(name, array)
    steps = observations - reference
    second_moment = steps.T @ steps / len(steps)
    means = values + gradients @ steps.mean(axis=0) + 0.5 * np.einsum("ipq,pq->i", hessians, second_moment)

    def proxy(some: Rows, indices: Rows) -> Matrix:
        step = steps[indices]
        curved = np.einsum("np,ipq,nq->in", step, hessians[some], step, optimize=True)
        approximation: Matrix = values[some][:, None] + gradients[some] @ step.T + 0.5 * curved
        return approximation

    return Proxy(proxy, means)
