"""NS-UCB: NS-TS without Thompson sampling; the centre of a candidate is always that of least lower bound.

Notation: see ``ns_ts``; z = 0.

Pulling only the largest upper bound, as Algorithm 1 does, stalls here: the rivals' upper bounds settle just
under the winner's, which no number of queries makes exact. So the rule of two candidates stays.

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", sections VI-A and VII-A.
"""

from __future__ import annotations

import numpy as np

from app.algorithms.kcenter import ns_ts
from app.algorithms.kcenter.noisy_state import Noise, State


def start(
    *,
    n: int,
    k: int,
    delta: float,
    rng: np.random.Generator,
    first: int | None = None,
    noise: Noise = "gaussian",
    noise_std: float | None = None,
    epsilon: float | None = None,
) -> State:
    """Return a campaign as ``ns_ts.start`` does, with z = 0; same guarantee and errors."""
    return ns_ts.start(
        n=n,
        k=k,
        delta=delta,
        rng=rng,
        first=first,
        noise=noise,
        noise_std=noise_std,
        epsilon=epsilon,
        mix=0.0,
        method="ns_ucb",
    )
