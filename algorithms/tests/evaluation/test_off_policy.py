"""Estimators of another policy's value: against other code, plain loops, and simulated logs."""

from __future__ import annotations

import numpy as np
import pytest
from estimators.bandits import gaussian as vw_normal
from estimators.bandits import ips as vw_ips
from estimators.bandits import snips as vw_snips
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shortlist.errors import InvalidArgument, InvalidParameter, InvalidShape, NonFinite
from shortlist.evaluation import estimates, off_policy
from shortlist.evaluation.logged import MAX_PLACES, Logged
from shortlist.evaluation.off_policy import ESTIMATORS, OffPolicyState

ALL = tuple(ESTIMATORS)


def some(decisions: int, places: int, seed: int = 0) -> Logged:
    rng = np.random.default_rng(seed)
    shape = (decisions, places)
    targets = np.where(rng.random(shape) < 0.2, 0.0, rng.random(shape))
    return Logged(
        rng.uniform(0.05, 1.0, shape),
        targets,
        rng.normal(size=shape),
        rng.normal(size=shape),
        rng.random(shape),
    )


def part(logged: Logged, rows: slice) -> Logged:
    assert logged.predicted is not None
    assert logged.expected is not None
    return Logged(
        logged.propensities[rows],
        logged.targets[rows],
        logged.rewards[rows],
        logged.predicted[rows],
        logged.expected[rows],
    )


def read(logged: Logged, estimators: tuple[str, ...] = ALL) -> OffPolicyState:
    return off_policy.add(off_policy.start(estimators, places=logged.places), logged)


@pytest.mark.rest
def test_ips_and_snips_are_those_of_vw_estimators():
    for seed in range(5):
        logged = some(3_000, 1, seed)
        theirs = vw_ips.Estimator(), vw_snips.Estimator(), vw_normal.Interval()
        rows = np.column_stack((logged.propensities, logged.rewards, logged.targets))
        for p, r, t in rows.tolist():
            for estimator in theirs:
                estimator.add_example(p, r, t)
        state = read(logged)
        for name, estimator in zip(("ips", "snips"), theirs, strict=False):
            assert state.estimates(name).whole.value == pytest.approx(estimator.get(), rel=1e-9, abs=1e-9)
        low, high = theirs[2].get(0.05)
        mine = state.estimates("ips").whole.interval
        assert mine[0] < low < high < mine[1]  # it has room for one more of the largest
        assert mine[1] - mine[0] < 2.0 * (high - low)


def limits(value: float, column: np.ndarray, least: float, most: float) -> tuple[float, float]:
    """By exact limits of a Poisson count, as they are printed: quantiles of chi-squared."""
    found = []
    for step, sign in ((value - least, -1.0), (most - value, 1.0)):
        count = column.var(ddof=1) * len(column) / step**2
        found.append(value + sign * step * (stats.chi2.ppf(0.975, 2 * (count + 1)) / 2 - count) / len(column))
    return found[0], found[1]


def walked(logged: Logged) -> dict[str, np.ndarray]:
    """Place by place: what each estimator adds up, and the weights (decisions, places)."""
    shape = logged.rewards.shape
    found = {name: np.zeros(shape) for name in ("ips", "dr", "weights")}
    for i in range(shape[0]):
        weight = 1.0
        for j in range(shape[1]):
            before = weight
            weight *= logged.targets[i, j] / logged.propensities[i, j]
            residual = logged.rewards[i, j] - logged.predicted[i, j]
            found["ips"][i, j] = weight * logged.rewards[i, j]
            found["dr"][i, j] = before * logged.expected[i, j] + weight * residual
            found["weights"][i, j] = weight
    return found


