"""NS-TS: greedy k-center from noisy distances, the two leading candidates refined in turn.

Notation
    mean, U, L          mean answer and bounds of a pair (v, s), see ``noise``; infinite without an answer
    mean(v, S)          min over centres s of mean(v, s); likewise U(v, S) and L(v, S)
    v1, v2              argmax of mean(v, S); argmax of U(v, S) over the others
    z                   probability of choosing the centre by Thompson sampling (``mix``), else by least L

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", Algorithm 3.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from shortlist.kcenter import noise
from shortlist.kcenter.noisy_state import NoisyOptions, NoisySettings, NoisyState, begin, check_options
from shortlist.types import Rows

_GROWTH = 0.1


def start(
    *, rng: np.random.Generator, first: int | None = None, mix: float = 0.9, **options: Unpack[NoisyOptions]
) -> NoisyState:
    """Return a campaign for ``k`` centres of ``n`` points; go on with ``ask_tell``.

    With probability at least 1 - delta every centre had d(v, S) >= max - epsilon when it was chosen, on the
    scale of the answers. With ``epsilon`` 0 the centres are greedy's own, but a campaign never ends when two
    points tie. None stands for a tenth of the noise's standard deviation, with which every campaign ends.
    Answers must be independent, and whether an answer arrives must not depend on its value.

    ``noise`` "gaussian": Gaussian noise of standard deviation ``noise_std``; None: the variance is unknown
    but equal for all pairs, and the first 128 to 256 queries bound it. ``noise`` "bernoulli": answers in [0,
    1], such as judgements 0 or 1. ``first`` is the first centre, drawn if None. ``mix`` is z.

    Raises: InvalidParameter (n < 1, k not in 1..n, delta not in (0, 1), first, noise, noise_std <= 0,
    epsilon < 0, mix).
    """
    check_options(options)
    return begin(NoisySettings("ns_ts", mix=mix, **options), first, rng)


def next_center(state: NoisyState) -> int | None:
    """Return v^L, the point of largest L(v, S), if no other U(v, S) exceeds L(v^L, S) + epsilon."""
    center_count = len(state.centers)
    counts = state.counts[:center_count]
    lower, upper = noise.bounds(state, noise.means(state), counts)
    low, high = lower.min(axis=0), upper.min(axis=0)
    low[list(state.centers)] = high[list(state.centers)] = -np.inf
    leader = int(low.argmax())
    limit = low[leader] + noise.tolerance(state)
    high[leader] = -np.inf
    return leader if limit >= high.max() else None


class _Plan:
    """The bounds as they will be once all open queries are answered, if the means stay."""

    def __init__(self, state: NoisyState) -> None:
        center_count = len(state.centers)
        self.state, self.centers = state, list(state.centers)
        answered = state.counts[:center_count]
        self.counts = noise.expected(state)
        self.mean = np.where(answered > 0, noise.means(state), np.inf)
        # A pair that waits for its first answer may be as far as any other.
        nearest = self.mean.min(axis=0)
        self.guess = float(nearest.max(where=np.isfinite(nearest), initial=0.0))
        self.mean[(answered == 0) & (self.counts > 0)] = self.guess
        self.lower, self.upper = noise.bounds(state, np.where(self.counts > 0, self.mean, 0.0), self.counts)
        self.score, self.low, self.high = (a.min(axis=0) for a in (self.mean, self.lower, self.upper))
        self.score[self.centers] = self.high[self.centers] = -np.inf

    def candidate(self) -> int:
        """Return the one of v1 and v2 whose interval is wider."""
        # DEVIATION (Alg. 3, line 10): the wider one; pulling both in growing batches pulls v1 without end.
        first = int(self.score.argmax())
        bounds = self.high.copy()
        bounds[first] = -np.inf
        second = int(bounds.argmax())
        return max(first, second, key=lambda point: float(self.high[point] - self.low[point]))

    def center(self, point: int, rng: np.random.Generator) -> int:
        """Return the centre's row: one never asked about, else by Thompson sampling or by least L."""
        # DEVIATION (Alg. 3, line 6): a new centre's pair is asked when its point is a candidate, not at once.
        if not self.counts[:, point].all():
            return int(self.counts[:, point].argmin())
        if rng.random() < self.state.settings.mix:
            return int(noise.draw(self.state, point, rng).argmin())
        return int(self.lower[:, point].argmin())

    def add(self, point: int, row: int, count: int) -> None:
        """Plan ``count`` more answers of a pair."""
        if self.counts[row, point] == 0:
            self.mean[row, point] = self.guess
        self.counts[row, point] += count
        pair = np.s_[row : row + 1, point]
        bounds = noise.bounds(self.state, self.mean[pair], self.counts[pair])
        self.lower[pair], self.upper[pair] = bounds
        self.score[point] = self.mean[:, point].min()
        self.low[point], self.high[point] = self.lower[:, point].min(), self.upper[:, point].min()


def choose(state: NoisyState, count: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return ``count`` pairs to ask: points and rows of centres. Shapes: -> (count,), (count,).

    Cost: O(n p), and O(n) for every batch of up to a tenth of the answers of a pair.
    """
    plan = _Plan(state)
    points: list[int] = []
    rows: list[int] = []
    while len(points) < count:
        point = plan.candidate()
        row = plan.center(point, rng)
        # A batch is a tenth of the answers of the pair of least L, which keeps the interval wide. A tenth of
        # the answers of the pair that was drawn could be far more.
        widest = plan.counts[plan.lower[:, point].argmin(), point]
        batch = min(max(1, int(_GROWTH * widest)), count - len(points))
        points += [point] * batch
        rows += [row] * batch
        plan.add(point, row, batch)
    return np.array(points, dtype=np.int64), np.array(rows, dtype=np.int64)
