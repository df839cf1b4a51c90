"""The campaign of NS-TS, NS-UCB and NS-TandS: ask for pairs, tell the answers, see the progress.

    state = ns_ts.start(n=25, k=3, delta=0.1, noise_std=0.1, rng=rng)
    while not state.done:
        state, queries = ask(state, 100, rng=rng)
        state = tell(state, [(query.number, measure(*query.pair)) for query in queries])
    answer(state).centers

Every function returns a new state and does not change the old one. When nothing in the answers is new,
``tell`` returns the same state. Answers may come in any order, late or never, and from any number of clients;
of several answers to one query the first counts. A pair whose queries stay open is asked again when the next
choice depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.guarantee import Guarantee
from shortlist.kcenter import noise, ns_tands, ns_ts
from shortlist.kcenter.noisy_state import NoisyMethod, NoisyState
from shortlist.types import Matrix, Rows, Vector

MOST_ASKED = 10_000
MOST_OPEN = 100_000
MOST_QUERIES = 10_000_000
MOST_NAMED = 20

Choose = Callable[[NoisyState, int, np.random.Generator], tuple[Rows, Rows]]
Next = Callable[[NoisyState], int | None]

_METHODS: dict[NoisyMethod, tuple[Choose, Next]] = {
    "ns_ts": (ns_ts.choose, ns_ts.next_center),
    "ns_ucb": (ns_ts.choose, ns_ts.next_center),
    "ns_tands": (ns_tands.choose, ns_tands.next_center),
}


@dataclass(frozen=True, slots=True)
class Query:
    """Asks for the distance of the two points of ``pair``; answer it with its ``number``."""

    number: int
    pair: tuple[int, int]


@dataclass(frozen=True, slots=True)
class CenterProgress:
    """The progress of a campaign.

    ``centers`` are those found so far, in order, and ``guarantee`` is theirs. ``radius`` estimates max over v
    of min over s of d(v, s) on the scale of the answers, from the answered pairs; None without answers.
    Nothing is asked about the last centre, so the radius of all centres is smaller, up to noise. ``issued``
    counts the queries, ``observed`` the answers.
    """

    centers: tuple[int, ...]
    done: bool
    radius: float | None
    guarantee: Guarantee
    issued: int
    observed: int


def settled(state: NoisyState) -> NoisyState:
    """Return the state with every centre that its answers make certain; ``tell`` returns such states."""
    while not state.done:
        if state.settings.n - len(state.centers) == 1:
            center: int | None = (set(range(state.settings.n)) - set(state.centers)).pop()
        elif noise.is_calibrated(state):
            center = _METHODS[state.settings.method][1](state)
        else:
            center = None
        if center is None:
            break
        state = replace(state, centers=(*state.centers, center))
    return state


def ask(
    state: NoisyState, count: int, *, rng: np.random.Generator, most_open: int = MOST_OPEN
) -> tuple[NoisyState, tuple[Query, ...]]:
    """Return the state with ``count`` more queries open, and these; none if all centres are found.

    The oldest open queries beyond ``most_open`` are forgotten: an answer to one of them is ignored.
    Raises: InvalidParameter (count not in 1..10,000, more than 10,000,000 queries in all).
    """
    checks.in_range("count", count, least=1, most=MOST_ASKED, whole=True)
    if not state.observed:  # every other state comes from ``tell``
        state = settled(state)
    if state.done:
        return state, ()
    if state.issued + count > MOST_QUERIES:
        raise InvalidParameter(f"count would make more than {MOST_QUERIES:,} queries", argument="count")
    if noise.is_calibrated(state):
        points, rows = _METHODS[state.settings.method][0](state, count, rng)
    else:
        points, rows = _calibration_pairs(state, count)
    numbers = np.arange(state.issued, state.issued + count)
    waiting = np.hstack((state.open, np.stack((numbers, points, rows))))[:, -most_open:]
    queries = tuple(
        Query(number, (point, state.centers[row]))
        for number, point, row in zip(numbers.tolist(), points.tolist(), rows.tolist(), strict=True)
    )
    return replace(state, open=waiting, issued=state.issued + count, asks=state.asks + 1), queries


def tell(state: NoisyState, results: Sequence[tuple[int, float]]) -> NoisyState:
    """Return the state after (number, distance) answers; a number answered before, or twice here, is ignored.

    Raises, and changes nothing: InvalidParameter (a number never issued, a distance outside [0, 1] for
    noise "bernoulli"), NonFinite.
    """
    numbers = np.array([number for number, _ in results], dtype=np.int64)
    values = np.array([value for _, value in results], dtype=np.float64)
    checks.finite("results", values)
    if ((numbers < 0) | (numbers >= state.issued)).any():
        raise InvalidParameter("results must name queries that were asked", argument="results")
    if state.settings.noise == "bernoulli":
        _refuse_outside(values)
    waiting = state.open[0]
    distinct, firsts = np.unique(numbers, return_index=True)
    places = np.searchsorted(waiting, distinct)
    is_open = np.append(waiting, -1)[places] == distinct
    order = firsts[is_open].argsort()
    fresh, places = firsts[is_open][order], places[is_open][order]
    if not len(places):
        return state
    _, points, rows = state.open[:, places]
    counts, sums = state.counts.copy(), state.sums.copy()
    np.add.at(counts, (rows, points), 1)
    np.add.at(sums, (rows, points), values[fresh])
    told = replace(
        state,
        counts=counts,
        sums=sums,
        open=np.delete(state.open, places, axis=1),
        calibration=_calibrated(state, points[rows == 0], values[fresh][rows == 0]),
        observed=state.observed + len(fresh),
    )
    return settled(told)


def answer(state: NoisyState) -> CenterProgress:
    """Return where the campaign stands, at any time."""
    state = settled(state)
    settings, center_count = state.settings, len(state.centers)
    distances = np.where(state.counts[:center_count] > 0, noise.means(state), np.inf).min(axis=0)
    distances[list(state.centers)] = np.inf
    finite = distances[np.isfinite(distances)]
    epsilon = noise.tolerance(state) if noise.is_calibrated(state) else settings.epsilon or 0.0
    return CenterProgress(
        centers=state.centers,
        done=state.done,
        radius=float(finite.max()) if finite.size else None,
        guarantee=Guarantee("pac", epsilon, settings.delta)
        if settings.threshold == "proven"
        else Guarantee("none", epsilon),
        issued=state.issued,
        observed=state.observed,
    )


def _calibration_pairs(state: NoisyState, count: int) -> tuple[Rows, Rows]:
    """Return ``count`` pairs with the first centre for measuring the variance, the least asked first."""
    points = noise.calibration_points(state)
    asked = noise.expected(state)[0, points].astype(np.float64)
    asked[state.calibration[0] >= noise.repeats(state)] = np.inf
    chosen = np.empty(count, dtype=np.int64)
    for position in range(count):
        chosen[position] = asked.argmin()
        asked[chosen[position]] += 1.0
    return points[chosen], np.zeros(count, dtype=np.int64)


def _calibrated(state: NoisyState, points: Rows, values: Matrix) -> Matrix:
    """Return the calibration after answers of pairs with the first centre (Welford's update)."""
    if noise.is_calibrated(state):
        return state.calibration
    calibration, most = state.calibration.copy(), noise.repeats(state)
    place_of = {point: position for position, point in enumerate(noise.calibration_points(state).tolist())}
    for point, value in zip(points.tolist(), values.tolist(), strict=True):
        position = place_of.get(point)
        if position is None or calibration[0, position] >= most:
            continue
        count, mean, squares = calibration[:, position]
        off = value - mean
        mean += off / (count + 1.0)
        calibration[:, position] = count + 1.0, mean, squares + off * (value - mean)
    return calibration


def _refuse_outside(values: Vector) -> None:
    outside = np.flatnonzero((values < 0.0) | (values > 1.0))[:MOST_NAMED].tolist()
    if outside:
        message = "results must lie in [0, 1] for noise bernoulli"
        raise InvalidParameter(
            message, argument="results", items=[(position, "distance") for position in outside]
        )
