"""NS-UCB: NS-TS without Thompson sampling; the centre of a candidate is always that of least lower bound.

Notation: see ``ns_ts``; z = 0.

Algorithm 1 pulls only the point of largest upper bound. With noisy answers that stalls: the winner's distance
never becomes exact, and the upper bounds of its rivals stay just below the winner's, so they are never pulled
again. So the two candidates of NS-TS are kept.

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", sections VI-A and VII-A.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from shortlist.kcenter.noisy_state import NoisyOptions, NoisySettings, NoisyState, begin, check_options


def start(
    *, rng: np.random.Generator, first: int | None = None, **options: Unpack[NoisyOptions]
) -> NoisyState:
    """Return a campaign as ``ns_ts.start`` does, with z = 0; same guarantee and errors."""
    check_options(options)
    return begin(NoisySettings("ns_ucb", **options), first, rng)