@pytest.mark.parametrize("places", [1, 3])
def test_every_value_is_that_of_a_plain_loop(places: int):
    logged = some(400, places, 7)
    expected, state = walked(logged), read(logged)
    weights = expected["weights"]
    support = state.support
    assert support.effective_sample_size == pytest.approx(weights.sum(axis=0) ** 2 / (weights**2).sum(axis=0))

    # What one more decision could add at most: the largest weight so far, with the largest reward or error.
    top, low, high = weights.max(axis=0), logged.rewards.min(axis=0), logged.rewards.max(axis=0)
    before = np.concatenate(([1.0], top[:-1]))
    worse, better = low - logged.predicted.max(axis=0), high - logged.predicted.min(axis=0)
    least_expected = before * logged.expected.min(axis=0) * (np.arange(places) == 0)
    bounds = {
        "ips": (top * low, top * high),
        "dr": (least_expected + top * worse, before * logged.expected.max(axis=0) + top * better),
    }
    for name, (least, most) in bounds.items():
        estimates, rows = state.estimates(name), expected[name]
        for estimate, column, down, up in [
            (estimates.whole, rows.sum(axis=1), least.sum(), most.sum()),
            *zip(estimates.places, rows.T, least, most, strict=True),
        ]:
            assert estimate.value == pytest.approx(column.mean(), rel=1e-9)
            assert estimate.interval == pytest.approx(limits(column.mean(), column, down, up), rel=1e-9)

    # SNIPS: ratios of means, with the intervals of what they leave.
    mean, estimates = weights.mean(axis=0), state.estimates("snips")
    ratios = expected["ips"].mean(axis=0) / mean
    residuals = ratios + (expected["ips"] - ratios * weights) / mean
    least, most = ratios + top / mean * (low - ratios), ratios + top / mean * (high - ratios)
    assert [place.value for place in estimates.places] == pytest.approx(ratios, rel=1e-9)
    assert estimates.whole.value == pytest.approx(ratios.sum(), rel=1e-9)
    for estimate, column, down, up in [
        (estimates.whole, residuals.sum(axis=1), least.sum(), most.sum()),
        *zip(estimates.places, residuals.T, least, most, strict=True),
    ]:
        assert estimate.interval == pytest.approx(limits(estimate.value, column, down, up), rel=1e-6)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(1, 3))
def test_a_log_in_pieces_is_the_log(sizes: list[int], places: int):
    logged = some(sum(sizes), places, sum(sizes))
    state = off_policy.start(ALL, places=places)
    start = 0
    halves = [state, state]
    for number, size in enumerate(sizes):
        piece = part(logged, slice(start, start + size))
        state = off_policy.add(state, piece)
        halves[number % 2] = off_policy.add(halves[number % 2], piece)
        start += size
    for found in (state, off_policy.joined(*halves)):
        for name in ALL:
            at_once = read(logged).moments[name]
            assert found.moments[name].count == at_once.count
            np.testing.assert_allclose(found.moments[name].mean, at_once.mean, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found.moments[name].scatter, at_once.scatter, rtol=1e-6, atol=1e-9)


@pytest.mark.rest
def test_nothing_or_little_has_no_value_or_no_interval():
    empty = off_policy.start(ALL, places=2)
    for nothing in (empty.support.unused_share, empty.support.missing_share):
        assert nothing.tolist() == [0.0, 0.0]
    one = read(part(some(9, 2), slice(0, 1)))
    assert one.support.unused_share.tolist() == (one.support.weights == 0.0).tolist()
    for name in ALL:
        assert empty.estimates(name).whole.value is None
        assert [place.interval for place in empty.estimates(name).places] == [None, None]
        assert one.estimates(name).whole.interval is None
    never = Logged(*(np.full((5, 1), value) for value in (0.5, 0.0, 1.0)))
    state = read(never, ("ips", "snips"))
    assert state.estimates("ips").whole.value == 0.0
    assert state.estimates("snips").whole.value is None
    assert state.support.unused_share.tolist() == state.support.missing_share.tolist() == [1.0]
    assert state.support.effective_sample_size.tolist() == [0.0]


