"""The proportions in which NS-TandS pulls its arms: the exact solution of a small convex program.

Notation
    i*          the box that looks best; its arms j = 1..p are (i*, j)
    i           another box (r of them), of which only the nearest arm matters
    G_ij        (mean of (i*, j) - mean of i's nearest arm)^2 / 2 > 0, shape (p, r)
    w_j, u_i    the proportions of the arms (i*, j) and of i's nearest arm; they sum to 1
    f           min over i, j of G_ij w_j u_i / (w_j + u_i), the rate at which the best box is identified

With a = 1/w and b = 1/u the value of a pair is G_ij / (a_j + b_i). f is homogeneous, so the best proportions
are those of the solution of: minimise sum 1/a_j + sum 1/b_i subject to a_j + b_i <= G_ij. This is smooth and
convex with linear constraints. It is solved by Newton's method with a logarithmic barrier. The objective then
exceeds its minimum by at most the number of constraints over the weight of the objective (Boyd and
Vandenberghe, "Convex Optimization", section 11.3). The block of b in the Hessian is diagonal, so a step costs
O(p^2 r).

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", Equation 19, Appendix C.
"""

from __future__ import annotations

import numpy as np

from shortlist.types import Matrix, Vector

_TOLERANCE = 1e-4
_SHARPER = 20.0
_LEAST_GAP = 1e-8
_NEWTON_STEPS = 60


def weights(gaps: Matrix) -> tuple[Vector, Vector]:
    """Return proportions (w, u) whose f is at least 1 - 1e-4 times the largest possible.

    ``gaps`` is G. Gaps below 1e-8 of the largest are raised to that. Shapes: gaps (p, r) -> (p,), (r,), p, r
    >= 1.
    """
    # DEVIATION (Appendix C): Newton's method on an equivalent program; mirror ascent stalls on uneven gaps.
    largest = float(gaps.max())
    scaled = np.maximum(gaps / largest, _LEAST_GAP) if largest > 0.0 else np.ones_like(gaps)
    scaled /= scaled.min()
    a = np.full(gaps.shape[0], 0.25)
    b = 0.9 * (scaled.min(axis=0) - 0.25)
    sharpness = 1.0
    while True:
        a, b = centered_weights(scaled, a, b, sharpness)
        total = float((1.0 / a).sum() + (1.0 / b).sum())
        if scaled.size / sharpness < _TOLERANCE * total:
            return 1.0 / (a * total), 1.0 / (b * total)
        sharpness *= _SHARPER


def rate(gaps: Matrix, w: Vector, u: Vector) -> float:
    """Return f. Shapes: gaps (p, r), w (p,), u (r,)."""
    return float((gaps / (1.0 / w[:, None] + 1.0 / u)).min())


def centered_weights(gaps: Matrix, a: Vector, b: Vector, sharpness: float) -> tuple[Vector, Vector]:
    """Minimise sharpness (sum 1/a + sum 1/b) - sum log(gaps - a - b), starting at a feasible (a, b)."""
    for _ in range(_NEWTON_STEPS):
        inverse = 1.0 / (gaps - a[:, None] - b)
        gradient_a = inverse.sum(axis=1) - sharpness / a**2
        gradient_b = inverse.sum(axis=0) - sharpness / b**2
        inverse **= 2
        diagonal_a = inverse.sum(axis=1) + 2.0 * sharpness / a**3
        diagonal_b = inverse.sum(axis=0) + 2.0 * sharpness / b**3
        ratio = inverse / diagonal_b
        step_a = np.linalg.solve(np.diag(diagonal_a) - ratio @ inverse.T, ratio @ gradient_b - gradient_a)
        step_b = -(gradient_b + inverse.T @ step_a) / diagonal_b
        decrease = -float(gradient_a @ step_a + gradient_b @ step_b)
        if decrease < 1e-3:
            break
        length = step_length_of(gaps, (a, b), (step_a, step_b), sharpness, decrease)
        if length == 0.0:
            break
        a, b = a + length * step_a, b + length * step_b
    return a, b


def step_length_of(
    gaps: Matrix, point: tuple[Vector, Vector], step: tuple[Vector, Vector], sharpness: float, decrease: float
) -> float:
    """Halve the step until it stays feasible and decreases the objective enough; return 0 if none does.

    ``decrease`` is what the objective would lose if it were linear along the step.
    """
    (a, b), (step_a, step_b) = point, step
    before = objective_of(gaps, a, b, sharpness)
    for halvings in range(40):
        length = 0.5**halvings
        after = objective_of(gaps, a + length * step_a, b + length * step_b, sharpness)
        if after <= before - 0.25 * length * decrease:
            return length
    return 0.0


def objective_of(gaps: Matrix, a: Vector, b: Vector, sharpness: float) -> float:
    slack = gaps - a[:, None] - b
    if min(float(a.min()), float(b.min()), float(slack.min())) <= 0.0:
        return np.inf
    return float(sharpness * ((1.0 / a).sum() + (1.0 / b).sum()) - np.log(slack).sum())
