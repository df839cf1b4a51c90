"""Groups whose share changed: what each stage counts, and joined groups computed again key by key."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation import clustered_t_sequence as clustered
from shortlist.evaluation import stages
from shortlist.evaluation.asymptotic_confidence_sequence import Unbounded
from shortlist.evaluation.clustered_t_sequence import KeyTable, Summary
from shortlist.evaluation.two_groups import KeyIntervals, ValueSequence, intervals, joined_intervals

pytestmark = pytest.mark.rest

SHARES = (0.5, 0.2, 0.05)


def test_a_stage_counts_by_the_harmonic_mean_of_its_groups():
    counts = np.array([[100.0, 100.0], [900.0, 100.0], [500.0, 0.0], [40.0, 60.0]])
    found = stages.weights(counts, np.array([True, True, False, True]))
    expected = np.array([50.0, 90.0, 0.0, 24.0])
    np.testing.assert_allclose(found, expected / expected.sum())


def test_a_stage_that_is_too_small_waits_until_it_counts():
    counts = np.array([[100.0, 100.0], [900.0, 20.0]])
    np.testing.assert_array_equal(stages.weights(counts, np.array([True, False])), [1.0, 0.0])
    np.testing.assert_array_equal(stages.weights(counts, np.array([False, False])), [1.0, 0.0])
    one_sided = np.array([[0.0, 70.0], [90.0, 0.0]])
    np.testing.assert_array_equal(stages.weights(one_sided, np.array([False, False])), [0.0, 1.0])
    assert len(stages.weights(np.empty((0, 2)), np.empty(0, dtype=bool))) == 0


def values_of(rng: np.random.Generator, count: int, mean: float) -> Unbounded:
    return asymptotic.add(Unbounded(), rng.gamma(2.0, mean / 2.0, count))


def test_joined_values_have_the_mean_and_the_variance_of_the_weighted_mean():
    rng = np.random.default_rng(1)
    groups = [values_of(rng, count, mean) for count, mean in ((400, 1.0), (900, 3.0), (150, 0.5))]
    weights = np.array([0.2, 0.5, 0.3])
    found = asymptotic.joined(groups, weights)
    mean = sum(weight * (group.mean or 0.0) for group, weight in zip(groups, weights, strict=True))
    variance = sum(
        weight**2 * group.scatter / (group.count * (group.count - 1))
        for group, weight in zip(groups, weights, strict=True)
    )
    assert found.mean == pytest.approx(mean)
    assert found.variance_of_mean == pytest.approx(variance, rel=0.01)
    assert found.count == 1_450
    assert asymptotic.joined(groups, np.array([0.0, 1.0, 0.0])) == groups[1]


def test_one_reward_that_moves_the_joined_mean_much_leaves_no_interval():
    """A stage of few rewards and much weight: the largest of all is not large in its own stage alone."""
    flat = asymptotic.add(Unbounded(), np.random.default_rng(2).uniform(0.0, 1.0, 10_000))
    rare = asymptotic.add(Unbounded(), np.array([1.0] * 3 + [0.0] * 197))
    assert asymptotic.joined([flat, rare], np.array([0.5, 0.5])).missing == "uneven"
    assert asymptotic.joined([flat, rare], np.array([0.999, 0.001])).missing is None


def by_hand(
    stage_values: list[dict[int, list[float]]], weights: np.ndarray
) -> tuple[float, dict[int, float]]:
    """The mean of a group, and what each key adds to its error."""
    mean, errors = 0.0, dict[int, float]()
    for values, weight in zip(stage_values, weights.tolist(), strict=True):
        every = [value for own in values.values() for value in own]
        if not weight:
            continue
        own_mean = float(np.mean(every))
        mean += weight * own_mean
        for key, own in values.items():
            apart = sum(value - own_mean for value in own) / len(every)
            errors[key] = errors.get(key, 0.0) + weight * apart
    return mean, errors


def drawn(rng: np.random.Generator) -> list[list[dict[int, list[float]]]]:
    """By stage and group, what the decisions of each key earned: keys of the holdout leave it by and by."""
    places = rng.random(300)
    found: list[list[dict[int, list[float]]]] = []
    for share in SHARES:
        groups: list[dict[int, list[float]]] = [{}, {}]
        for key in rng.integers(0, 300, 1_500).tolist():
            own = groups[int(places[key] < share)].setdefault(key, [])
            own.append(float(rng.random() < 0.1 + 0.5 * (key % 7) / 7))
        found.append(groups)
    return found


def table(values: dict[int, list[float]]) -> KeyTable:
    keys = np.array(sorted(values), dtype=np.int64)
    counts = np.array([float(len(values[key])) for key in keys.tolist()])
    return KeyTable(keys, counts, np.array([sum(values[key]) for key in keys.tolist()]))


def test_joined_keys_count_once_however_many_stages_they_are_in():
    found = drawn(np.random.default_rng(3))
    for weights in (np.array([0.5, 0.3, 0.2]), np.array([0.0, 0.6, 0.4]), np.array([0.0, 0.0, 1.0])):
        joined = [clustered.joined([table(stage[group]) for stage in found], weights) for group in (0, 1)]
        errors = list[dict[int, float]]()
        for group, own in enumerate(joined):
            mean, expected = by_hand([stage[group] for stage in found], weights)
            squares = np.square(list(expected.values()))
            keys = len(expected)
            assert own.summary == Summary(
                keys,
                pytest.approx(mean),
                pytest.approx(keys / (keys - 1) * squares.sum()),
                pytest.approx(squares.max() / squares.sum()),
            )
            np.testing.assert_array_equal(own.keys, sorted(expected))
            errors.append(expected)
        shared = sum(errors[0][key] * errors[1][key] for key in errors[0].keys() & errors[1].keys())
        assert clustered.covariance(*joined) == pytest.approx(shared)
        assert (shared == 0.0) == (np.count_nonzero(weights) == 1)


def test_one_stage_is_as_it_was_without_stages():
    rng = np.random.default_rng(4)
    groups = [ValueSequence(), ValueSequence()]
    for group, value in zip(rng.integers(0, 2, 900).tolist(), rng.random(900).tolist(), strict=True):
        groups[group].add(value, (0.0, 1.0))
    for each in groups:
        each.settle()
    one, other = groups
    alone = intervals(one, other)
    assert joined_intervals([(one, other)]) == alone._replace(weights=[1.0])
    # A stage that does not count changes nothing but the number of decisions.
    few = ValueSequence()
    few.add(1.0, (0.0, 1.0))
    few.settle()
    found = joined_intervals([(one, other), (ValueSequence(), few)])
    assert found == alone._replace(decisions=901, weights=[1.0, 0.0])


def test_stages_of_keys_are_joined_at_looks():
    rng = np.random.default_rng(5)
    places, plain, staged = rng.random(400), KeyIntervals(), KeyIntervals()
    for stage, share in enumerate(SHARES):
        for key in rng.integers(0, 400, 1_400).tolist():
            group = 1 if places[key] < share else 0
            value = float(rng.random() < (0.1, 0.6, 0.3)[stage])
            staged.add(group, str(key), value, (0.0, 1.0), stage=stage)
            plain.add(group, str(key), value, (0.0, 1.0))
    found, confounded = staged.intervals(), plain.intervals()
    assert (found.decisions, confounded.decisions) == (4_096, 4_096)
    assert found.difference is not None
    assert confounded.difference is not None
    assert found.difference[0] < 0.0 < found.difference[1]
    assert confounded.difference[0] > 0.0, "the broken variant finds a difference that is not there"
    assert len(found.weights) == 3
    assert sum(found.weights) == pytest.approx(1.0)