def column(value: float) -> np.ndarray:
    return np.full((3, 1), value)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        ({"propensities": column(0.0)}, InvalidParameter, "propensities"),
        ({"propensities": column(1.1)}, InvalidParameter, "propensities"),
        ({"propensities": column(np.nan)}, NonFinite, "propensities"),
        ({"propensities": np.ones(3)}, InvalidShape, "propensities"),
        ({"propensities": np.ones((3, MAX_PLACES + 1))}, InvalidShape, "propensities"),
        ({"propensities": np.ones((3, 0))}, InvalidShape, "propensities"),
        ({"propensities": column(1e-200)}, InvalidParameter, "targets"),
        ({"propensities": column(5e-324)}, InvalidParameter, "targets"),
        ({"targets": column(-0.1)}, InvalidParameter, "targets"),
        ({"targets": np.ones((2, 1))}, InvalidShape, "targets"),
        ({"rewards": column(np.inf)}, NonFinite, "rewards"),
        ({"predicted": column(1.0)}, InvalidParameter, "expected"),
        ({"stands_for": np.ones(2)}, InvalidShape, "stands_for"),
        ({"stands_for": np.zeros(3)}, InvalidParameter, "stands_for"),
        ({"predicted": column(1.0), "expected": column(np.nan)}, NonFinite, "expected"),
    ],
)
def test_bad_decisions_are_named(change, error, name):
    given_ = {"propensities": column(0.5), "targets": column(0.5), "rewards": column(1.0), **change}
    with pytest.raises(error) as raised:
        Logged(**given_)
    assert raised.value.argument == name


@pytest.mark.rest
def test_an_estimator_says_whether_it_needs_a_model_and_how_many_columns_it_sums():
    bare = Logged(column(0.5), column(0.5), column(1.0))
    for name, estimator in ESTIMATORS.items():
        assert estimator.summands(some(9, 3)).shape == (9, 3 * estimator.columns), name
        if estimator.needs_model:
            with pytest.raises(InvalidParameter, match="predicted"):
                estimator.summands(bare)
        else:
            assert estimator.summands(bare).shape == (3, estimator.columns), name


@pytest.mark.rest
def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(InvalidParameter, match="ips, snips, dr"):
        off_policy.start(["ips", "magic"], places=1)
    for places in (0, MAX_PLACES + 1):
        with pytest.raises(InvalidParameter, match="places"):
            off_policy.start(ALL, places=places)
    bare = Logged(column(0.5), column(0.5), column(1.0))
    with pytest.raises(InvalidParameter, match="predicted"):
        read(bare)
    with pytest.raises(InvalidShape):
        off_policy.add(off_policy.start(["ips"], places=2), bare)
    for level in (0.0, 1.0):
        with pytest.raises(InvalidArgument):
            read(bare, ("ips",)).estimates("ips", level=level)


def thinned(decisions: int, rng: np.random.Generator, *, kept: float = 0.1) -> Logged:
    """A log that has each decision with a reward, and of the others this share."""
    rewards = (rng.random((decisions, 1)) < 0.3).astype(float)
    targets = rng.choice([0.25, 0.75], (decisions, 1))
    is_kept = (rewards[:, 0] > 0.0) | (rng.random(decisions) < kept)
    stands_for = np.where(rewards[:, 0] > 0.0, 1.0, 1.0 / kept)[is_kept]
    ones = np.ones((is_kept.sum(), 1))
    values = (0.5 * ones, targets[is_kept], rewards[is_kept], 0.2 * ones, 0.3 * ones)
    return Logged(*values, stands_for=stands_for)


def test_a_decision_that_stands_for_others_counts_as_often() -> None:
    """Values are those of decisions that are repeated, also where the log is read in pieces."""
    log = thinned(2_000, np.random.default_rng(4))
    assert log.stands_for is not None
    times = log.stands_for.round().astype(int)
    columns = (log.propensities, log.targets, log.rewards, log.predicted, log.expected)
    repeated = read(Logged(*(np.repeat(column, times, axis=0) for column in columns)))
    pieces = off_policy.start(ALL, places=1)
    for rows in (slice(0, 300), slice(300, 301), slice(301, None)):
        piece = Logged(*(column[rows] for column in columns), stands_for=log.stands_for[rows])
        pieces = off_policy.add(pieces, piece)
    for state in (read(log), pieces):
        assert state.support.decisions == log.decisions
        for found, expected in (
            *((state.estimates(name), repeated.estimates(name)) for name in ALL),
            (state.logged(), repeated.logged()),
        ):
            assert found.whole.value == pytest.approx(expected.whole.value, rel=1e-12)
        for name in ("missing_share", "unused_share"):
            expected_share = getattr(repeated.support, name)
            assert getattr(state.support, name) == pytest.approx(expected_share, abs=1e-12)
        weights = log.stands_for * log.weights[:, 0]
        size = weights.sum() ** 2 / (weights**2).sum()
        assert state.support.effective_sample_size == pytest.approx([size])
        mean = float(np.average(log.rewards[:, 0], weights=log.stands_for))
        residuals = log.stands_for * (log.rewards[:, 0] - mean)
        n = log.decisions
        spread = (residuals**2).sum() / log.stands_for.sum() ** 2 * n / (n - 1)
        assert state.earned.variance_of_mean(np.ones(1)) == pytest.approx(spread)


