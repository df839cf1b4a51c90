"""Arm effects: the part of an arm's reward beyond its features, learned from all keys together.

Notation
    x, p, y         features of a shown arm, how likely its place is looked at, its reward
    E               mean of the key's posterior at the choice; a = x.E, the expected reward
    b_i, beta_i     the effect of arm i, and its estimate; s_i the standard deviation of b_i about beta_i
    rho             y - p a, the surprise
    n, R, Q, F      of an arm: sum p^2, sum p rho, sum (p rho)^2, sum p^4
    tau^2, s^2      variance of the effects, and of one reward about its expectation

Model
    y = p (x.theta_u + b_i) + e, with theta_u ~ N(mu, Sigma), the learned prior, and b_i ~ N(0, tau^2). A
    decision carries a and the served beta_i, so learning reads no state and is a sum:

        the key's learner adds    y - p beta_i
        the arm adds              rho = y - p a

    rho has the mean p b_i for any viewer and any reason of the choice, if the key's learner is calibrated.
    The reward less the prior's mean would not do: an arm is shown to those who like it.

Fit
    E[R^2 - Q] = tau^2 (n^2 - F): products of two rewards of one arm, for any noise of single ones. They are
    weighted nearly as by maximum likelihood. One standard error is taken off, so tau^2 is exactly 0 where
    there is nothing, and then so are all estimates.

Changed features
    An effect belongs to the arm. Where the features of an arm change by D, its former effect is b_i plus
    D.(mu - theta) of the rewarding keys, so its variance grows by (``drift``)

        v = (D.mu)^2 + R D^T S D,

    but to tau^2 at most, as that of an arm without rewards. In the sums this is the factor f with s^2 / (f n
    + s^2 / tau^2) = s^2 / (n + s^2 / tau^2) + v, by which the former ones fade (``fades``, ``chain``). tau^2
    and s^2 are the fixed point: found again in the sums faded by them.

Sizes
    One key must not move an arm for all others by rewards of a size unknown to others. So sums are kept
    by groups of keys. Their size is Q / (n + 10); the 10 is for rare rewards, which are large while an arm is
    new. Usual is the largest size of the group for which an eighth of all groups has larger ones. A group's
    sums of an arm more than four times as large count only if other groups agree: if their mean square is at
    most four times the mean square of the others' sums of the arm. So a large effect is believed as soon as a
    second group has met it, and the say of one key is bounded.

Discounted, a reward of weight w adds w p^2 to n, w p rho to R, w^2 (p rho)^2 to Q and w^2 p^4 to F: products
of two rewards stay unbiased. Then the noise is estimated from Q n / F in the place of Q.

Beside the prior of a history (``history_prior``) the surprises of all arms have a common part, which is the
unit of the history and no effect. ``centred`` takes it out: rho - p L, with L = sum R / sum n over arms.

Source: Henderson, "Best Linear Unbiased Estimation and Prediction under a Selection Model" (1975), of which
the sums are an approximation, with expectations held fixed. Laird and Ware, "Random-Effects Models for
Longitudinal Data" (1982).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.types import Matrix, Rows, Vector

ROUNDS = 4
MOST_ROUNDS = 50  # of a fit of sums that fade by it
SAME = 1e-12
STANDARD_ERRORS = 1.0  # that are taken off tau^2
USUAL_GROUPS = 7 / 8
FAR = 4.0  # of sizes and mean squares
RARE = 10.0  # rewards
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
            column = getattr(self, name)
            checks.shape(name, column, (len(self.n),))
            checks.finite(name, column)


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
    tiny = np.finfo(float).tiny  # below it sums have faded out
    used = (pairs > _ALONE * np.maximum(sums.n**2, tiny)) & (tiny < sums.F)
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


def drift(changes: Matrix, mean: Matrix, covariance: Matrix, noises: Vector) -> Matrix:
    """Return v of changes of features, of each signal.

    ``mean``, ``covariance``: mu and S of the features that an arm has; ``noises``: R_jj of each signal.
    Shapes: (n, d), (J, d), (d, d), (J,) -> (J, n). Cost: n d (d + J).
    """
    apart = np.einsum("nd,nd->n", changes @ covariance, changes)
    squares: Matrix = (mean @ changes.T) ** 2 + noises[:, None] * np.maximum(apart, 0.0)
    return squares


def fades(n: Vector, added: Vector, fitted: EffectFit) -> Vector:
    """Return f of arms with these sums n, whose variance grows by ``added``, which may be inf.

    Exactly 1 where nothing is added. Shapes: (K,), (K,) -> (K,).
    """
    grows = (added > 0.0) & (n > 0.0)
    factors = np.ones(len(n))
    if fitted.variance > 0.0 and grows.any():
        weight = n[grows] + fitted.shrinkage
        left = weight / (1.0 + added[grows] * weight / fitted.noise) - fitted.shrinkage
        factors[grows] = np.clip(left / n[grows], 0.0, 1.0)
    return factors


def chain(sums: EffectSums, arms: Rows, added: Vector, fitted: EffectFit) -> tuple[EffectSums, Vector]:
    """Return the sums of each arm from those of its revisions, and by what those before each of these fade.

    ``arms``: the number of the arm of each revision, ascending, without a gap; its revisions are in order.
    ``added``: by what the variance of what came before it grows. Without effects nothing fades.
    Shapes: sums, arms and added (P,) -> (K,), (P,). Cost: P times the most revisions of an arm.
    """
    count, factors = int(arms[-1]) + 1 if len(arms) else 0, np.ones(len(arms))
    if count == len(arms):
        return sums, factors
    depth = np.arange(len(arms)) - np.searchsorted(arms, np.arange(count))[arms]
    n, R, Q, F = np.zeros((4, count))
    for level in range(int(depth.max()) + 1):
        at = np.flatnonzero(depth == level)
        arm = arms[at]
        f = factors[at] = fades(n[arm], added[at], fitted)
        n[arm] = f * n[arm] + sums.n[at]
        R[arm] = f * R[arm] + sums.R[at]
        Q[arm] = f**2 * Q[arm] + sums.Q[at]
        F[arm] = f**2 * F[arm] + sums.F[at]
    return EffectSums(n, R, Q, F), factors


def fit_chain(
    sums: EffectSums,
    arms: Rows,
    added: Vector,
    *,
    start: EffectFit = NOTHING,
    discounted: bool = False,
    centres: bool = False,
) -> tuple[EffectFit, EffectSums, Vector]:
    """Return a fit, with the arms' sums faded by it, from which the fit is found again, and the factors.

    ``start``: the fit before; ``NOTHING``: of sums without fading. ``centres``: by ``centred`` sums of arms,
    which are returned then. Shapes as of ``chain``. Cost: some times its own.
    """

    def by_arm(fitted: EffectFit) -> tuple[EffectSums, Vector]:
        chained, factors = chain(sums, arms, added, fitted)
        return centred(chained) if centres else chained, factors

    if not added.any():
        chained, factors = by_arm(NOTHING)
        return fit(chained, discounted=discounted), chained, factors
    # What fades has weights, as what is discounted has.
    fitted = fit(by_arm(start)[0], discounted=True)
    for _ in range(MOST_ROUNDS):
        before = fitted
        fitted = fit(by_arm(before)[0], discounted=True)
        # Nothing may depend on which part of a chain was added up already.
        if math.isclose(fitted.variance, before.variance, rel_tol=SAME) and math.isclose(
            fitted.noise, before.noise, rel_tol=SAME
        ):
            break
    else:  # two fits may lead to each other: where effects fade all that tells of them
        fitted = min(before, fitted, key=lambda candidate: candidate.variance)
    return fitted, *by_arm(fitted)


def centred(sums: EffectSums) -> EffectSums:
    """Return the sums of surprises less what all arms have in common, L p. Cost: O(K).

    Exact where p and the weight are the same in all decisions of an arm. Raises: InvalidShape, NonFinite.
    """
    sums.check()
    total = float(sums.n.sum())
    if not total > 0.0:
        return sums
    common = float(sums.R.sum()) / total
    share = np.divide(sums.F, sums.n, out=np.zeros(len(sums.n)), where=sums.n > 0.0)
    squares = np.maximum(sums.Q - 2.0 * common * share * sums.R + common**2 * sums.F, 0.0)
    return EffectSums(sums.n, sums.R - common * sums.n, squares, sums.F)


def sizes(sums: EffectSums, *, discounted: bool = False) -> Vector:
    """Return how large the surprises are of which each of these sums is. Shape: (K,)."""
    shrunk: Vector = _mean_squares(sums, discounted=discounted) * sums.n / (sums.n + RARE)
    return shrunk


def most_usual(largest: Vector) -> float:
    """Return up to which of their ``sizes`` sums count, whatever others say of their arms.

    ``largest``: of each group, the largest size of its sums. inf where no group is there to compare with, or
    where usual surprises are all 0. Shape: (P,).
    """
    if len(largest) < 2:
        return float("inf")
    # DEVIATION (Laird and Ware, section 3): what is far beyond all that others give does not count.
    usual = float(np.sort(largest)[int(USUAL_GROUPS * (len(largest) - 1))])
    return FAR * usual if usual > 0.0 else float("inf")


def confirmed(sums: EffectSums, others: EffectSums, *, discounted: bool = False) -> NDArray[np.bool_]:
    """Return which sums are about as large as those of the same arms of all ``others``. Shapes: (K,) all."""
    own_squares, theirs = (_mean_squares(arm_sums, discounted=discounted) for arm_sums in (sums, others))
    is_confirmed: NDArray[np.bool_] = own_squares <= FAR * theirs
    return is_confirmed


def _mean_squares(sums: EffectSums, *, discounted: bool) -> Vector:
    weight = sums.F if discounted else sums.n  # both are 0 of sums that have faded to nothing
    return np.divide(sums.Q, weight, out=np.zeros(len(weight)), where=weight > 0.0)


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
