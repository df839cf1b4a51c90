"""Random sampling, the paper's second baseline: the stages of DS-UCB, with pairs pulled at random.

Notation
    n, k        number of points, of centres
    p           number of centres found; the stage has (n - p) p pairs

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", section VIII.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from shortlist.kcenter.center_set import CenterSet
from shortlist.kcenter.coordinates import Coordinates
from shortlist.kcenter.intervals import IntervalMethod
from shortlist.kcenter.race import Race
from shortlist.kcenter.stages import StageOptions, run
from shortlist.types import Rows

_SHARE = 0.05


def random_sampling(
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
) -> CenterSet:
    """Return ``k`` centres with the guarantee of ``ds_ucb``, from pairs pulled uniformly at random.

    Arguments, shapes, cost and errors are those of ``ds_ucb``.
    """
    options = StageOptions(
        k=k,
        delta=delta,
        ci=ci,
        c_alpha=c_alpha,
        epsilon=epsilon,
        first=first,
        radius=radius,
        triangle=False,
        rng=rng,
    )
    return run(coordinates, pull_anything, options)


def pull_anything(race: Race, _leader: int, _contested: Rows) -> None:
    """Read one block more of a random twentieth of the stage's pairs that are not yet exact."""
    center_count = len(race.centers)
    is_open = race.looks[:center_count] < race.last_look
    is_open[:, race.centers] = False
    columns, rows = np.nonzero(is_open)
    count = max(1, round(_SHARE * len(rows)))
    drawn = race.rng.choice(len(rows), size=count, replace=False)
    race.pull(rows[drawn], columns[drawn], np.ones(count, dtype=np.int64))
