"""The ratio of prior variance to noise of one learner, by maximum evidence of its own sums.

Notation
    d, n, J         dimension of the parameters, sum of the weights of the decisions, number of signals
    G, b, S         of the learner: sum x x^T (d, d), sum r x (d,), sum r^2
    L               trace(G) / n, the mean squared length of the chosen features
    sigma^2, rho    variance of a reward about x.theta; theta ~ N(0, rho sigma^2 I), so the ridge is 1 / rho
    u               rho L: how large the variance of x.theta is beside the noise, a number without unit
    R(u)            S - b.V^-1 b with V = G + L / u I: the remaining squares, see ``scales``
    spread          half of the largest reward less the least

Model
    With sigma^2 at its maximum, the logarithm of the probability of the rewards is

        -1/2 log det(I + rho G) - n/2 log(R / n) + constant.

    log u has a weak prior, N(log 4, 3^2), and u is at least 4. The spread counts as one more reward of its
    size, for an arm of length sqrt(L) in a direction of its own: n is one more, R gains spread^2 / (1 + u),
    and the determinant is multiplied by 1 + u. So neither noise nor u is taken for small because the first
    few rewards happen to be. An unknown spread is taken for three root mean squares of the rewards.
    Of several signals, which share V, the sum of their logarithms is taken.

    The mode is taken, over powers of four. The mode follows from the sums alone: the same for any order of
    rewards, after a crash, in a replay and in an evaluation; where features or rewards are multiplied by a
    power of two, u is the same to the bit. Rewards of 0 alone say nothing of u.

Algorithm
    Householder reflections bring [[G, b], [b^T, 0]] to tridiagonal form from its last row on: G = Q T Q^T,
    and Q^T b is a multiple beta of the last unit vector. With the pivots p_1 ... p_d of I + rho T, log det is
    sum log p_i, and b.V^-1 b is beta^2 rho / p_d: O(d) for one u. All u are factored at once, as the blocks
    of one tridiagonal matrix.

Source: Bishop, "Pattern Recognition and Machine Learning" (2006), section 3.5; MacKay, "Bayesian
Interpolation" (1992). Tridiagonal form: Golub and Van Loan, "Matrix Computations", section 8.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import lapack

from shortlist.linear.ridge_sums import RidgeSums
from shortlist.types import Matrix, Vector

# DEVIATION (Bishop, section 3.5.1): none below 4. With a smaller one, what was tried is almost as uncertain
# as what was not, and who has fewer rewards than numbers draws both alike.
RATIOS: Vector = 4.0 ** np.arange(1.0, 14.0)  # every u that is considered
UNKNOWN_SPREAD = 3.0  # what a spread is taken for that is not known, in root mean squares of the rewards
START = 4.0  # u where the sums say nothing of it
PRIOR_LOG_SD = 3.0  # of log u
_PRIOR: Vector = -0.5 * (np.log(RATIOS / START) / PRIOR_LOG_SD) ** 2
_SHARES: Vector = 1.0 / (
    1.0 + RATIOS
)  # of a squared spread that is left, and what that costs the determinant
_LOG_SHARES: Vector = np.log(_SHARES)
LEAST_SHARE = 2.0**-40  # of S that is taken for noise where rounding leaves less
MAX_DIM = 256  # beyond, a tridiagonal form costs more than all else, and holds the interpreter's lock


def ratio(sums: RidgeSums, *, mean_square: float, spreads: Sequence[float | None] = ()) -> float:
    """Return u of these sums; ``START`` where all rewards were 0, or their squares are unknown.

    ``mean_square`` is L > 0. ``spreads``: of each signal, None where it is not known; fewer: of the others it
    is not known. Cost: 4/3 d^3 + d for each u, both for each signal; of more than 256 dimensions d^2.
    """
    several = sums.signals > 1
    squares = sums.products.diagonal().tolist() if several else [sums.squares - sums.squares_error]
    told = [(signal, square) for signal, square in enumerate(squares) if 0.0 < square < math.inf]
    if not told:
        return START
    moments = sums.moments if several else [sums.moment]
    if sums.dim > MAX_DIM:  # DEVIATION (Bishop, section 3.5.2): two moments in place of the evidence
        shares = [float(moments[signal] @ moments[signal]) / mean_square / square for signal, square in told]
        return _by_moments(sums.lower_gram() / mean_square, math.fsum(shares) / len(told), sums.weight)
    values = _PRIOR
    for signal, square in told:
        log_determinants, explained = _evidence(sums.lower_bordered(moments[signal]), mean_square)
        left = np.maximum(1.0 - explained / square, LEAST_SHARE)
        # DEVIATION (Bishop, Eq. 3.86): one more reward, as large as the spread.
        spread = spreads[signal] if signal < len(spreads) else None
        left += (UNKNOWN_SPREAD**2 / sums.weight if spread is None else spread**2 / square) * _SHARES
        values = values - 0.5 * (log_determinants + (sums.weight + 1.0) * np.log(left))
    return float(RATIOS[(values + 0.5 * len(told) * _LOG_SHARES).argmax()])


def _evidence(bordered: Matrix, mean_square: float) -> tuple[Vector, Vector]:
    """The log of det(I + rho G) and b.V^-1 b for every u; ``bordered``, [[G, .], [b^T, 0]], is overwritten.

    Shapes: (d + 1, d + 1) -> (p,), (p,).
    """
    _, diagonal, beside, _, _ = lapack.dsytrd(bordered.T, lower=0, overwrite_a=1)
    dim, rho = len(diagonal) - 1, RATIOS / mean_square
    # All u at once: the blocks of one tridiagonal matrix, with zeros between them.
    blocks, between = np.multiply.outer(rho, diagonal[:-1]), np.multiply.outer(rho, beside)
    blocks += 1.0
    between[:, -1] = 0.0
    pivots, _, _ = lapack.dpttrf(blocks.reshape(-1), between.reshape(-1)[:-1], overwrite_d=1, overwrite_e=1)
    pivots = pivots.reshape(-1, dim)
    return np.log(pivots).sum(axis=1), beside[-1] ** 2 * rho / pivots[:, -1]


def _by_moments(gram: Matrix, share: float, weight: float) -> float:
    """The u for which |b|^2 / S is what the model expects, with 1 more above and below as a weak prior.

    (u |G|^2 + n) / (u n + n) in units of L: the method of moments. ``gram``: the lower triangle of G / L.
    ``share``: |b|^2 / (L S). Shapes: gram (d, d). Cost: d^2.
    """
    of_gram = 2.0 * float(np.vdot(gram, gram)) - float((gram.diagonal() ** 2).sum())
    of_moments = weight * share
    below = of_gram - of_moments + START
    ratio = (of_moments - weight + START) / below if below > 0.0 else math.inf
    return min(max(ratio, float(RATIOS[0])), float(RATIOS[-1]))
