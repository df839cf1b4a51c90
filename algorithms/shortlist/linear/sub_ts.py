"""Sub-TS: linear Thompson sampling whose argmax is a maximum inner product search.

Notation
    V, theta^   precision (d, d) and estimate (d,) of ridge regression, see ``ridge``
    xi          a standard normal vector (d,)
    theta~      theta^ + exploration * V^-1/2 xi (d,), the sampled parameter

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Algorithm 4, lines 7 to 9.
"""

from __future__ import annotations

import numpy as np

from shortlist.linear.linear_ts import draw
from shortlist.linear.ridge import Posterior
from shortlist.types import NO_ROWS, MipsSolver, Rows, TopK


def choose(
    posterior: Posterior,
    solver: MipsSolver,
    *,
    k: int,
    exploration: float,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
) -> TopK:
    """Draw theta~ and return the ``k`` arms found by ``solver``.

    ``solver`` holds the arms: in production a graph with a shortlist; or the ladder of Algorithm 4 in
    ``mips.adaptive``; or a scan. The best arm of an inner product does not depend on the query's norm, so
    theta~ is passed as it is. ``exploration`` is explained in ``linear_ts.draw``.

    Shapes: exclude (e,) distinct rows -> rows (m,), scores (m,) with m <= k.
    Cost: O(d^2) and one search. Raises: InvalidParameter, and the errors of ``solver``.
    """
    return solver.search(draw(posterior, exploration=exploration, rng=rng), k, exclude)
