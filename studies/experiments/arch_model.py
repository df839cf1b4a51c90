"""ARCH models of a return series with Student innovations: data, likelihood, gradient, Laplace approximation.

Notation
    r_t, N      return at time t; times that have ``LAGS`` returns before them
    q           order of a model, at most ``LAGS``
    v_t         squares of the ``LAGS`` returns before t, the latest first; a model uses the first q
    alpha, nu   parameters: alpha_0 .. alpha_q > 0, degrees of freedom nu > 0
    s_t         alpha_0 + alpha_1 v_t,1 + .. + alpha_q v_t,q: the squared scale of r_t
    x           (q + 2,): alpha and nu before the softplus function log(1 + e^x), so x has no bounds
    l_t(x)      log p(r_t | v_t, x)

The prior of every alpha and of nu is exponential of mean 1. All models explain the same N returns.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", sections 5.2, C.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import optimize
from scipy.special import digamma, expit, gammaln

from shortlist.types import Matrix, Rows, Vector

ORDERS = (5, 10, 15, 20, 25, 30)
LAGS = max(ORDERS)
FREEDOM = 5.0  # of the series that is made here
_STEP = 1e-4
_START_UP = 500


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Shapes: returns (N,), squares (N, LAGS)."""

    returns: Vector
    squares: Matrix

    @property
    def size(self) -> int:
        return len(self.returns)


def make(size: int, seed: int) -> Series:
    """A series of an ARCH model whose weights fall off over ``LAGS`` lags. The print has a stock index."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / (2.0 + np.arange(1, LAGS + 1))
    weights *= 0.45 / weights.sum()
    noise = rng.standard_t(FREEDOM, size=size + LAGS + _START_UP)
    returns = np.zeros(len(noise))
    returns[:LAGS] = noise[:LAGS]
    for t in range(LAGS, len(noise)):
        returns[t] = noise[t] * np.sqrt(0.2 + weights @ returns[t - LAGS : t][::-1] ** 2)
    returns = returns[_START_UP:]
    squares = sliding_window_view(returns[:-1] ** 2, LAGS)[:, ::-1]
    return Series(returns[LAGS:], np.ascontiguousarray(squares))


def parameters(x: Vector) -> Vector:
    """Return alpha and nu: the softplus function of ``x``."""
    found: Vector = np.logaddexp(0.0, x)
    return found


def log_prior(x: Vector) -> float:
    """The log density of x: that of the parameters, and of the change of variables."""
    return float(-parameters(x).sum() - np.logaddexp(0.0, -x).sum())


@dataclass(frozen=True, slots=True)
class Derivatives:
    """A log likelihood as a function of r and s, with its derivatives. Shapes: all alike."""

    value: Vector
    r: Vector
    s: Vector
    rr: Vector
    rs: Vector
    ss: Vector


def derivatives(r: Vector, s: Vector, nu: float) -> Derivatives:
    """Of log p(r | s, nu), up to second order."""
    square, total = r * r, nu * s + r * r
    return Derivatives(
        value=_log_density(square, s, nu),
        r=-(nu + 1.0) * r / total,
        s=_slope(square, s, nu),
        rr=-(nu + 1.0) * (nu * s - square) / total**2,
        rs=(nu + 1.0) * nu * r / total**2,
        ss=0.5 / s**2 - 0.5 * (nu + 1.0) * square * (2.0 * nu * s + square) / (s * total) ** 2,
    )


def scales(series: Series, x: Vector, times: Rows | slice) -> Vector:
    """The s_t of some times."""
    alpha = parameters(x[:-1])
    found: Vector = alpha[0] + series.squares[times, : len(alpha) - 1] @ alpha[1:]
    return found


def log_likelihoods(series: Series, x: Vector, times: Rows | slice) -> Vector:
    """The l_t of some times."""
    nu = float(parameters(x[-1:])[0])
    return _log_density(series.returns[times] ** 2, scales(series, x, times), nu)


def gradient(series: Series, x: Vector, times: Rows | slice) -> Vector:
    """The gradient by x of the sum of the l_t of some times. Shapes: -> (q + 2,)."""
    nu, square, s = float(parameters(x[-1:])[0]), series.returns[times] ** 2, scales(series, x, times)
    slope = _slope(square, s, nu)
    ratio = square / (nu * s)
    by_nu = 0.5 * (digamma((nu + 1.0) / 2.0) - digamma(nu / 2.0) - 1.0 / nu - np.log1p(ratio))
    by_nu = by_nu + 0.5 * (nu + 1.0) * ratio / (nu * (1.0 + ratio))
    by_alpha = slope @ series.squares[times, : len(x) - 2]
    found: Vector = np.concatenate(([slope.sum()], by_alpha, [by_nu.sum()])) * expit(x)
    return found


def prior_gradient(x: Vector) -> Vector:
    """The gradient of ``log_prior``."""
    found: Vector = 1.0 - 2.0 * expit(x)
    return found


def _log_density(square: Vector, s: Vector, nu: float) -> Vector:
    constant = gammaln((nu + 1.0) / 2.0) - gammaln(nu / 2.0) - 0.5 * np.log(nu * np.pi)
    found: Vector = constant - 0.5 * np.log(s) - 0.5 * (nu + 1.0) * np.log1p(square / (nu * s))
    return found


def _slope(square: Vector, s: Vector, nu: float) -> Vector:
    found: Vector = (-0.5 + 0.5 * (nu + 1.0) * square / (nu * s + square)) / s
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Laplace:
    """A Gaussian at the mode of a posterior: ``root`` root' is its covariance.

    Shapes: mode (q + 2,), root (q + 2, q + 2).
    """

    mode: Vector
    root: Matrix

    def draw(self, rng: np.random.Generator) -> Vector:
        found: Vector = self.mode + self.root @ rng.standard_normal(len(self.mode))
        return found

    def log_density(self, x: Vector) -> float:
        white = np.linalg.solve(self.root, x - self.mode)
        scale = np.log(np.abs(np.diagonal(self.root))).sum() + 0.5 * len(x) * np.log(2.0 * np.pi)
        return float(-0.5 * white @ white - scale)


def laplace(series: Series, order: int) -> Laplace:
    """The Gaussian at the mode of the posterior of the model of an order. Cost: some hundred passes."""
    everything = slice(None)

    def negative(x: Vector) -> tuple[float, Vector]:
        value = log_likelihoods(series, x, everything).sum() + log_prior(x)
        return -float(value), -(gradient(series, x, everything) + prior_gradient(x))

    variance = float(series.returns.var())
    start = np.log(np.expm1(np.concatenate(([0.4 * variance], np.full(order, 0.3 / order), [4.0]))))
    mode = np.asarray(optimize.minimize(negative, start, jac=True, method="L-BFGS-B").x, dtype=np.float64)
    steps = _STEP * np.eye(len(mode))
    hessian = np.array(
        [(negative(mode + step)[1] - negative(mode - step)[1]) / (2.0 * _STEP) for step in steps]
    )
    return Laplace(mode, np.linalg.cholesky(np.linalg.inv((hessian + hessian.T) / 2.0)))
