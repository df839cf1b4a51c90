"""Control variates of the ARCH experiment: log likelihoods expanded around 100 typical returns.

Notation
    z_t         (r_t, s_t), with s_t at the mode of a model
    b(t)        the bin of time t: a tenth of the returns by r_t, a tenth by s_t
    y_t         (r_t, v_t,1 .. v_t,q); y_b is its mean over bin b
    h_t(x)      l_t(x) to second order in y_t around y_b

s_t is linear in v_t, so the expansion in y has few terms: in r and in s. Its mean over all times of a bin
follows from the bin's first two moments of y, for every x. The fifth of the times that is farthest from its
y_b (in z, in standard deviations, in any of the models) is left out: it is always evaluated.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Equation 11, C.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.sampling.control_variates import Proxy
from shortlist.types import Matrix, Rows, Vector
from studies.experiments.arch_model import Derivatives, Series, derivatives, parameters, scales

SIDES = 10
OUTLIERS = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """What is known of the bins of one model, over the times that are not left out.

    Shapes, with B bins: bins (N',), the b(t); returns (B,) and squares (B, q), the y_b; shares (B,), of the
    times; by_return (B,), by_square (B, q), return_return (B,), return_square (B, q), square_square
    (B, q, q): means over the bin of y - y_b and of its products.
    """

    bins: Rows
    returns: Vector
    squares: Matrix
    shares: Vector
    by_return: Vector
    by_square: Matrix
    return_return: Vector
    return_square: Matrix
    square_square: Matrix

    def values(self, series: Series, x: Vector, times: Rows) -> Vector:
        """The h_t of some times of ``series``, which are counted as in ``bins``."""
        around, reference = self._around(x)
        bins = self.bins[times]
        dr, ds = series.returns[times] - self.returns[bins], scales(series, x, times) - reference[bins]
        found: Vector = around.value[bins] + around.r[bins] * dr + around.s[bins] * ds
        found += 0.5 * (around.rr[bins] * dr + 2.0 * around.rs[bins] * ds) * dr
        found += 0.5 * around.ss[bins] * ds * ds
        return found

    def mean(self, x: Vector) -> float:
        """The mean of all h_t. Cost: B q^2, whatever N."""
        around, _ = self._around(x)
        slopes = parameters(x[1:-1])
        dr, ds = self.by_return, self.by_square @ slopes
        rr, rs = self.return_return, self.return_square @ slopes
        ss = np.einsum("bpq,p,q->b", self.square_square, slopes, slopes, optimize=True)
        means = around.value + around.r * dr + around.s * ds
        means += 0.5 * (around.rr * rr + 2.0 * around.rs * rs + around.ss * ss)
        return float(self.shares @ means)

    def _around(self, x: Vector) -> tuple[Derivatives, Vector]:
        """The derivatives at the references, and the s of the references."""
        alpha, nu = parameters(x[:-1]), float(parameters(x[-1:])[0])
        reference = alpha[0] + self.squares @ alpha[1:]
        return derivatives(self.returns, reference, nu), reference


def binned(series: Series, modes: Sequence[Vector]) -> tuple[Rows, Rows, list[Expansion]]:
    """Return the times to race over, those that are always evaluated, and the expansion of every model.

    ``modes``: the x of the models' modes. An expansion counts times among those to race over.
    """
    pictures = [_bins(series, mode) for mode in modes]
    distances = np.max([distance for _, _, distance in pictures], axis=0)
    order = np.argsort(distances, kind="stable")
    cut = round((1.0 - OUTLIERS) * series.size)
    inside, outside = np.sort(order[:cut]), np.sort(order[cut:])
    return inside, outside, [_expansion(series, inside, *picture[:2]) for picture in pictures]


def proxy(expansions: Sequence[Expansion], series: Series, states: Sequence[Vector]) -> Proxy:
    """The proxy of a race between ``states``, each with the expansion of its model."""
    means = np.array([expansion.mean(x) for expansion, x in zip(expansions, states, strict=True)])

    def values(arms: Rows, times: Rows) -> Matrix:
        return np.stack([expansions[arm].values(series, states[arm], times) for arm in arms])

    return Proxy(values, means)


def _bins(series: Series, mode: Vector) -> tuple[Rows, Matrix, Vector]:
    """The bins of a model, the y_b, and how far every time is from the centre of its bin, in z."""
    z = np.stack((series.returns, scales(series, mode, slice(None))))
    shares = np.linspace(0.0, 1.0, SIDES + 1)[1:-1]
    places = [np.searchsorted(np.quantile(side, shares), side) for side in z]
    bins = places[0] * SIDES + places[1]
    y = np.column_stack((series.returns, series.squares[:, : len(mode) - 2]))
    counts = np.maximum(1, np.bincount(bins, minlength=SIDES**2))
    centres = np.stack([np.bincount(bins, column, SIDES**2) / counts for column in y.T], axis=1)
    alpha = parameters(mode[:-1])
    at = np.stack((centres[:, 0], alpha[0] + centres[:, 1:] @ alpha[1:]))
    distance = (((z - at[:, bins]) / z.std(axis=1, keepdims=True)) ** 2).sum(axis=0)
    return bins, centres, distance


def _expansion(series: Series, inside: Rows, bins: Rows, centres: Matrix) -> Expansion:
    here, order = bins[inside], centres.shape[1] - 1
    counts = np.bincount(here, minlength=SIDES**2)
    first, second = np.zeros((SIDES**2, order + 1)), np.zeros((SIDES**2, order + 1, order + 1))
    y = np.column_stack((series.returns, series.squares[:, :order]))[inside] - centres[here]
    for place in np.flatnonzero(counts):
        some = y[here == place]
        first[place], second[place] = some.mean(axis=0), some.T @ some / len(some)
    # An empty bin has no mean: any reference that has a likelihood will do.
    safe = np.where(counts[:, None] > 0, centres, 1.0)
    return Expansion(
        bins=here,
        returns=safe[:, 0],
        squares=safe[:, 1:],
        shares=counts / len(inside),
        by_return=first[:, 0],
        by_square=first[:, 1:],
        return_return=second[:, 0, 0],
        return_square=second[:, 0, 1:],
        square_square=second[:, 1:, 1:],
    )
