"""Carrying linear learners to other features of the same arms.

Notation
    x, x'           features of an arm as they were (d,), as they are from now on (d',)
    w               how much each arm counts (n,)
    C, b            x' is near C x + b: (d', d), (d',); b is 0 without an intercept
    B               x is near B x': (d, d')
    P, u            directions (p, d) and context (m,), as in ``bilinear``
    y               numbers of an arm unchanged by any map
    c, c'           the last coordinate of a learner's features of an arm, before and after
    T               (D', D): the map of [x ; (P x) kron u ; y ; c] by C, b
    G, m            gram (D, D) and moment (D,) of a learner, as in ``ridge_sums``

    R           (d', d'): mean of e e^T over the mean of |x|^2, where e = x' - C x - b

A reward of x counts as one of x', as far as x tells: the mean of x' x'^T, given x, is the one of T x plus the
one of e, and e may be any of them. So m' = T m for each signal, and G' = T G T^T + t R, where t is the sum of
|x|^2 of the features in G; counts, weights and squares of rewards stay. Without R the new features would seem
to vary as little as C x does, and estimates would be stretched by as much as C shrinks. The context's part of
the numbers stays as well, where the new directions are P' = P B, since then P' x' is near P x.

C and b minimise sum w |C x + b - x'|^2 + lambda |C|^2. Lambda is the one of a grid by which a left-out arm is
best predicted from the others (PRESS; Allen, "The relationship between variable selection and data
augmentation and a method for prediction", 1974). So is R^2: 1 less the remaining part of the variation of x'.
Unrelated features have an R^2 of 0, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shortlist import checks
from shortlist.linear.ridge_sums import NO_MORE, RidgeSums, more_size, triangle
from shortlist.types import Matrix, Vector

RIDGES = 10.0 ** np.arange(-9.0, 2.0)  # of the mean eigenvalue of sum w x x^T
_LEAST_LEFT = 1e-9  # of 1 less the leverage of an arm


@dataclass(frozen=True, slots=True, eq=False)
class FeatureMap:
    """``linear`` is C (d', d), ``shift`` is b (d',). ``r2``: how much of x' it explains, from 0 to 1.
    ``residual``: R (d', d'), of arms that were left out of the fit.
    """

    linear: Matrix
    shift: Vector
    r2: float
    residual: Matrix

    def __call__(self, features: Matrix) -> Matrix:
        """C x + b of every row. Shapes: (n, d) -> (n, d')."""
        return features @ self.linear.T + self.shift


def fit(old: Matrix, new: Matrix, weights: Vector, *, intercept: bool) -> FeatureMap:
    """Return the map from the old features of some arms to their new ones.

    ``intercept``: whether there is a b. Arms of weight 0 say nothing.
    Shapes: old (n, d), new (n, d'), weights (n,), n >= 1. Cost: n d d' for each of ``RIDGES``, and d^3.
    Raises: InvalidShape, NonFinite, InvalidParameter (weights that are negative, or all 0).
    """
    checks.shape("old", old, (None, None))
    checks.shape("new", new, (len(old), None))
    checks.shape("weights", weights, (len(old),))
    for name, numbers in (("old", old), ("new", new), ("weights", weights)):
        checks.finite(name, numbers)
    checks.in_range("weights", float(weights.min(initial=0.0)), least=0.0)
    checks.in_range("sum of weights", float(weights.sum()), least=float(np.finfo(float).tiny))
    share = weights / weights.sum()
    center, target = share @ old, share @ new
    roots = np.sqrt(share)[:, None]
    scaled = roots * (old - center if intercept else old)
    wanted = roots * (new - target if intercept else new)
    base = share if intercept else np.zeros(len(share))  # the leverage that b alone gives an arm
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    values = np.maximum(values, 0.0)
    turned, moments = scaled @ vectors, vectors.T @ (scaled.T @ wanted)
    mean = float(values.mean())
    best, left, least = np.zeros(moments.shape), wanted, np.inf
    for ridge in RIDGES * mean if mean > 0.0 else ():
        inverse = 1.0 / (values + ridge)
        coefficients = inverse[:, None] * moments
        leverage = base + np.einsum("nd,d,nd->n", turned, inverse, turned)
        missed = (wanted - turned @ coefficients) / np.maximum(1.0 - leverage, _LEAST_LEFT)[:, None]
        press = float(np.einsum("nj,nj->", missed, missed))
        if press < least:
            best, left, least = coefficients, missed, press
    about = roots * (new - target) / np.maximum(1.0 - share, _LEAST_LEFT)[:, None]
    variation = float(np.einsum("nj,nj->", about, about))
    linear = (vectors @ best).T
    shift = target - linear @ center if intercept else np.zeros(new.shape[1])
    r2 = 1.0 - least / variation if variation > 0.0 and least < np.inf else 0.0
    length = float(share @ np.einsum("nd,nd->n", old, old))
    residual = left.T @ left / (length or 1.0)
    return FeatureMap(np.ascontiguousarray(linear), shift, float(np.clip(r2, 0.0, 1.0)), residual)


def of_learner(
    found: FeatureMap,
    *,
    interactions: int = 0,
    turned: Matrix | None = None,
    constants: tuple[float, float] | None = None,
) -> Matrix:
    """Return T, for [x ; ``interactions`` numbers that stay ; c].

    Those that stay are of a context, or of an arm beside its features.

    ``turned``: what becomes of these numbers, if they do not stay (p' m, p m). ``constants``: c and c'; None:
    there is no last coordinate. Shape: -> (D', D).
    """
    new, old = found.linear.shape
    inner = np.eye(interactions) if turned is None else turned
    last = constants is not None
    matrix = np.zeros((new + len(inner) + last, old + inner.shape[1] + last))
    matrix[:new, :old] = found.linear
    matrix[new : new + len(inner), old : old + inner.shape[1]] = inner
    if constants is not None:
        before, after = constants
        matrix[:new, -1] = found.shift / before
        matrix[-1, -1] = after / before
    return matrix


def carried(
    sums: RidgeSums, transform: Matrix, residual: Matrix | None = None, features: int = 0
) -> RidgeSums:
    """Return the sums as they would be in the new space: ``carried_each`` of these alone."""
    return carried_each([sums], transform, residual, features)[0]


def carried_each(
    sums: Sequence[RidgeSums], transform: Matrix, residual: Matrix | None = None, features: int = 0
) -> list[RidgeSums]:
    """Return the sums of several learners in the new space: T G T^T + t R, and T m of each signal.

    Linear in the sums. The same bits for the same sums, on the same machine, whatever others there are.
    ``residual``: R, None is 0; ``features``: d. Shapes: transform (D', D), residual (d', d').
    Cost: D' D^2 + D'^2 D for each learner, and 8 (D^2 + 3 D'^2) bytes.
    Raises: InvalidShape, NonFinite.
    """
    if not sums:
        return []
    for learner_sums in sums:
        checks.shape("transform", transform, (None, learner_sums.dim))
    dim, old = transform.shape
    exact = np.array([learner_sums.total - learner_sums.error for learner_sums in sums])
    grams, slots = np.empty((len(sums), old, old)), triangle(old)
    rows = grams.reshape(len(sums), -1)
    rows[:, slots] = rows[:, slots % old * old + slots // old] = exact[:, :-old]
    moved = transform @ grams @ transform.T
    if residual is not None:
        lengths = grams.diagonal(axis1=1, axis2=2)[:, :features].sum(axis=1)
        moved[:, : len(residual), : len(residual)] += lengths[:, None, None] * residual
    # One row for each learner, not one matrix of them: so a product does not depend on the others.
    moments = exact[:, None, -old:] @ transform.T
    lower = moved.reshape(len(sums), -1).take(triangle(dim), axis=1)
    totals = np.concatenate((lower, moments[:, 0]), axis=1)
    checks.finite("sums", totals)
    return [
        replace(
            learner_sums, total=total.copy(), error=np.zeros(len(total)), more=more, more_error=0.0 * more
        )
        for learner_sums, total, more in zip(
            sums, totals, (_more(learner_sums, transform) for learner_sums in sums), strict=True
        )
    ]


def _more(sums: RidgeSums, transform: Matrix) -> Vector:
    """The sums of the signals after the first, in the new space."""
    if sums.signals == 1:
        return NO_MORE
    moments = replace(sums, more=sums.more - sums.more_error).moments @ transform.T
    products, dim = sums.products, len(transform)
    more = np.empty(more_size(sums.signals, dim))
    for j in range(1, sums.signals):
        start = more_size(j, dim)
        more[start : start + dim], more[start + dim : start + dim + j + 1] = moments[j], products[j, : j + 1]
    return more


def agreement(before: Matrix, after: Matrix) -> float | None:
    """Return the mean correlation of the estimates of learners, before and after; None: nothing varies.

    Shapes: (learners, arms) both.
    """
    checks.shape("after", after, before.shape)
    one = before - before.mean(axis=1, keepdims=True)
    other = after - after.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    vary = norms > 0.0
    if not vary.any():
        return None
    return float(np.mean(np.einsum("kn,kn->k", one, other)[vary] / norms[vary]))
