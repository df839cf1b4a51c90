"""Linear Thompson sampling: the best arm under a parameter drawn from the posterior, by a full scan.

Notation
    K, d            number of arms, dimension
    V, theta^       precision (d, d) and estimate (d,) of ridge regression, see ``ridge``
    xi              a standard normal vector (d,)
    theta~          theta^ + exploration * V^-1/2 xi (d,), the sampled parameter

Any square root of V^-1 serves: root xi has covariance root root^T = V^-1, and a Gaussian is determined by
its covariance. Ours is the inverse of the transposed Cholesky factor, which ``ridge`` keeps.

Source: Abeille and Lazaric, "Linear Thompson Sampling Revisited", as the baseline "Linear TS" of Yang et
al., "Linear Bandit Algorithms with Sublinear Time Complexity", sections 6.1 and 7.
"""

from __future__ import annotations

import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.linear.ridge import Posterior
from shortlist.mips.exact import exact
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector


def draw(posterior: Posterior, *, exploration: float, rng: np.random.Generator) -> Vector:
    """Return theta~ = theta^ + exploration * V^-1/2 xi.

    ``exploration`` 0 gives the estimate itself, 1 a draw from the Bayesian posterior under unit noise. The
    paper's value is beta(delta / 4T) of ``confidence``. Shapes: -> (d,). Cost: d normal draws and d^2
    multiply-adds.
    Raises: InvalidParameter (exploration < 0, not finite).
    """
    if not 0.0 <= exploration < np.inf:
        raise InvalidParameter("exploration must be >= 0", argument="exploration")
    if not hasattr(rng, "random"):  # each choice draws: a right generator costs no call
        checks.generator(rng)
    noise = posterior.noise(rng)
    noise *= exploration
    noise += posterior.theta
    return noise


def draws(posterior: Posterior, count: int, *, exploration: float, rng: np.random.Generator) -> Matrix:
    """Return many draws of theta~: those of ``draw`` one after the other, but for rounding.

    Shapes: -> (count, d). Cost: r normal draws and d r multiply-adds for each, of a root (d, r).
    Raises: InvalidParameter (exploration < 0, not finite).
    """
    if not 0.0 <= exploration < np.inf:
        raise InvalidParameter("exploration must be >= 0", argument="exploration")
    root = posterior.root
    checks.generator(rng)
    thetas: Matrix = rng.standard_normal((count, root.shape[1])) @ root.T
    thetas *= exploration
    thetas += posterior.theta
    return thetas


def choose(
    posterior: Posterior,
    features: Matrix,
    *,
    k: int,
    exploration: float,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
) -> TopK:
    """Draw theta~ and return the ``k`` arms of largest x.theta~, every arm compared.

    Shapes: features (K, d), exclude (e,) distinct rows -> rows (m,), scores (m,), m = min(k, K - e).
    Cost: O(K d). Raises: InvalidShape, NonFinite, InvalidParameter (k < 1, exploration).
    """
    checks.shape("features", features, (None, len(posterior.theta)))
    return exact(features, draw(posterior, exploration=exploration, rng=rng), k=k, exclude=exclude)
