"""Instances of the full-bandit paper, and campaigns that are played on them.

Notation
    theta       means (n,); gap, the distance of the (k+1)-th best from the k-th (Delta_min)

Source: Kuroki et al., "Polynomial-time Algorithms for Multiple-arm Identification with Full-bandit Feedback",
section 5.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shortlist.slates import ask_tell, exhaustive, icb, sa_foa, saqm
from shortlist.slates.allocation import Allocation
from shortlist.slates.campaign_state import SlateMethod, SlateState
from shortlist.slates.matroids import PartitionMatroid
from shortlist.slates.widths import Bound
from shortlist.types import Matrix, Vector

STARTS: dict[SlateMethod, Callable[..., SlateState]] = {
    "saqm": saqm.start,
    "sa_foa": sa_foa.start,
    "icb": icb.start,
    "exhaustive": exhaustive.start,
}
DELTA = 0.05
BATCH = 1_000
MOST = 1_000_000

Draw = Callable[[Matrix], Vector]
"""Totals (m,) of slates, given the means of their arms (m, k)."""


@dataclass(frozen=True, slots=True)
class Played:
    """One campaign: results until it stopped (None if given up), what its slate lacks, seconds."""

    samples: int | None
    lost: float
    seconds: float


def synthetic(n: int, k: int, gap: float, rng: np.random.Generator) -> Vector:
    """The k best uniform in [0, 1], the next ``gap`` below their least, the rest uniform from -1 to that."""
    best = rng.uniform(0.0, 1.0, k)
    following = float(best.min()) - gap
    return np.concatenate([best, [following], rng.uniform(min(-1.0, following), following, n - k - 1)])


def normal(noise_std: float, rng: np.random.Generator) -> Draw:
    """Sums of the means with Gaussian noise of this standard deviation."""

    def draw(means: Matrix) -> Vector:
        total: Vector = means.sum(axis=1) + noise_std * rng.standard_normal(len(means))
        return total

    return draw


def begin(
    method: SlateMethod,
    n: int,
    k: int,
    *,
    noise_std: float,
    seed: int,
    bound: Bound = "certified",
    allocation: Allocation = "uniform",
    matroid: PartitionMatroid | None = None,
    epsilon: float = 0.5,
) -> SlateState:
    """A campaign before any pull."""
    return STARTS[method](
        n=n, k=k, epsilon=epsilon, delta=DELTA, noise_std=noise_std, reach=None, allocation=allocation,
        bound=bound, seed=seed, matroid=matroid,
    )  # fmt: skip


def play(state: SlateState, theta: Vector, draw: Draw, *, most: int = MOST) -> Played:
    """Run a campaign to its end; only the algorithm is timed. After ``most`` results it is given up."""
    seconds = 0.0
    while not state.done and state.observed < most:
        started = time.perf_counter()
        state, pulls = ask_tell.ask(state, BATCH)
        seconds += time.perf_counter() - started
        totals = draw(theta[[pull.slate for pull in pulls]]).tolist()
        results = list(zip([pull.number for pull in pulls], totals, strict=True))
        started = time.perf_counter()
        state = ask_tell.tell(state, results)
        seconds += time.perf_counter() - started
    if state.report is None or not state.done:
        return Played(None, 0.0, seconds)
    best = state.settings.slates.best(theta)
    lost = float(theta[best].sum() - theta[state.report.best].sum())
    return Played(state.report.observed, lost, seconds)


def mean_samples(played: list[Played]) -> float | None:
    """The mean, or None when one of them was given up."""
    samples = [one.samples for one in played if one.samples is not None]
    return float(np.mean(samples)) if len(samples) == len(played) else None
