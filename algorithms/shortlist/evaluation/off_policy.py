"""Off-policy evaluation of a log that is read in pieces, by one or more estimators.

    state = start(["ips", "dr"], places=1)
    for piece in log:
        state = add(state, piece)
    estimates = state.estimates("ips", level=0.95)

A state takes O(k^2) memory for k places, however many decisions it has seen. States of parts of a log can be
``joined``. A new estimator is one file and one row of ``ESTIMATORS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter, InvalidShape
from shortlist.evaluation import dr, ips, moments, ranges, snips, support
from shortlist.evaluation.estimates import Estimates, nothing, of_means, reach, widened_by, within
from shortlist.evaluation.logged import MAX_PLACES, Logged
from shortlist.evaluation.moments import Moments
from shortlist.evaluation.ranges import Ranges
from shortlist.evaluation.support import Support
from shortlist.types import Matrix, Vector


class _FromMoments(Protocol):
    def __call__(self, moments: Moments, ranges: Ranges, *, level: float) -> Estimates: ...


@dataclass(frozen=True, slots=True)
class Estimator:
    """A row of ``ESTIMATORS``.

    ``summands``      numbers whose moments it needs, (m, columns for each place * k)
    ``estimate``      the value of the target, from these moments and ``Ranges``
    ``unseen``        bounds of the value lacking for a decision never made, from ``Ranges`` and the values of
                      the places, (k,) each
    ``carries``       for each of them: whether a place beyond the list repeats the place before
    ``needs_model``   whether decisions must come with predictions
    """

    summands: Callable[[Logged], Matrix]
    estimate: _FromMoments
    unseen: Callable[[Ranges, Vector], tuple[Vector, Vector]]
    carries: tuple[bool, ...] = (False,)
    needs_model: bool = False

    @property
    def columns(self) -> int:
        """The number of numbers kept of a decision."""
        return len(self.carries)


ESTIMATORS: Mapping[str, Estimator] = {
    "ips": Estimator(ips.summands, ips.estimate, ips.unseen),
    "snips": Estimator(snips.summands, snips.estimate, snips.unseen, carries=(False, True)),
    "dr": Estimator(dr.summands, dr.estimate, dr.unseen, needs_model=True),
}


@dataclass(frozen=True, slots=True, eq=False)
class OffPolicyState:
    """The sums of a log so far. ``earned``: moments of the rewards as logged, (k,)."""

    places: int
    moments: Mapping[str, Moments]
    support: Support
    earned: Moments
    ranges: Ranges

    def estimates(self, name: str, *, unshown: float = 0.0, level: float = 0.95) -> Estimates:
        """The value of the target by one of the estimators.

        ``unshown``: a share of the target's choices known to be missing in the log, such as of later arms.
        Weights show a share only beyond chance.

        Raises: InvalidParameter (level, unshown not in [0, 1]).
        """
        checks.in_range("unshown", unshown, least=0.0, most=1.0)
        if not self.support.decisions:
            return nothing(self.places)
        estimator = ESTIMATORS[name]
        estimated = estimator.estimate(self.moments[name], self.ranges, level=level)
        missing = np.where(self.reached(level=level) < 1.0, self.support.missing_share, 0.0)
        missing = np.maximum(missing, unshown)
        if missing.any():
            values = np.array([place_estimate.value or 0.0 for place_estimate in estimated.places])
            low, high = estimator.unseen(self.ranges, values)
            estimated = widened_by(estimated, missing * np.minimum(low, 0.0), missing * np.maximum(high, 0.0))
        return self._within_bounds(estimated)

    def lacking(self, share: float) -> NDArray[np.bool_]:
        """Places at which more than this share of what the target does was never done, as no chance explains.

        The mean weight estimates the share that could have been done: its upper limit says so. Shape: (k,).
        """
        return np.asarray(self.reached() < 1.0 - share)

    def reached(self, *, level: float = 0.95) -> Vector:
        """Upper limits of the mean weights: below 1 where the target does what was never done, not by chance.

        Shape: (k,). Raises: InvalidParameter (level).
        """
        if not self.support.decisions:
            return np.ones(self.places)
        weights = self.support.moments
        spreads = np.sqrt(np.diag(weights.scatter) + weights.squares * (weights.centre - weights.mean) ** 2)
        steps = weights.largest * (self.ranges.largest - weights.mean)
        return weights.mean + [
            reach(spread, step, level=level) / weights.total
            for spread, step in zip(spreads.tolist(), steps.tolist(), strict=True)
        ]

    def logged(self, *, level: float = 0.95) -> Estimates:
        """The value of what was logged. Raises: InvalidParameter (level)."""
        if not self.support.decisions:
            return nothing(self.places)
        return self._within_bounds(of_means(self.earned, self.ranges.rewards, level=level))

    def _within_bounds(self, found: Estimates) -> Estimates:
        """With intervals within what rewards can be, where that is known."""
        return found if self.ranges.bounds is None else within(found, *self.ranges.rewards)


def start(
    estimators: Sequence[str], *, places: int, rewards: tuple[float, float] | None = None
) -> OffPolicyState:
    """The state before the first decision. ``places``: length of the longest list.

    ``rewards``: smallest and largest reward that an arm can have; None: intervals go by those that were seen.

    Raises: InvalidParameter (an unknown estimator, places not in 1..``MAX_PLACES``).
    """
    checks.in_range("places", places, least=1, most=MAX_PLACES)
    unknown = [name for name in estimators if name not in ESTIMATORS]
    if unknown:
        raise InvalidParameter(f"estimators must be among {', '.join(ESTIMATORS)}", argument="estimators")
    empty = {name: moments.nothing(ESTIMATORS[name].columns * places) for name in estimators}
    return OffPolicyState(
        places, empty, support.nothing(places), moments.nothing(places), ranges.start(places, rewards)
    )


def add(state: OffPolicyState, logged: Logged) -> OffPolicyState:
    """The state after some more decisions. Cost: O(m k^2).

    Raises: InvalidShape (another number of places), InvalidParameter (no predictions for ``dr``).
    """
    if logged.places != state.places:
        raise InvalidShape(f"propensities must have {state.places} columns", argument="propensities")
    s = logged.stands_for
    pieces = {name: moments.of(ESTIMATORS[name].summands(logged), s) for name in state.moments}
    parts = support.of(logged), moments.of(logged.rewards, s), ranges.of(logged)
    return joined(state, OffPolicyState(state.places, pieces, *parts))


def widened(state: OffPolicyState, places: int) -> OffPolicyState:
    """The state, as of lists of more places, of which the last were always missing. Cost: O(places^3).

    Raises: InvalidParameter (fewer places than it has, or more than ``MAX_PLACES``).
    """
    checks.in_range("places", places, least=state.places, most=MAX_PLACES)
    if places == state.places:
        return state
    wider = {
        name: moments.mapped(name_moments, _wider(state.places, places, ESTIMATORS[name].carries))
        for name, name_moments in state.moments.items()
    }
    earned = moments.mapped(state.earned, _wider(state.places, places, (False,)))
    parts = support.widened(state.support, places), earned, ranges.widened(state.ranges, places)
    return OffPolicyState(places, wider, *parts)


def _wider(before: int, after: int, carries: Sequence[bool]) -> Matrix:
    """The map of the columns of lists to those of longer ones. Shape: (c after, c before)."""
    matrix = np.zeros((len(carries) * after, len(carries) * before))
    for block, is_carried in enumerate(carries):
        rows, columns = block * after, block * before
        matrix[rows : rows + before, columns : columns + before] = np.eye(before)
        if is_carried:
            matrix[rows + before : rows + after, columns + before - 1] = 1.0
    return matrix


def joined(one: OffPolicyState, other: OffPolicyState) -> OffPolicyState:
    """The state of the decisions of both, which have the same places and estimators."""
    both = {
        name: moments.joined(name_moments, other.moments[name]) for name, name_moments in one.moments.items()
    }
    earned = moments.joined(one.earned, other.earned)
    bounds = ranges.joined(one.ranges, other.ranges)
    return OffPolicyState(one.places, both, support.joined(one.support, other.support), earned, bounds)
