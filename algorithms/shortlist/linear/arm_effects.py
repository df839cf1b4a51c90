"""Arm effects: what one arm has beyond its features, learned from all keys together.

Notation
    x, p, y         features of a shown arm, how likely its place is looked at, its reward
    E               mean of the key's posterior that it was chosen with; a = x.E, what was expected of it
    b_i, beta_i     the effect of arm i, and its estimate; s_i the standard deviation of b_i about beta_i
    rho             y - p a, the surprise
    n, R, Q, F      of an arm: sum p^2, sum p rho, sum (p rho)^2, sum p^4
    tau^2, s^2      variance of the effects, and of one reward about what is expected of it

Model
    y = p (x.theta_u + b_i) + e, with theta_u ~ N(mu, Sigma), the learned prior, and b_i ~ N(0, tau^2). A
    decision carries a and the beta_i that it was served with, so learning reads no state and is a sum:

        the key's learner adds    y - p beta_i
        the arm adds              rho = y - p a

    rho has the mean p b_i whoever was shown the arm for whatever reason, if the key's learner is calibrated.
    The reward less the prior's mean would not do: an arm is shown to those who like it.

Fit
    E[R^2 - Q] = tau^2 (n^2 - F): products of two rewards of one arm, whatever the noise of single ones is.
    They are weighted nearly as maximum likelihood would. One standard error is taken off, so tau^2 is exactly
    0 where there is nothing, and then so are all estimates.

Discounted, a reward of weight w adds w p^2 to n, w p rho to R, w^2 (p rho)^2 to Q and w^2 p^4 to F: products
of two rewards stay unbiased. Then the noise is estimated from Q n / F in the place of Q.

Source: Henderson, "Best Linear Unbiased Estimation and Prediction under a Selection Model" (1975), of which
the sums are an approximation: what was expected is held. Laird and Ware, "Random-Effects Models for
Longitudinal Data" (1982).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.types import Matrix, Vector

ROUNDS = 4
STANDARD_ERRORS = 1.0  # that are taken off tau^2
_ALONE = 1e-9  # n^2 - F below this share of n^2: an arm with one reward has no pair


@dataclass(frozen=True, slots=True, eq=False)
class EffectSums:
    """The sums of K arms. Shapes: (K,) each."""

    n: Vector
    R: Vector
    Q: Vector
    F: Vector

    def check(self) -> None:
        """Raise InvalidShape or NonFinite."""
        for name in ("n", "R", "Q", "F"):
            own = getattr(self, name)
            checks.shape(name, own, (len(self.n),))
            checks.finite(name, own)


@dataclass(frozen=True, slots=True)
class EffectFit:
    """``variance``: tau^2. ``noise``: s^2. Both are 0 where no arm has two rewards."""

    variance: float
    noise: float

    @property
    def shrinkage(self) -> float:
        """s^2 / tau^2: as how many rewards the prior of an effect counts. inf where tau^2 is 0."""
        return self.noise / self.variance if self.variance > 0.0 else float("inf")


NOTHING = EffectFit(0.0, 0.0)


def fit(sums: EffectSums, *, discounted: bool = False) -> EffectFit:
    """Return tau^2, less one standard error, and s^2. Cost: O(K).

    Raises: InvalidShape, NonFinite.
    """
    sums.check()
    pairs = sums.n**2 - sums.F
    used = pairs > _ALONE * np.maximum(sums.n**2, np.finfo(float).tiny)
    n, R, Q, F, pairs = sums.n[used], sums.R[used], sums.Q[used], sums.F[used], pairs[used]
    if not used.any() or Q.sum() <= 0.0:
        return NOTHING
    squares = Q * n / F if discounted else Q
    noise = max(float((squares - R**2 / n).sum() / (pairs / n).sum()), 1e-9 * float(squares.sum() / n.sum()))
    products, variance = R**2 - Q, 0.0
    for _ in range(ROUNDS):
        weights = 1.0 / (1.0 + n * variance / noise) ** 2
        total = (weights * pairs).sum()
        estimate = (weights * products).sum() / total
        # DEVIATION (Laird and Ware, section 3): a standard error less, so that noise has no effects
        errors = weights**2 * (products - pairs * max(estimate, 0.0)) ** 2
        variance = max(float(estimate - STANDARD_ERRORS * np.sqrt(errors.sum()) / total), 0.0)
    return EffectFit(variance, noise)


def surprises_together(features: Matrix, surprises: Matrix, root: Matrix) -> Matrix:
    """Return the surprise of each reward of one key for a learner that also knows the other ones.

    ``surprises``: for a learner that knows none of them, whose covariance is root root^T in the unit of the
    noise. Shapes: (n, D), (n, J), (D, D) -> (n, J). Cost: n^3 + n D^2. Source: Rasmussen and Williams,
    "Gaussian Processes for Machine Learning" (2006), equation 5.12.
    """
    turned = features @ root
    inverse = np.linalg.inv(turned @ turned.T + np.eye(len(turned)))
    left_out: Matrix = (inverse @ surprises) / inverse.diagonal()[:, None]
    return left_out


def estimates(n: Vector, R: Vector, fitted: EffectFit) -> tuple[Vector, Vector]:
    """Return beta_i and s_i of arms with these sums; an arm without rewards has 0 and tau.

    Shapes: (K,), (K,) -> (K,), (K,).
    """
    if fitted.variance <= 0.0:
        return np.zeros(len(n)), np.zeros(len(n))
    # DEVIATION (Henderson 1975, section 3): not jointly with the keys, whose expectations are held
    weight = n + fitted.shrinkage
    return R / weight, np.sqrt(fitted.noise / weight)