def test_intervals_of_a_thinned_log_hold_the_value_as_often_as_they_say() -> None:
    """300 logs at level .95: fewer than 265 of them has probability 1e-6.

    The broken variant takes each decision for as many of its own as it stands for.
    """
    rng = np.random.default_rng(8)
    held, broken = 0, 0
    for _ in range(300):
        log = thinned(600, rng)
        assert log.stands_for is not None
        times = log.stands_for.round().astype(int)
        columns = (log.propensities, log.targets, log.rewards)
        alone = Logged(*(np.repeat(column, times, axis=0) for column in columns))
        for is_broken, each in ((False, log), (True, alone)):
            interval = read(each, ("ips", "snips")).logged().whole.interval
            assert interval is not None
            holds = interval[0] <= 0.3 <= interval[1]
            held, broken = held + (holds and not is_broken), broken + (holds and is_broken)
    assert held >= 265
    assert broken < 265


def counted(count: int, decisions: int = 10_000) -> tuple[float, float]:
    """The interval of the number of clicks among many decisions, of which as many brought one."""
    rewards = (np.arange(decisions) < count).astype(float)[:, None]
    ones = np.ones((decisions, 1))
    start = off_policy.start(["ips"], places=1, rewards=(0.0, 1.0))
    low, high = off_policy.add(start, Logged(ones, ones, rewards)).estimates("ips").whole.interval
    return low * decisions, high * decisions


@pytest.mark.rest
def test_few_rewards_have_the_limits_of_a_count():
    """Garwood's table for 95 %: 0 has 3.69, 10 has 18.39; many are as good as normal."""
    assert counted(0) == pytest.approx((0.0, 3.689), abs=2e-3)
    assert counted(10)[1] == pytest.approx(18.39, abs=0.02)
    assert counted(3_000)[1] - 3_000 == pytest.approx(1.96 * (3_000 * 0.7) ** 0.5, rel=0.04)
    for spread in (999.9, 1_000.1):  # on both sides of MANY
        assert estimates.reach(spread, 1.0, level=0.95) == pytest.approx(1.959964 * spread + 1.9471, rel=1e-6)


def test_intervals_reach_as_far_as_what_was_never_done_could_go():
    """Every decision has weight 9 / 10, so a tenth is missing: it may earn 0 to 5."""
    rewards = np.tile([[1.0], [2.0]], (50, 1))
    columns = np.full((100, 1), 0.5), np.full((100, 1), 0.45), rewards, np.full((100, 1), 1.5)
    logged = Logged(*columns, columns[3])
    state = off_policy.add(off_policy.start(ALL, places=1, rewards=(0.0, 5.0)), logged)
    assert state.reached() == pytest.approx([0.9])
    for name, more in (("ips", (0.0, 5.0)), ("snips", (-1.5, 3.5)), ("dr", (-1.5, 3.5))):
        plain = ESTIMATORS[name].estimate(state.moments[name], state.ranges, level=0.95)
        wider = state.estimates(name)
        for one, other in ((plain.whole, wider.whole), (plain.places[0], wider.places[0])):
            assert other.value == one.value
            assert np.subtract(other.interval, one.interval) == pytest.approx(np.multiply(0.1, more))


@pytest.mark.rest
def test_rewards_that_are_all_alike_have_no_interval_unless_their_bounds_are_known():
    alike = Logged(column(0.5), column(0.5), column(2.0))
    for name in ("snips",):
        assert read(alike, (name,)).estimates(name).whole.interval is None
        known = off_policy.add(off_policy.start([name], places=1, rewards=(0.0, 5.0)), alike)
        low, high = known.estimates(name).whole.interval
        assert low < 2.0 < high


