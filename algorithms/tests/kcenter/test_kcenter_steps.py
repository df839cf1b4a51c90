"""Each step of the k-center algorithms against the same step written out in plain Python, number by number.

What is drawn does not matter: a step is a function of what was answered or read so far.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.errors import InvalidParameter, NonFinite
from shortlist.kcenter import ask_tell, noise, ns_tands, ns_ts, ns_ucb, stages
from shortlist.kcenter.center_set import first_best, rounding
from shortlist.kcenter.coordinates import blocked
from shortlist.kcenter.ds_ts import near_center
from shortlist.kcenter.naive_greedy import _error, naive_greedy
from shortlist.kcenter.noisy_state import NoisySettings, NoisyState
from shortlist.kcenter.race import Race

pytestmark = pytest.mark.rest

N, K = 6, 4
EPS = 2.0**-52
KINDS = {"given": {"noise_std": 0.2}, "judgements": {"noise": "bernoulli"}}


def campaign(method, kind, seed, *, centers=(2, 0), most=400, unseen=0.2, waiting=30, **options):
    """A state in the middle: some pairs without an answer, some queries open, a few of them long ago."""
    rng, p = np.random.default_rng(seed), len(centers)
    options_of_all = NoisySettings(method, N, K, 0.1, 0.02, **KINDS[kind], **options)
    counts, sums = np.zeros((K, N), dtype=np.int64), np.zeros((K, N))
    counts[:p] = rng.integers(1, most, (p, N)) * (rng.random((p, N)) >= unseen)
    counts[0, centers[0]] = counts[1:p, centers] = 0
    sums[:p] = counts[:p] * rng.random((p, N))
    others = np.delete(np.arange(N), centers)
    issued, observed = 5_000, int(counts.sum())
    # The oldest that are still waited for, and the next older: 1,000 queries, and half of the answers.
    edge = issued - 1_000 - observed // 2
    numbers = np.sort(rng.choice(np.arange(max(edge - 20, 0), issued), waiting, replace=False))
    if edge > 0:
        numbers[:2] = edge - 1, edge
    waits = np.stack((numbers, rng.choice(others, waiting), rng.integers(0, p, waiting)))
    return NoisyState(options_of_all, centers, counts, sums, waits, np.zeros((3, 0)), issued, 7, observed)


def planned_answers(state):
    """Of every pair: its answers, and those that are waited for; old queries count as lost."""
    found = {(row, v): int(state.counts[row, v]) for row in range(len(state.centers)) for v in range(N)}
    for number, point, row in state.open.T.tolist():
        if number >= state.issued - 1_000 - state.observed // 2:
            found[row, point] += 1
    return found


SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most", [3, 400])
def test_queries_that_wait_too_long_count_as_lost(seed, most):
    state = campaign("ns_ts", "given", seed, most=most)
    found = noise.expected(state)
    assert found.shape == (2, N)
    assert {place: found[place] for place in np.ndindex(2, N)} == planned_answers(state)
    assert found.sum() < state.counts.sum() + state.open.shape[1]


def ns_ts_by_hand(state, count, coins, draw):
    """Algorithm 3 with the bounds that will hold once all planned answers are in, if the means stay."""
    rows, points = range(len(state.centers)), [v for v in range(N) if v not in state.centers]
    planned = planned_answers(state)
    own = {place: state.sums[place] / state.counts[place] for place in planned if state.counts[place]}
    nearest = [min((own[row, v] for row in rows if (row, v) in own), default=0.0) for v in range(N)]
    guess = max(0.0, *nearest)  # noise may make a mean negative, but no distance is

    def mean(place):
        return own.get(place, guess if planned[place] else math.inf)

    @cache
    def bounds(place, t):
        low, high = noise.bounds(state, np.array([own.get(place, guess)]), np.array([max(t, 1)]))
        return (low[0], high[0]) if t else (-math.inf, math.inf)

    pairs = []
    while len(pairs) < count:
        side = {v: [bounds((row, v), planned[row, v]) for row in rows] for v in points}
        low, high = ({v: min(both[end] for both in side[v]) for v in points} for end in (0, 1))
        first = max(points, key=lambda v: min(mean((row, v)) for row in rows))
        second = max((v for v in points if v != first), key=high.__getitem__)
        point = max((first, second), key=lambda v: high[v] - low[v])
        least = row = min(rows, key=lambda row: side[point][row][0])
        fewest = min(rows, key=lambda row: planned[row, point])
        if not planned[fewest, point]:
            row = fewest
        elif next(coins) < state.settings.mix:
            row = int(np.argmin(draw(state, point)))
        batch = min(max(1, planned[least, point] // 10), count - len(pairs))
        pairs += [(point, row)] * batch
        planned[row, point] += batch
    return pairs


class Coins:
    """Just at z they are no draws: 0.5 and z = 1/2."""

    def __init__(self):
        self.random = itertools.cycle((0.25, 0.5, 0.75)).__next__


@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from([*KINDS]),
    answers=st.sampled_from([(4, 0.5, 0), (4, 0.5, 2), (400, 0.2, 0), (400, 0.0, 0)]),
    mix=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=60)
def test_ns_ts_asks_what_algorithm_3_asks(seed, kind, answers, mix):
    def draw(state, point, _rng=None):
        return np.cos(np.arange(len(state.centers)) + point)

    most, unseen, less = answers
    state = campaign("ns_ts", kind, seed, most=most, unseen=unseen, mix=mix)
    if kind == "given":  # judgements are at least 0
        state = replace(state, sums=state.sums - less * state.counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "draw", draw)
        points, rows = ns_ts.choose(state, 40, Coins())
    expected = ns_ts_by_hand(state, 40, iter(Coins().random, None), draw)
    assert list(zip(points.tolist(), rows.tolist(), strict=True)) == expected


def test_a_campaign_without_any_answer_asks_every_pair_once_in_order():
    state = campaign("ns_ts", "given", 0, centers=(2,), unseen=1.0, waiting=2)
    points, _ = ns_ts.choose(replace(state, open=state.open[:, :0]), 5, np.random.default_rng(0))
    assert sorted(points.tolist()) == [0, 1, 3, 4, 5]


def tands_by_hand(state, count):
    """Algorithm 4: the least asked arm below its floor, else the one that is farthest behind its share."""
    points = [v for v in range(N) if v not in state.centers]
    arms = [(row, v) for row in range(len(state.centers)) for v in points]
    everything = planned_answers(state)
    planned = {arm: everything[arm] for arm in arms}
    answered = all(state.counts[arm] for arm in arms)
    shares = {}
    if answered:
        mean = noise.means(state)[:, points]
        shares = dict(zip(arms, ns_tands.pull_proportions(mean, 0.02).ravel().tolist(), strict=True))
    pairs = []
    while len(pairs) < count:
        total = sum(planned.values())
        least = min(arms, key=planned.__getitem__)
        if not answered or planned[least] < max(1, math.sqrt(total) - len(arms) / 2):
            arm = least
        else:
            arm = max((a for a in arms if shares[a] > 0), key=lambda a: shares[a] * total - planned[a])
        batch = min(max(1, math.floor(planned[arm] / 200)), count - len(pairs))
        pairs += [(arm[1], arm[0])] * batch
        planned[arm] += batch
    return pairs


@given(seed=st.integers(0, 2**32), answers=st.sampled_from([(4, 0.5), (3, 0.0), (400, 0.0), (3_000, 0.0)]))
@settings(max_examples=30)
def test_tands_asks_what_algorithm_4_asks(seed, answers):
    most, unseen = answers
    state = campaign("ns_tands", "given", seed, most=most, unseen=unseen)
    points, rows = ns_tands.choose(state, 150, np.random.default_rng(0))
    assert list(zip(points.tolist(), rows.tolist(), strict=True)) == tands_by_hand(state, 150)


# Where a campaign begins, its limits, and its calibration


def test_what_a_setting_may_be():
    rng = np.random.default_rng(0)
    good = {"n": 5, "k": 2, "delta": 0.1, "rng": rng}
    for name, refused, taken in [
        ("delta", (0.0, 1.0, -0.5), (1e-9, 0.999)),
        ("epsilon", (-1e-9,), (0.0, 1e-9, 40.0)),
        ("noise_std", (0.0, -0.5), (1e-9, 40.0)),
        ("mix", (-1e-9, 1.0 + 1e-9), (0.0, 1.0)),
        ("first", (-1, 5), (0, 4)),
        ("k", (0, 6), (1, 5)),
    ]:
        for value in refused:
            with pytest.raises(InvalidParameter, match=name):
                ns_ts.start(**good | {name: value})
        for value in taken:
            state = ns_ts.start(**good | {name: value})
            assert (state.issued, state.asks, state.observed, len(state.centers)) == (0, 0, 0, 1)
            assert getattr(state.settings, name, value) == value
            assert name != "first" or state.centers == (value,)
    assert ns_ts.start(**good).settings == NoisySettings("ns_ts", 5, 2, 0.1, mix=0.9)
    assert ns_ucb.start(**good).settings == NoisySettings(
        "ns_ucb", 5, 2, 0.1, None, "gaussian", None, 0.0, "proven"
    )
    assert ns_tands.start(**good).settings == NoisySettings("ns_tands", 5, 2, 0.1, threshold="proven")


@pytest.mark.parametrize(("n", "answers"), [(2, 129), (3, 130), (129, 256), (130, 256), (5_000, 256)])
def test_a_variance_is_measured_by_129_to_256_answers(n, answers):
    """At least 128 degrees of freedom: of each pair all answers but one. At most 128 pairs."""
    state = ns_ts.start(n=n, k=1, delta=0.1, first=n - 1, rng=np.random.default_rng(0))
    pairs = min(n - 1, 128)
    assert state.calibration.shape == (3, pairs)
    assert pairs * noise.repeats(state) == answers
    assert noise.calibration_points(state).tolist() == list(range(pairs))
    measured = replace(state, calibration=np.full((3, pairs), noise.repeats(state)))
    assert noise.is_calibrated(measured)
    assert noise.variance(measured) == pytest.approx(
        pairs * noise.repeats(state) / noise.noise_quantile(answers - pairs, 0.05)
    )
    one_missing = measured.calibration.copy()
    one_missing[0, -1] -= 1
    assert not noise.is_calibrated(replace(measured, calibration=one_missing))


def calibrating(n=4, k=3):
    return ns_ts.start(n=n, k=k, delta=0.1, first=1, rng=np.random.default_rng(0))


def test_the_pairs_that_were_asked_least_are_measured_next_until_each_has_enough():
    state, asked = calibrating(), dict.fromkeys((0, 2, 3), 0)
    enough = 1 + math.ceil(128 / 3)
    calibration = state.calibration.copy()
    calibration[0] = 5, enough, 2
    counts = state.counts.copy()
    counts[0, [0, 2, 3]] = 5, enough, 2
    waits = np.array([[90, 91, 92], [3, 3, 0], [0, 0, 0]])
    state = replace(state, calibration=calibration, counts=counts, open=waits, issued=93)
    asked = {0: 6, 3: 4}
    expected = []
    for _ in range(7):
        expected.append(min(asked, key=asked.__getitem__))
        asked[expected[-1]] += 1
    state, queries = ask_tell.ask(state, 7, rng=np.random.default_rng(0))
    assert [query.pair for query in queries] == [(point, 1) for point in expected]
    assert [query.number for query in queries] == list(range(93, 100))
    assert (state.issued, state.asks) == (100, 1)


def test_only_as_many_answers_of_a_pair_as_are_needed_bound_the_variance():
    state = calibrating()
    most = 1 + math.ceil(128 / 3)
    values = np.sin(np.arange(most + 3.0))
    told = []
    for value in values:
        state = replace(state, open=np.array([[state.issued], [2], [0]]), issued=state.issued + 1)
        state = ask_tell.tell(state, [(state.issued - 1, float(value))])
        told.append(value)
        kept = np.array(told[:most])
        assert state.calibration[:, 1] == pytest.approx(
            [len(kept), kept.mean(), ((kept - kept.mean()) ** 2).sum()]
        )
        assert not state.calibration[:, [0, 2]].any()
    assert (state.counts[0, 2], state.observed) == (most + 3, most + 3)


def test_the_limits_of_a_campaign_are_the_documented_ones():
    state = campaign("ns_ts", "given", 0, centers=(2,))
    rng = np.random.default_rng(0)
    assert len(ask_tell.ask(state, 10_000, rng=rng)[1]) == 10_000
    assert ask_tell.MOST_OPEN == 100_000
    late = replace(state, issued=10_000_000 - 3)
    assert ask_tell.ask(late, 3, rng=rng)[0].issued == 10_000_000
    for count in (0, 4, 10_001):
        with pytest.raises(InvalidParameter) as raised:
            ask_tell.ask(late, count, rng=rng)
        assert raised.value.argument == "count"


def test_the_radius_is_that_of_the_pairs_that_were_answered():
    state = campaign("ns_ts", "given", 0, waiting=2)
    counts, sums = np.zeros((K, N), dtype=np.int64), np.zeros((K, N))
    counts[0, [1, 3, 4]] = counts[1, 3] = 2
    sums[0, [1, 3, 4]] = 1.4, 1.8, 0.2
    sums[1, 3] = 0.4
    counts[0, 0], sums[0, 0] = 5, 4.5  # of two centres
    found = ask_tell.answer(replace(state, counts=counts, sums=sums))
    assert found.radius == pytest.approx(0.7)  # 1 is near to nobody; 3 is at 0.9 and 0.2
    assert (found.centers, found.done) == ((2, 0), False)
    assert (found.issued, found.observed) == (state.issued, state.observed)
    assert ask_tell.answer(replace(state, counts=counts * 0, sums=sums * 0)).radius is None


# Coordinates


@pytest.mark.parametrize("dim", [1, 16, 3_000])
def test_rounding_covers_the_errors_of_a_sum_and_little_more(dim):
    """Higham, section 4.2: dim + 1 roundings at most of each term, each a half unit."""
    assert (dim + 1) * EPS / 2 < rounding(dim) < 2 * (dim + 9) * EPS
    largest = 7.0
    inside, outside = largest * (1.0 - rounding(dim)), largest * (1.0 - 1.5 * rounding(dim))
    assert first_best(np.array([outside, inside, largest, inside]), dim) == 1
    assert first_best(np.array([outside, outside, largest]), dim) == 2


def line(n=5, dim=22, seed=3):
    return np.random.default_rng(seed).random((n, dim)) * 3.0


@pytest.mark.parametrize("start", [0, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_a_race_knows_the_means_of_the_blocks_it_has_read(start, seed):
    """22 coordinates in six blocks of 4, the last of 2; every pair begins with block ``start``."""
    points = line()
    coordinates = blocked(points, rng=np.random.default_rng(1), width=4)
    flat, scale = coordinates.points(), coordinates.scale
    asked = []

    def bounds(mean, reads, looks):
        asked.extend(zip(mean.tolist(), reads.tolist(), looks.tolist(), strict=True))
        return mean - 0.125, mean + 0.25

    race = Race(coordinates, 3, bounds, SimpleNamespace(integers=lambda blocks: start + blocks - 6))
    assert race.rounding == pytest.approx(2 * rounding(22))
    race.add(0)
    assert race.low.tolist() == [-1.0, 0.0, 0.0, 0.0, 0.0]
    assert race.high.tolist() == [-1.0, 1.0, 1.0, 1.0, 1.0]
    looks, rng = {}, np.random.default_rng(seed)
    for step in range(7):
        if step == 3:
            race.add(3)
            assert race.low.tolist() == [-1.0, 0.0, 0.0, -1.0, 0.0]
        centers = race.centers
        places = [(v, row) for row in range(len(centers)) for v in range(5) if v not in centers]
        every = [pair for pair in places if looks.get(pair, 0) < 6]
        some = [every[i] for i in rng.permutation(len(every))[: 1 + seed + step % 2]]
        if not some:  # all are known
            break
        blocks = rng.integers(1, 4, len(some))
        asked.clear()
        race.pull(np.array([v for v, _ in some]), np.array([row for _, row in some]), blocks)
        for pair, more in zip(some, blocks.tolist(), strict=True):
            looks[pair] = min(looks.get(pair, 0) + more, 6)
        read = {}
        for (v, row), count in looks.items():
            blocks_read = [(start + i) % 6 for i in range(count)]
            places = [4 * b + i for b in blocks_read for i in range(4) if 4 * b + i < 22]
            terms = [(flat[v, j] - flat[centers[row], j]) ** 2 / scale for j in places]
            read[v, row] = len(terms), math.fsum(terms) / len(terms) if terms else 0.0
            mean = read[v, row][1]
            assert race.looks[row, v] == count
            if count:
                sides = (mean, mean) if count == 6 else (mean - 0.125, mean + 0.25)
                assert race.mean[row, v] == pytest.approx(mean)
                assert (race.lower[row, v], race.upper[row, v]) == pytest.approx(sides)
        assert race.reads == sum(count for count, _ in read.values())
        for (v, row), seen in zip(some, asked, strict=True):
            count, mean = read[v, row]
            assert seen == (pytest.approx(mean), count, looks[v, row])
        for v in {v for v, _ in some}:
            assert race.low[v] == race.lower[: len(centers), v].min()
            assert race.high[v] == race.upper[: len(centers), v].min()


def test_a_mean_is_at_most_one_though_sums_round():
    seen = []
    for dim, reach in itertools.product(range(1, 30), (0.1, 0.3, 0.7)):
        coordinates = blocked(np.array([[0.0] * dim, [reach] * dim]), rng=np.random.default_rng(0), width=8)
        race = Race(coordinates, 1, lambda mean, t, j: (mean, mean), np.random.default_rng(0))
        race.add(0)
        race.pull(np.array([1]), np.array([0]), np.array([9]))
        seen.append(race.sums[0, 1] / (race.reads * coordinates.scale))
        assert race.mean[0, 1] == pytest.approx(1.0)
        assert race.mean[0, 1] <= 1.0
    assert max(seen) > 1.0


def test_what_the_triangle_inequality_says_leaves_room_for_rounding():
    """Three points in a row: its bound is the distance itself, but for what roots and squares may round."""
    direction = np.sin(np.arange(40.0))
    points = np.array([0.0, 1.0, 0.3])[:, None] * direction
    coordinates = blocked(points, rng=np.random.default_rng(0), width=8)
    race = Race(
        coordinates, 3, lambda mean, t, j: (mean - 1, mean + 1), np.random.default_rng(0), triangle=True
    )
    race.add(0)
    race.pull(np.array([1, 2]), np.array([0, 0]), np.array([5, 5]))
    race.add(1)
    true = (direction**2).sum() / 40 / coordinates.scale
    assert race.lower[1, 2] == pytest.approx(0.49 * true, rel=1e-9)
    assert race.lower[1, 2] < 0.49 * true * (1.0 - rounding(40))
    assert race.low[2] == pytest.approx(0.09 * true)
    assert race.low[[0, 1]].tolist() == race.high[[0, 1]].tolist() == [-1.0, -1.0]
    assert race.lower[0, 2] == race.upper[0, 2]  # it is known


def test_the_other_side_of_the_triangle_leaves_room_as_well():
    """The middle one was chosen second: the ends are as far apart as both parts together."""
    direction = np.sin(np.arange(40.0))
    points = np.array([0.0, -0.2, 0.3])[:, None] * direction
    coordinates = blocked(points, rng=np.random.default_rng(0), width=8, scale=4.0)
    race = Race(
        coordinates, 3, lambda mean, t, j: (mean - 1, mean + 1), np.random.default_rng(0), triangle=True
    )
    race.add(0)
    race.pull(np.array([1, 2]), np.array([0, 0]), np.array([5, 5]))
    race.add(1)
    true = (direction**2).sum() / 40 / 4
    assert race.upper[1, 2] == pytest.approx(0.25 * true, rel=1e-9)
    assert race.upper[1, 2] > 0.25 * true * (1.0 + rounding(40))
    assert race.high[2] == pytest.approx(0.09 * true)


def test_what_is_known_stays_though_an_interval_fails():
    """The interval of one pair is wrong: what would follow from it changes no pair that was read in full."""
    points = np.array([0.0, 1.0, 0.3])[:, None] * np.sin(np.arange(40.0))
    coordinates = blocked(points, rng=np.random.default_rng(0), width=8)
    race = Race(
        coordinates, 3, lambda mean, t, j: (mean + 8, mean + 9), np.random.default_rng(0), triangle=True
    )
    race.add(0)
    race.pull(np.array([1]), np.array([0]), np.array([5]))
    race.pull(np.array([2]), np.array([0]), np.array([1]))
    race.add(1)
    race.pull(np.array([2]), np.array([1]), np.array([5]))
    assert race.lower[1, 2] == race.upper[1, 2] == race.mean[1, 2]
    assert race.lower[0, 2] > 1.0


@pytest.mark.parametrize("epsilon", [0.0, 0.03])
def test_what_rounding_cannot_tell_apart_is_equal(epsilon):
    """Rounding errors of an eighth. Points before the leader have to be clearly nearer, the others not."""
    eighth = 1 / 8
    lows = np.array([-1.0, 0.43, 0.45, 0.5, 0.1, 0.0])
    leader = 2  # 0.45 is at least 7/8 of 0.5, and 0.43 is not
    for high_before, high_after in itertools.product(np.arange(0.43, 0.6, 0.01), repeat=2):
        high = np.array([-1.0, high_before, 0.5, 0.55, high_after, 0.0])
        found, contested = stages.contest(SimpleNamespace(low=lows, high=high, rounding=eighth), epsilon)
        limit = 0.5 * (1 + eighth) + epsilon
        before = 0.5 * (1 - eighth) if epsilon == 0 else limit
        unsettled = [
            v for v, most in ((1, before), (3, limit), (4, limit)) if high[v] > most and high[v] > lows[v]
        ]
        assert found == leader
        assert contested.tolist() == (sorted([*unsettled, leader]) if unsettled else [])


class Pulled:
    """A race at a standstill that remembers what was pulled."""

    def __init__(self, **known):
        self.__dict__.update(known)

    def pull(self, rows, columns, blocks):
        self.pulls = list(zip(rows.tolist(), columns.tolist(), blocks.tolist(), strict=True))


@pytest.mark.parametrize("count", [3, 31, 32, 33, 90])
def test_a_round_pulls_the_highest_until_they_should_have_fallen(count):
    rng = np.random.default_rng(count)
    mean = 0.4 + 0.2 * rng.random((2, count))
    looks = rng.integers(0, 60, (2, count))
    half = 0.3 * rng.random((2, count))
    race = Pulled(looks=looks, mean=mean, upper=mean + half, lower=mean - half, centers=[0, 1])
    race.high, race.low = race.upper.min(axis=0), race.lower.min(axis=0)
    leader = int(race.low.argmax())
    contested = np.arange(count)[race.high > race.low[leader]]
    stages.pull_highest(race, leader, contested, stages.lowest_bound)
    highs = sorted((race.high[v] for v in contested), reverse=True)
    best = race.low[leader]
    level = min(best + stages._LEVEL * (highs[0] - best), highs[min(stages._FEWEST_POINTS, len(highs)) - 1])
    expected = []
    for v in contested.tolist():
        if race.high[v] >= level:
            row = min((0, 1), key=lambda row, v=v: race.lower[row, v])
            t, reach = int(looks[row, v]), level - mean[row, v]
            # A half-width goes with one over the root of the looks; at most twice as many at once.
            more = t * ((half[row, v] / reach) ** 2 - 1) if reach > 0 else t
            more = min(max(more, stages._LEAST_GROWTH * t), t)
            expected.append((v, row, max(1, math.ceil(more - 1e-9))))
    assert race.pulls == expected


def test_a_draw_of_ds_ts_is_made_with_its_probability():
    """A coin of exactly z is no draw, so z = 0 is DS-UCB."""
    race = SimpleNamespace(
        rng=SimpleNamespace(random=lambda n: np.array([0.0, 0.25, 0.5])[:n], beta=lambda a, b: -a),
        centers=[0, 1], looks=np.array([[1, 1, 1], [1, 3, 1]]), reads_after=np.array([0, 64, 128, 192]),
        mean=np.array([[0.25] * 3, [0.5] * 3]), last_look=3, lower=np.array([[0.0] * 3, [0.1] * 3]),
    )  # fmt: skip
    rows = np.arange(3)
    assert near_center(race, rows, 0.0).tolist() == [0, 0, 0]
    assert near_center(race, rows, 0.25).tolist() == [1, 0, 0]
    assert near_center(race, rows, 0.5).tolist() == [1, 0, 0]  # the pair of the second is known
    race.last_look = 4
    assert near_center(race, rows, 0.5).tolist() == [1, 1, 0]


# Naive greedy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 3_000])
def test_the_error_of_a_product_is_bounded_as_the_module_says(dtype, dim):
    """It is gamma (|x_v| + |x_s|)^2 on either side, and the errors of the distances themselves."""
    info, points = np.finfo(dtype), np.zeros((1, dim), dtype=dtype)
    norm = 3.0
    gamma = (1_024 + 4) * float(info.eps) / 2
    expected = 2 * gamma * (norm + norm) ** 2 + 2 * rounding(dim) * (norm + norm) ** 2
    assert _error(points, norm**2) == pytest.approx(expected, rel=1e-12)
    assert _error(points, 0.0) == pytest.approx(8 * dim * float(info.tiny), rel=1e-12, abs=0)


@pytest.mark.parametrize(("share", "fits"), [(0.24, True), (0.26, False)])
def test_a_distance_may_be_four_times_the_largest_squared_norm(share, fits):
    norm = math.sqrt(share) * math.sqrt(np.finfo(np.float64).max)
    points = np.array([[norm], [-norm * 0.5]])
    if fits:
        found = naive_greedy(points, k=1, first=0, rng=np.random.default_rng(0))
        assert found.radius == pytest.approx(1.5 * norm)
    else:
        with pytest.raises(NonFinite, match="points"):
            naive_greedy(points, k=1, first=0, rng=np.random.default_rng(0))
