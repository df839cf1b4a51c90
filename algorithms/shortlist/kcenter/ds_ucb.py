"""DS-UCB: greedy k-center from random coordinates, by upper and lower confidence bounds.

Notation
    n, m, k     number of points, of coordinates, of centres
    d(v, s)     |x_v - x_s|^2 / m; the order of d is that of the distances, so greedy's centres are the same
    U, L        bounds of d, see ``intervals``; U(v, S) = min over centres s of U(v, s), likewise L(v, S)

The estimate is the mean of squared differences: a square root, as in Equation 7 of the print, is biased.

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", Algorithm 1.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from shortlist.kcenter.center_set import CenterSet
from shortlist.kcenter.coordinates import Coordinates
from shortlist.kcenter.intervals import IntervalMethod
from shortlist.kcenter.stages import StageOptions, lowest_bound, pull_highest, run


def ds_ucb(
    coordinates: Coordinates,
    *,
    k: int,
    delta: float,
    rng: np.random.Generator,
    ci: IntervalMethod = "kl",
    c_alpha: float = 0.1,
    epsilon: float = 0.0,
    first: int | None = None,
    radius: Literal["exact", "bound"] = "bound",
    triangle: bool = False,
) -> CenterSet:
    """Return ``k`` centres, with probability at least 1 - delta those of the greedy algorithm.

    A point v that may still be the next centre is pulled with the centre s of smallest L(v, s).

    ``delta`` bounds the probability that a centre is wrong. ``epsilon`` > 0 accepts every point whose d is
    within epsilon of the largest, in the units of d. ``ci`` names the interval, see ``intervals``;
    "experiment" has the width of the paper's experiments, with the factor ``c_alpha``, and guarantees
    nothing. ``radius`` "bound" returns an upper bound of the radius, with the same probability; "exact" goes
    on reading until the radius is known, for about the cost of one more centre. ``first`` is the first
    centre, a random one if None. ``triangle`` narrows all intervals by the triangle inequality, with the
    same guarantee: it saves reads where k is well above the number of clusters, for O(n k^2) more
    arithmetic at each centre, see ``triangle``.

    Shapes: coordinates of n points -> centers (k,).
    Cost: at most n m k coordinate reads; the number read is ``CenterSet.reads``. When there are too few
    coordinates to narrow an interval, all are read, and the guarantee is "exact".
    Raises: InvalidParameter (k not in 1..n, delta not in (0, 1), ci, c_alpha, epsilon, first).
    """
    options = StageOptions(
        k=k,
        delta=delta,
        ci=ci,
        c_alpha=c_alpha,
        epsilon=epsilon,
        first=first,
        radius=radius,
        triangle=triangle,
        rng=rng,
    )
    return run(coordinates, partial(pull_highest, rule=lowest_bound), options)