@pytest.mark.rest
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-0.5, 2.0)])
def test_no_interval_leaves_what_rewards_can_be(bounds: tuple[float, float]):
    """Few decisions with heavy weights, and a model that is far off."""
    rng = np.random.default_rng(3)
    shape = (12, 2)
    rewards = rng.integers(0, 2, shape).astype(float)
    wild = 3.0 * rng.normal(size=shape)
    logged = Logged(np.full(shape, 0.1), rng.random(shape), rewards, wild, -wild, wild - 9.0, wild + 9.0)
    plain = off_policy.add(off_policy.start(ALL, places=2), logged)
    state = off_policy.add(off_policy.start(ALL, places=2, rewards=bounds), logged)
    low, high = bounds
    for name in ALL:
        within = [(estimate, 1.0) for estimate in state.estimates(name).places]
        for estimate, arms in [(state.estimates(name).whole, 2.0), *within]:
            assert estimate.interval is not None
            assert arms * low <= estimate.interval[0] <= estimate.interval[1] <= arms * high
        assert state.estimates(name).whole.value == plain.estimates(name).whole.value
    wide = plain.estimates("dr").whole.interval
    assert wide is not None
    assert wide[0] < 2.0 * low
    assert wide[1] > 2.0 * high
    for estimate, arms in ((state.logged().whole, 2.0), (state.logged().places[1], 1.0)):
        assert estimate.interval is not None
        assert arms * low <= estimate.interval[0] <= estimate.interval[1] <= arms * high


@pytest.mark.parametrize("bounds", [None, (1.0, 2.0)])
def test_a_log_of_lists_is_that_of_longer_ones_whose_last_places_are_missing(
    bounds: tuple[float, float] | None,
):
    short = some(60, 2)
    columns = [short.propensities, short.targets, 1.0 + np.abs(short.rewards).clip(max=1.0)]
    columns += [each for each in (short.predicted, short.expected) if each is not None]
    missing = [np.full((60, 2), value) for value in (1.0, 1.0, 0.0, 0.0, 0.0)]
    long = Logged(*map(np.hstack, zip(columns, missing, strict=True)))
    whole = off_policy.add(off_policy.start(ALL, places=4, rewards=bounds), long)
    start = off_policy.add(off_policy.start(ALL, places=2, rewards=bounds), Logged(*columns))
    wider = off_policy.widened(start, 4)
    for name in ALL:
        found, wanted = wider.estimates(name), whole.estimates(name)
        for one, other in zip((found.whole, *found.places), (wanted.whole, *wanted.places), strict=True):
            assert one.value == pytest.approx(other.value)
            assert one.interval == pytest.approx(other.interval)


@pytest.mark.parametrize("places", [1, 2])
def test_what_is_known_to_be_missing_widens_intervals_whatever_weights_say(places: int):
    shape = (100, places)
    rewards = np.tile([[0.0], [1.0]], (50, places))
    model = [np.full(shape, 0.5)] * 2
    columns = np.full(shape, 0.5), np.full(shape, 0.5), rewards, *model
    state = off_policy.add(off_policy.start(ALL, places=places, rewards=(0.0, 1.0)), Logged(*columns))
    for name, more in (("ips", (0.0, 1.0)), ("snips", (-0.5, 0.5)), ("dr", (-0.5, 0.5))):
        plain, wider = state.estimates(name).whole, state.estimates(name, unshown=0.04).whole
        assert np.subtract(wider.interval, plain.interval) == pytest.approx(np.multiply(places * 0.04, more))
        assert wider.value == plain.value
    for wrong in (-0.1, 1.1):
        with pytest.raises(InvalidParameter, match="unshown"):
            state.estimates("ips", unshown=wrong)


def test_predictions_count_for_arms_that_were_not_shown():
    shape = (100, 1)
    columns = np.full(shape, 0.5), np.full(shape, 0.4), np.tile([[0.0], [1.0]], (50, 1))
    same = np.full(shape, 0.5)
    shown = Logged(*columns, same, same)
    every = Logged(*columns, same, same, np.zeros(shape), np.ones(shape))
    (low, high), (least, most) = (
        off_policy.add(off_policy.start(["dr"], places=1), each).estimates("dr").whole.interval or (0, 0)
        for each in (shown, every)
    )
    assert least < low < high < most
    with pytest.raises(InvalidParameter, match="least"):
        Logged(*columns, same, same, same)
