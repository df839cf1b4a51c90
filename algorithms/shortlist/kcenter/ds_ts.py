"""DS-TS: greedy k-center from random coordinates, where Thompson sampling looks for a near centre.

Notation
    n, m, k     number of points, of coordinates, of centres
    t, mean     coordinates of a pair read, and the mean of their squared differences, in [0, 1]
    Theta(v, s) a draw from Beta(1 + t mean, 1 + t (1 - mean)), the posterior of a uniform prior
    z           probability of Thompson sampling (``mix``); else the centre of smallest L(v, s), as in DS-UCB

A point cannot be the next centre as soon as one centre is certainly near it. That need not be the nearest
centre. Sampling from the posterior pulls the other, farther centres less often than lower bounds do.

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", Algorithm 2.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from shortlist import checks
from shortlist.kcenter.center_set import CenterSet
from shortlist.kcenter.coordinates import Coordinates
from shortlist.kcenter.intervals import IntervalMethod
from shortlist.kcenter.race import Race
from shortlist.kcenter.stages import StageOptions, lowest_bound, pull_highest, run
from shortlist.types import Rows


def ds_ts(
    coordinates: Coordinates,
    *,
    k: int,
    delta: float,
    rng: np.random.Generator,
    mix: float = 0.99,
    ci: IntervalMethod = "kl",
    c_alpha: float = 0.1,
    epsilon: float = 0.0,
    first: int | None = None,
    radius: Literal["exact", "bound"] = "bound",
    triangle: bool = False,
) -> CenterSet:
    """Return ``k`` centres, with probability at least 1 - delta those of the greedy algorithm.

    ``mix`` is z; 0 is DS-UCB. The other arguments, shapes, cost and errors are those of ``ds_ucb``.
    Raises also: InvalidParameter (mix not in 0..1).
    """
    checks.in_range("mix", mix, least=0.0, most=1.0)
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
    return run(coordinates, partial(pull_highest, rule=partial(near_center, mix=mix)), options)


def near_center(race: Race, rows: Rows, mix: float) -> Rows:
    """Return a centre for each of ``rows``: drawn with probability ``mix``, else that of least L(v, s)."""
    columns = lowest_bound(race, rows)
    members = np.flatnonzero(race.rng.random(len(rows)) < mix)
    sampled, center_count = rows[members], len(race.centers)
    looks = race.looks[:center_count, sampled]
    reads = race.reads_after[looks]
    # DEVIATION (Eq. 13): the posterior counts the answers themselves, not one Bernoulli draw for each.
    wins = reads * race.mean[:center_count, sampled]
    drawn = race.rng.beta(1.0 + wins, 1.0 + reads - wins)
    # DEVIATION (Alg. 2, line 12): pairs that are known exactly are not drawn again.
    drawn[looks == race.last_look] = np.inf
    columns[members] = drawn.argmin(axis=0)
    return columns
