"""Intervals of two groups whose values come one at a time: as of all values at once, whatever the pieces."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation import confidence_sequence as bounded
from shortlist.evaluation import two_groups
from shortlist.evaluation.asymptotic_confidence_sequence import Unbounded
from shortlist.evaluation.two_groups import KeyIntervals, ValueSequence, intervals

COINS = np.random.default_rng(1).integers(0, 2, (2, 400)).astype(float)


def sequence(values: np.ndarray, bounds: tuple[float, float] | None, piece: int = 100) -> ValueSequence:
    found = ValueSequence()
    for place, value in enumerate(values.tolist(), start=1):
        found.add(value, bounds)
        if not place % piece:
            found.settle()
    found.settle()
    return found


@pytest.mark.parametrize("piece", [1, 7, 400])
def test_values_with_bounds_have_bounded_sequences(piece):
    found = intervals(*(sequence(values, (0.0, 1.0), piece) for values in COINS))
    one, other = (bounded.add(bounded.start(0.0, 1.0), values) for values in COINS)
    assert (found.kind, found.decisions, found.missing) == ("bounded", 800, (None, None))
    assert found.groups == [pytest.approx(one.interval()), pytest.approx(other.interval())]
    assert found.difference == pytest.approx(bounded.difference(one, other))


@pytest.mark.parametrize("outside", [(-1.0, (0.0, 1.0)), (0.5, None), (0.5, (1.0, 1.0))])
def test_one_value_without_bounds_makes_both_asymptotic(outside):
    groups = [sequence(values, (0.0, 1.0)) for values in COINS]
    groups[0].add(*outside)
    groups[0].settle()
    found = intervals(*groups)
    all_values = asymptotic.add(Unbounded(), np.array([*COINS[0], outside[0]]))
    assert (found.kind, found.decisions, found.missing) == ("asymptotic", 801, [None, None])
    assert found.groups[0] == pytest.approx(all_values.interval())
    assert found.difference == pytest.approx(
        asymptotic.difference(all_values, asymptotic.add(Unbounded(), COINS[1]))
    )


def test_keys_are_counted_the_same_in_any_pieces():
    rng = np.random.default_rng(2)
    values = [(int(key % 2), f"key-{key}", float(rng.random())) for key in rng.integers(0, 300, 4_096)]

    def of(least_new: int) -> two_groups.GroupIntervals:
        found = KeyIntervals(least_new=least_new)
        for each in values:
            found.add(*each)
        return found.intervals()

    one, other = of(10), of(10_000)
    assert (one.kind, one.decisions, one.missing) == ("asymptotic", 4_096, [None, None])
    assert one.groups == [pytest.approx(interval) for interval in other.groups]
    assert one.difference == pytest.approx(other.difference)


@pytest.mark.rest
def test_intervals_of_keys_lie_within_what_values_can_be():
    """Rare ones among 64 keys: without bounds an interval of 99.9 % goes below 0."""
    values = [(number % 2, f"key-{number}", float(number % 16 < 2)) for number in range(128)]
    bounded_keys, free, broken = (KeyIntervals(level=0.999) for _ in range(3))
    for each in values:
        bounded_keys.add(*each, (0.0, 1.0))
        free.add(*each)
        broken.add(*each, (0.0, 1.0) if each[2] == 0.0 else (0.0, 0.5))
    found, plain = bounded_keys.intervals(), free.intervals()
    assert min(interval[0] for interval in plain.groups if interval) < 0.0
    for interval, other in zip(found.groups, plain.groups, strict=True):
        assert interval == ((max(other[0], 0.0), other[1]) if other else None)
    assert found.difference == plain.difference
    assert broken.intervals() == plain
