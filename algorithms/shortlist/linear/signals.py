"""Several rewards of one decision (signals), weighed at the moment of the choice.

Notation
    d, J            dimension of the features, number of signals
    x, r            features of a chosen arm (d,), its rewards, one of each signal (J,)
    V               precision ridge * I + gram (d, d), one for all signals, see ``ridge``
    M, Theta        moments sum r x^T (J, d), and estimates M V^-1 (J, d)
    P               products sum r r^T (J, J)
    R               P - M Theta^T (J, J)
    w               weights (J,) of a choice
    S               covariance of the residuals r - Theta x (J, J)
    n, a0           sum of the weights of the decisions; as how many rewards the spread counts, see ``scales``

Derivation
    The weighted sum w.r is a reward like any other: ridge regression on it has the moment w M and the sum of
    squares w P w, so its estimate is w Theta, and the estimate of ``scales.noise`` is

        sigma^2 = (w P w - (w M).(w Theta) + a0 spread^2) / (n + a0) = (w R w + a0 spread^2) / (n + a0).

    Without a0 this is w S w for S = R / n: with the ridge's share, the second moment of the residuals, hence
    their covariance. So a draw for w is as from a learner of w.r from the start, and for one signal of weight
    1 the same to the bit. A signal whose noise is given is taken to vary independently of the others: sigma^2
    = w_A S_AA w_A + sum of w_j^2 noise_j^2 over the given ones, A the others.

Cost of a choice: J d + J^2 multiply-adds more than for one signal. No matrix of size d depends on w.

Source: Bishop, "Pattern Recognition and Machine Learning" (2006), sections 3.1.5 and 3.3: several outputs
share the design matrix. Zellner, "An Efficient Method of Estimating Seemingly Unrelated Regressions" (1962),
section 3: with the same regressors, each is estimated by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.linear import ridge as regression
from shortlist.linear.ridge import Posterior, Root, Scaled
from shortlist.linear.ridge_sums import RidgeSums
from shortlist.linear.scales import Scales, noise_of
from shortlist.types import Matrix, Vector

ALONE = (1.0,)  # the weights of one signal that is all


@dataclass(frozen=True, slots=True)
class Weighing:
    """The weighing of the signals of a choice.

    ``weights``   of each signal
    ``noises``    the deviation of each about its mean; None: learned
    ``spreads``   half of the range of each; None: no bounds
    """

    weights: tuple[float, ...]
    noises: tuple[float | None, ...]
    spreads: tuple[float | None, ...]

    @property
    def spread(self) -> float | None:
        """The spread of the weighted sum of the signals with learned noise; None: no bounds."""
        total = 0.0
        for weight, noise, spread in zip(self.weights, self.noises, self.spreads, strict=True):
            if weight and noise is None:
                if spread is None:
                    return None
                total += abs(weight) * spread
        return total or None

    @property
    def learned(self) -> Vector:
        """The weights, 0 where the noise is given. Shape: (J,)."""
        pairs = zip(self.weights, self.noises, strict=True)
        return np.array([weight if noise is None else 0.0 for weight, noise in pairs])

    @property
    def learns_all(self) -> bool:
        """True if no noise is given."""
        return self.noises.count(None) == len(self.noises)

    @property
    def given(self) -> float:
        """Variance of the weighted sum of the signals whose noise is given."""
        return math.fsum(
            (w * s) ** 2 for w, s in zip(self.weights, self.noises, strict=True) if s is not None
        )


@dataclass(frozen=True, slots=True, eq=False)
class SignalPosteriors:
    """The posteriors of all signals. Shapes: thetas (J, d), root (d, d), forms (2, J, J): P and R.

    ``shared_root``: of V^-1, of all weighted sums. ``noise_given``: both forms are S, which a learned prior
    has estimated from all keys. ``share``: how much of the square of a spread counts beside R, see
    ``scales.noise``. ``length``: of every weighted sum, as of ``ridge.Factored``.
    """

    thetas: Matrix
    shared_root: Root
    ridge: float
    weight: float
    forms: NDArray[np.float64]
    noise_given: bool = False
    share: float | None = None
    length: float = 0.0

    def weighed(self, weighing: Weighing, scales: Scales) -> Posterior:
        """Return the posterior of the weighted sum. Signals that no reward has named yet are 0.

        ``scales``: whether the noise is learned; its ``spread`` is not asked for.
        Cost: J d + J^2 multiply-adds; of one signal of weight 1 d^2, which makes it to the bit the posterior
        of a learner without signals.
        Raises: InvalidShape (fewer weights than signals).
        """
        count = len(self.thetas)
        weights = np.array(weighing.weights[:count])
        if len(weights) != count:
            checks.shape("weights", weights, (count,))
        theta = weights.dot(self.thetas)
        theta.setflags(write=False)
        learns_noise = scales.learns_noise or self.noise_given
        sigma = self._sigma(weighing, weights) if learns_noise else 1.0
        if weighing.weights == ALONE:
            weighed_root = regression.of_root(theta, self.shared_root, self.ridge)
            return (
                regression.with_noise(weighed_root, sigma, length=self.length)
                if learns_noise
                else weighed_root
            )
        return Scaled(theta, self.shared_root, self.ridge, sigma, self.length)

    def _sigma(self, weighing: Weighing, weights: Vector) -> float:
        given_variance, learned = 0.0, weights
        if not weighing.learns_all:
            given_variance, learned = weighing.given, weighing.learned
            if given_variance and not learned.any():
                return math.sqrt(given_variance)
            learned = learned[: len(weights)]
        squares, left = self.forms.dot(learned).dot(learned).tolist()
        spread = None if self.noise_given else weighing.spread
        sigma = noise_of(squares, left, self.weight, spread=spread, share=self.share)
        return math.sqrt(sigma**2 + given_variance) if given_variance else sigma


def known(sums: RidgeSums, scales: Scales) -> SignalPosteriors:
    """Return what these sums say of all their signals. Cost: O(d^3 + J d^2)."""
    moments, products = sums.moments, sums.products
    columns = moments[0] if len(moments) == 1 else moments.T
    fit = scales.fit(sums)
    thetas, root, used = regression.solved(sums, columns, ridge=fit.ridge)
    thetas = np.ascontiguousarray(thetas.T).reshape(moments.shape)
    forms = np.stack((products, products - _products(moments, thetas)))
    for array in (thetas, forms):
        array.setflags(write=False)
    return SignalPosteriors(thetas, root, used, sums.weight, forms, share=fit.share, length=fit.length)


def _products(moments: Matrix, thetas: Matrix) -> Matrix:
    """M Theta^T, symmetric. Of one signal as the product of two vectors has it, to the bit."""
    if len(moments) == 1:
        return np.array([[moments[0] @ thetas[0]]])
    products = moments @ thetas.T
    half: Matrix = (products + products.T) / 2.0
    return half


def weighed(sums: RidgeSums, scales: Scales, weighing: Weighing) -> Posterior:
    """Return the posterior of the weighted sum. Cost: O(d^3 + J d^2)."""
    return known(sums, scales).weighed(weighing, scales)
