"""The stages of greedy k-center by sampled coordinates: pull until the farthest point is certain, add it.

Notation
    n, m, k     number of points, of coordinates, of centres
    S           the centres so far; U(v, S), L(v, S) bounds of d(v, S) / scale, see ``race``
    v^L         the point of largest L(v, S): the next centre once no other U(v, S) exceeds L(v^L, S)

A round may pull any pairs, because the intervals hold at all looks at once. The algorithms differ in which.

Source: Jali, Karamchandani, Moharir, "Greedy k-Center from Noisy Distance Samples", Algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypedDict

import numpy as np

from shortlist import checks
from shortlist.guarantee import Guarantee
from shortlist.kcenter.center_set import CenterSet, check_count, first_center
from shortlist.kcenter.coordinates import WIDTH, Coordinates
from shortlist.kcenter.intervals import Interval, IntervalMethod, interval, is_proven
from shortlist.kcenter.naive_greedy import naive_greedy
from shortlist.kcenter.race import Race
from shortlist.types import NO_ROWS, Rows

# A round takes the points above best L + _LEVEL (largest U - best L), or the _FEWEST_POINTS highest.
# Measured: a higher level reads less in more rounds; a few points more save rounds and cost no reads.
_LEVEL = 0.85
_FEWEST_POINTS = 32
_LEAST_GROWTH = 0.05
_FEWEST_BLOCKS = 4
LEAST_SAMPLED_DIM = WIDTH * (_FEWEST_BLOCKS - 1) + 1
"""With fewer coordinates, in blocks of the usual width, everything is read."""
_WIDEST = 0.5

Round = Callable[[Race, int, Rows], None]
"""Pulls some pairs, given v^L and the contested points; must pull at least one pair that is not yet exact."""

Rule = Callable[[Race, Rows], Rows]
"""Chooses one centre, as a position in ``Race.centers``, for each of some points: a pair not yet exact."""


class StageOptions(TypedDict):
    """The arguments that all algorithms of dimension sampling share: see ``ds_ucb``."""

    k: int
    delta: float
    ci: IntervalMethod
    c_alpha: float
    epsilon: float
    first: int | None
    radius: Literal["exact", "bound"]
    triangle: bool
    rng: np.random.Generator


def run(coordinates: Coordinates, pull: Round, options: StageOptions) -> CenterSet:
    """Find k centres, round by round with ``pull``, and the radius or a bound of it."""
    n, dim, k, ci = coordinates.size, coordinates.dim, options["k"], options["ci"]
    check_count(k, n)
    checks.in_range("epsilon", options["epsilon"], least=0.0)
    bounds = interval(
        ci, delta=options["delta"], n=n, k=k, epsilon=options["epsilon"], c_alpha=options["c_alpha"]
    )
    start = first_center(options["first"], n, options["rng"])
    if not can_tell_apart(coordinates, bounds):
        return naive_greedy(coordinates.points(), k=k, first=start, rng=options["rng"])
    race = Race(coordinates, k, bounds, options["rng"], triangle=options["triangle"])
    race.add(start)
    for _ in range(k - 1):
        race.add(next_center(race, pull, options["epsilon"] / coordinates.scale))
    exact = options["radius"] == "exact"
    farthest = _exact_radius(race, pull) if exact else radius_bound(race, pull)
    return CenterSet(
        centers=np.array(race.centers, dtype=np.int64),
        radius=math.sqrt(farthest * coordinates.scale * dim),
        radius_kind="exact" if exact else "upper_bound",
        reads=race.reads,
        exhaustive_reads=n * dim * k,
        guarantee=Guarantee("pac", options["epsilon"], options["delta"])
        if is_proven(ci)
        else Guarantee("none"),
    )


def can_tell_apart(coordinates: Coordinates, bounds: Interval) -> bool:
    """Return whether half of the coordinates narrow an interval to half of its range; if not, read all."""
    blocks = len(coordinates.blocks)
    if blocks < _FEWEST_BLOCKS or coordinates.scale == 0.0:
        return False
    look = np.array([blocks // 2])
    lower, upper = bounds(np.array([0.5]), coordinates.reads_after(0)[look], look)
    return bool(upper[0] - lower[0] <= _WIDEST)


def next_center(race: Race, pull: Round, epsilon: float) -> int:
    """Pull until v^L is certain, up to ``epsilon`` in units of the scale, and return it."""
    while True:
        leader, contested = contest(race, epsilon)
        if contested.size == 0:
            return leader
        pull(race, leader, contested)


def contest(race: Race, epsilon: float) -> tuple[int, Rows]:
    """Return v^L, and the points that a round may pull: none if v^L is certain up to ``epsilon``."""
    best = float(race.low.max())
    leader = int(np.argmax(race.low >= best * (1.0 - race.rounding)))
    # DEVIATION (Alg. 1, line 7): equal distances stop the race as well, and go to the lowest index.
    limit = np.full(race.low.size, best * (1.0 + race.rounding) + epsilon)
    if epsilon == 0.0:
        limit[:leader] = best * (1.0 - race.rounding)
    unsure = race.low < race.high
    contested = unsure & (race.high > limit)
    contested[leader] = False
    if not contested.any():
        return leader, NO_ROWS
    contested[leader] = unsure[leader]
    return leader, np.flatnonzero(contested)


def pull_highest(race: Race, leader: int, contested: Rows, rule: Rule) -> None:
    """Pull the contested points of largest U(v, S), each until U(v, S) should have fallen below the rest."""
    # DEVIATION (Alg. 1, line 8): all points near the largest U(v, S) at once, and in batches.
    best, high = float(race.low[leader]), race.high[contested]
    surplus = max(len(high) - _FEWEST_POINTS, 0)
    level = min(best + _LEVEL * (float(high.max()) - best), float(np.partition(high, surplus)[surplus]))
    rows = contested[high >= level]
    columns = rule(race, rows)
    looks, mean = race.looks[columns, rows], race.mean[columns, rows]
    # A half-width h shrinks like 1 / sqrt(looks); where no number of looks suffices they double.
    ratio = np.full(len(rows), np.inf)
    np.divide(race.upper[columns, rows] - mean, level - mean, out=ratio, where=level > mean)
    wanted = np.clip(looks * (np.minimum(ratio, 2.0) ** 2 - 1.0), _LEAST_GROWTH * looks, looks)
    race.pull(rows, columns, np.maximum(np.ceil(wanted), 1.0).astype(np.int64))


def lowest_bound(race: Race, rows: Rows) -> Rows:
    """Return the centre of smallest L(v, s) for each of ``rows``. Shapes: (r,) -> (r,)."""
    columns: Rows = race.lower[: len(race.centers), rows].argmin(axis=0)
    return columns


def _exact_radius(race: Race, pull: Round) -> float:
    """Return max over v of d(v, S) / scale: find one more centre, then read its distance in full."""
    if len(race.centers) == race.low.size:
        return 0.0
    rows = np.array([next_center(race, pull, 0.0)])
    while race.low[rows[0]] < race.high[rows[0]]:
        columns = lowest_bound(race, rows)
        race.pull(rows, columns, np.maximum(race.looks[columns, rows], 1))
    return float(race.low[rows[0]])


def radius_bound(race: Race, pull: Round) -> float:
    """Return a bound of max over v of d(v, S) / scale, for as many reads as a centre took on average."""
    if len(race.centers) == race.low.size:
        return 0.0
    share = max(race.reads // len(race.centers), race.low.size * race.coordinates.blocks.shape[2])
    stop = race.reads + share
    while race.reads < stop:
        leader, contested = contest(race, 0.0)
        if contested.size == 0:
            break
        pull(race, leader, contested)
    return float(race.high.max())
