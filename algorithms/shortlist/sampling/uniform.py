"""Uniform draws without replacement from a part of a pool, by rejection: the pool is not looked through.

Notation
    N           places of the pool, numbered from 0
    n           how many of them are accepted
    k           places to draw

Slots of the pool are drawn uniformly, one after the other; those that are not accepted, or were drawn
before, are passed over. So each place is uniform among the accepted ones that are left.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.types import Rows

SPARE = 8  # drawn at once beside those that should be enough


def draw_distinct(
    accepts: Callable[[Rows], NDArray[np.bool_]],
    *,
    pool: int,
    accepted: int,
    k: int,
    rng: np.random.Generator,
) -> Rows:
    """Return min(k, n) distinct accepted places, in the order they were drawn.

    ``accepts``     True for the places that may be drawn: (m,) -> (m,)
    ``pool``        N
    ``accepted``    n, which has to be right: with less in the pool this would never end

    Cost: about N / n for each place while k is at most n / 2. Raises: InvalidParameter (k < 1, n > N).
    Source: rejection sampling; von Neumann 1951.
    """
    checks.in_range("k", k, least=1)
    checks.in_range("accepted", accepted, least=0, most=pool)
    wanted = min(k, accepted)
    distinct = np.empty(0, dtype=np.int64)
    while len(distinct) < wanted:
        expected = (wanted - len(distinct)) * pool / (accepted - len(distinct))
        places = rng.integers(0, pool, size=int(expected) + SPARE)
        distinct = np.concatenate((distinct, places[accepts(places)]))
        distinct = distinct[np.sort(np.unique(distinct, return_index=True)[1])]
    return distinct[:wanted]
