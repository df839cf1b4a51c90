"""The campaign of SAQM, SA-FOA, ICB and Exhaustive: ask for slates, tell their totals, see where it stands.

    state = sa_foa.start(n=20, k=4, epsilon=0.5, delta=0.05, noise_std=1.0, seed=7)
    while not state.done:
        state, pulls = ask(state, 100)
        state = tell(state, [(pull.number, show(pull.slate)) for pull in pulls])
    state.report.best

Every function returns a new state and leaves the old one alone. Totals may come in any order, late, or
never, as long as that does not depend on the noise; a number counts once. Looks are taken after t_1, t_2, ...
results, whatever the batches, so the answer does not depend on how results are grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.slates import allocation, exhaustive, icb, sa_foa, saqm
from shortlist.slates.campaign_state import SlateMethod, SlateReport, SlateSettings, SlateState, next_look
from shortlist.slates.certified_bounds import top_of_spectrum
from shortlist.slates.excess import Excess
from shortlist.slates.least_squares import Fit, fit
from shortlist.slates.widths import Look, slate_interval
from shortlist.types import Rows, Vector

MOST_ASKED = 10_000
MOST_PULLS = 10_000_000
# Results that are added to the sums at a time.
_CHUNK = 1_000
# Slates an arm in the support of Algorithm 3 as printed, and the most numbers that its matrices hold.
_SUPPORT = 3
_SUPPORT_ENTRIES = 20_000_000

_TESTS: dict[SlateMethod, Callable[[Fit, Look], Excess]] = {
    "saqm": saqm.excess,
    "sa_foa": sa_foa.excess,
    "icb": icb.excess,
    "exhaustive": exhaustive.excess,
}


@dataclass(frozen=True, slots=True)
class Pull:
    """Asks for the total of the arms of ``slate``, ascending; answer it with its ``number``."""

    number: int
    slate: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pulls(Sequence[Pull]):
    """Each pull is made when it is read: all at once they would be millions of Python integers, which take
    long to make and to give back. Shape: slates (m, k), of as many ``numbers``.
    """

    numbers: range
    slates: Rows

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Pull: ...

    @overload
    def __getitem__(self, place: slice) -> Pulls: ...

    def __getitem__(self, place: int | slice) -> Pull | Pulls:
        if isinstance(place, slice):
            return Pulls(self.numbers[place], self.slates[place])
        return Pull(self.numbers[place], tuple(self.slates[place].tolist()))


def ask(state: SlateState, count: int) -> tuple[SlateState, Pulls]:
    """Return the state with ``count`` more pulls, and these; none when the best slate is found.

    Raises: InvalidParameter (count not in 1..10,000; more than 10,000,000 pulls).
    """
    checks.in_range("count", count, least=1, most=MOST_ASKED, whole=True)
    if state.done:
        return state, Pulls(range(0), slates_of(state, np.arange(0)))
    if state.issued + count > MOST_PULLS:
        raise InvalidParameter(f"count would make more than {MOST_PULLS:,} pulls", argument="count")
    numbers = range(state.issued, state.issued + count)
    pulls = Pulls(numbers, slates_of(state, np.array(numbers)))
    return replace(state, issued=state.issued + count), pulls


def tell(state: SlateState, results: Sequence[tuple[int, float]]) -> SlateState:
    """Return the state after (number, total) results; a number told before, or twice here, is ignored.

    The very state comes back if nothing is new. Cost: O(k^2) a result, O(n^2) a call, and the looks that are
    due. Raises, and changes nothing: InvalidParameter (a number never issued), NonFinite.
    """
    numbers = np.array([number for number, _ in results], dtype=np.int64)
    totals = np.array([total for _, total in results], dtype=np.float64)
    checks.finite("results", totals)
    if ((numbers < 0) | (numbers >= state.issued)).any():
        raise InvalidParameter("results must name pulls that were asked for", argument="results")
    fresh = _fresh(state.told, numbers)
    if not len(fresh):
        return state
    told = _mark(state.told, numbers[fresh])
    state = replace(state, told=told)
    while len(fresh):
        room = len(fresh) if state.done else state.next_look - state.observed
        chunk, fresh = fresh[: min(room, _CHUNK)], fresh[min(room, _CHUNK) :]
        state = _take(state, slates_of(state, numbers[chunk]), totals[chunk])
        if not state.done and state.observed == state.next_look:
            state = _look(state)
    return state


def slates_of(state: SlateState, numbers: Rows) -> Rows:
    """Return the slate of each pull. Shapes: (m,) -> (m, k)."""
    settings = state.settings
    return allocation.slates(state.design, settings.slates, settings.seed, numbers)


def was_told(told: NDArray[np.uint8], numbers: Rows) -> NDArray[np.bool_]:
    """Return which pulls were told. Shapes: (bytes,), (m,) -> (m,)."""
    is_known = numbers // 8 < len(told)
    bits = told[numbers[is_known] // 8] >> (numbers[is_known] % 8).astype(np.uint8) & 1
    answer = np.zeros(len(numbers), dtype=bool)
    answer[is_known] = bits.astype(bool)
    return answer


def _fresh(told: NDArray[np.uint8], numbers: Rows) -> Rows:
    """Return the places of the numbers that were not told, the first place of each, in order."""
    _, firsts = np.unique(numbers, return_index=True)
    firsts.sort()
    places: Rows = firsts[~was_told(told, numbers[firsts])]
    return places


def _mark(told: NDArray[np.uint8], numbers: Rows) -> NDArray[np.uint8]:
    size = max(len(told), int(numbers.max()) // 8 + 1)
    marked = np.zeros(size, dtype=np.uint8)
    marked[: len(told)] = told
    np.bitwise_or.at(marked, numbers // 8, np.uint8(1) << (numbers % 8).astype(np.uint8))
    return marked


def _take(state: SlateState, slates: Rows, totals: Vector) -> SlateState:
    """Return the state with results counted and added to the sums: a rank-one update each."""
    state = replace(state, observed=state.observed + len(totals), outside=_outside(state, slates, totals))
    if state.done:
        return state
    shown = np.zeros((len(slates), state.settings.n))
    np.put_along_axis(shown, slates, 1.0, axis=1)
    A = state.A + shown.T @ shown  # whole numbers, so exact in any order
    b = state.b.copy()
    np.add.at(b, slates.ravel(), np.repeat(totals, state.settings.k))
    squares = float(np.cumsum(np.append(state.squares, totals**2))[-1])
    return replace(state, A=A, b=b, squares=squares)


def _outside(state: SlateState, slates: Rows, totals: Vector) -> int:
    """Return how many totals so far were farther from their estimate than noise and estimate can be off."""
    if state.report is None or state.report.tolerance is None:
        return state.outside
    residuals = totals - state.report.theta[slates].sum(axis=1)
    return state.outside + int((np.abs(residuals) > state.report.tolerance).sum())


def _look(state: SlateState) -> SlateState:
    """Return the state after the look that is due: stopped if no slate can be better by more than epsilon."""
    settings = state.settings
    look = Look(settings.noise_std, settings.delta, settings.bound, state.observed, state.looks + 1)
    moved = replace(state, looks=state.looks + 1, next_look=next_look(state.next_look))
    fitted = fit(state.A, state.b, settings.slates)
    if fitted is None:
        return moved
    if settings.method == "sa_foa" and settings.bound == "paper":
        excess = sa_foa.heuristic(fitted, look, support_of(state))
    else:
        excess = _TESTS[settings.method](fitted, look)
    report = _report(state, fitted, look, excess)
    surely = settings.reach is not None and report.spread > settings.reach**2  # some total must be outside
    outside = max(state.outside, int(surely))
    return replace(moved, report=report, outside=outside, stopped=excess.value <= settings.epsilon)


def _report(state: SlateState, found: Fit, look: Look, excess: Excess) -> SlateReport:
    settings = state.settings
    C = slate_interval(look, settings.n, settings.k)
    residual = max(state.squares - float(state.b @ found.theta), 0.0) / state.observed
    return SlateReport(
        observed=state.observed,
        best=found.best,
        theta=found.theta,
        lower=found.value - C * found.norm,
        upper=found.value + C * found.norm,
        excess=excess.value,
        more_pulls=excess.more_pulls(state.observed, settings.epsilon),
        spread=residual,
        tolerance=_tolerance(settings, found, C),
    )


def _tolerance(settings: SlateSettings, found: Fit, C: float) -> float | None:
    """Return how far a total can be from its estimate: its noise, and the error of any slate's estimate."""
    if settings.reach is None:
        return None
    return settings.reach + C * float(np.sqrt(settings.k * top_of_spectrum(found.W)))


def support_of(state: SlateState, most_numbers: int = _SUPPORT_ENTRIES) -> Rows:
    """Return the slates M_i of Algorithm 3: those of the design, or the first 3 n, fewer for many arms.

    Each takes n^2 numbers at a look, of which there are at most ``most_numbers``.
    """
    if len(state.design.counts):
        return state.design.support
    n = state.settings.n
    count = max(min(_SUPPORT * n, most_numbers // n**2), 1)
    return slates_of(state, np.arange(n, n + count))
