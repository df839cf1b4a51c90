"""Every constant of the promises of k-center, against the papers' statements computed in another way.

Nothing here is drawn, or it does not matter what is. Where a rule decides when a centre is certain, the
number of answers at which the code decides is compared with that of the rule written out.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import zeta

from shortlist.kcenter import ds_ts, intervals, noise, ns_tands, ns_ts, stages
from shortlist.kcenter.coordinates import blocked
from shortlist.kcenter.ds_ucb import ds_ucb
from shortlist.kcenter.noisy_state import CALIBRATION, NoisySettings, NoisyState
from shortlist.kcenter.tracking_weights import weights

pytestmark = pytest.mark.rest

N, K = 6, 3
DELTAS = (0.3, 0.05, 1e-6)
EPSILONS = (0.0, 0.02)
KINDS = {"given": {"noise_std": 0.3}, "estimated": {"noise_std": None}, "judgements": {"noise": "bernoulli"}}
kinds = pytest.mark.parametrize("kind", KINDS)


def campaign(method, kind, *, t, mean, delta=0.05, epsilon=0.0, centers=(0,), residuals=0.09, **options):
    """A state in which the pairs have these numbers of answers and these means. Shapes: (p, N) or less.

    ``residuals`` is the mean squared residual of the calibration over its degrees of freedom.
    """
    settings = NoisySettings(method, N, K, delta, epsilon, **KINDS[kind], **options)
    counts = np.zeros((K, N), dtype=np.int64)
    counts[: len(centers)] = t
    sums = np.zeros((K, N))
    sums[: len(centers)] = counts[: len(centers)] * np.array(mean)
    calibration = np.zeros((3, N - 1 if kind == "estimated" else 0))
    state = NoisyState(settings, centers, counts, sums, np.zeros((3, 0), np.int64), calibration, 0, 0, 0)
    if kind == "estimated":
        freedom = (N - 1) * (noise.repeats(state) - 1)
        calibration = np.tile([[noise.repeats(state)], [0.4], [residuals * freedom / (N - 1)]], N - 1)
        state = NoisyState(settings, centers, counts, sums, np.zeros((3, 0), np.int64), calibration, 0, 0, 0)
    return state


# Variances, and the share of delta that is left


@pytest.mark.parametrize("delta", DELTAS)
def test_a_variance_is_bounded_with_half_of_delta_and_the_intervals_get_the_other_half(delta):
    state = campaign("ns_ts", "estimated", t=9, mean=[0.5] * N, delta=delta)
    repeats = math.ceil(CALIBRATION / (N - 1)) + 1
    freedom = (N - 1) * (repeats - 1)
    assert noise.repeats(state) == repeats
    assert freedom >= CALIBRATION > freedom - (N - 1)
    # The sum of squared residuals over sigma^2 falls below the quantile with probability delta / 2.
    assert stats.chi2.cdf(0.09 * freedom / noise.variance(state), freedom) == pytest.approx(delta / 2)
    assert noise.confidence(state) == delta / 2
    for kind, variance in (("given", 0.09), ("judgements", 1 / 4)):
        state = campaign("ns_ts", kind, t=9, mean=[0.5] * N, delta=delta)
        assert noise.variance(state) == pytest.approx(variance)
        assert noise.confidence(state) == delta


@kinds
def test_the_usual_tolerance_is_a_tenth_of_the_noise(kind):
    state = campaign("ns_ts", kind, t=9, mean=[0.5] * N, epsilon=None)
    assert noise.tolerance(state) == pytest.approx(math.sqrt(noise.variance(state)) / 10)


# Intervals: Equations 9, 14 and 22


@pytest.mark.parametrize(("n", "k"), [(2, 1), (6, 3), (1_000, 10)])
def test_the_sides_that_share_delta_are_counted_one_by_one(n, k):
    greedy, every = range(k), range(n)
    assert intervals.sides(n, k, 0.0) == sum(2 for _ in greedy for _ in every)
    assert intervals.sides(n, k, 0.5) == 2 * math.comb(n, 2)


def divergence(p, q):
    return sum(a * math.log(a / b) for a, b in ((p, q), (1 - p, 1 - q)) if a > 0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_intervals_are_at_their_share_of_delta(delta, epsilon):
    n, k = 40, 4
    share = delta / (2 * n * k if epsilon == 0 else n * (n - 1))
    options = {"delta": delta, "n": n, "k": k, "epsilon": epsilon, "c_alpha": 0.1}
    for t, look in itertools.product((64, 6_400, 640_000), (1, 7, 90)):
        mean = np.array([0.4])
        at = mean, np.array([t]), np.array([look])
        _, upper = intervals.interval("kl", **options)(*at)
        if upper[0] < 0.999:
            fails = math.exp(-t * divergence(0.4, upper[0]))
            assert fails == pytest.approx(share / (11.001 * look**1.1), rel=1e-3)
        _, upper = intervals.interval("lil", **options)(*at)
        if upper[0] < 1:
            beta = 2 * math.log(125 * math.log(1.12 * t) / share)
            assert upper[0] - 0.4 == pytest.approx(math.sqrt(2 * beta / t))
        _, upper = intervals.interval("experiment", **options)(*at)
        wide = math.sqrt(0.1 * math.log(1 + (1 + math.log(t)) * n**2 / delta) / t)
        assert upper[0] == pytest.approx(min(0.4 + wide, 1.0))


@kinds
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_bounds_of_answers_are_at_their_share_of_delta(delta, epsilon, kind):
    half = delta / 2 if kind == "estimated" else delta
    share = half / (2 * N * K if epsilon == 0 else N * (N - 1))
    for t in (1, 40, 10**6):
        state = campaign("ns_ts", kind, t=t, mean=[0.4] * N, delta=delta, epsilon=epsilon)
        lower, upper = noise.bounds(state, np.array([0.4]), np.array([t]))
        allowed = math.log(11.001 * t**1.1 / share)
        if kind == "judgements":
            found = [t * divergence(0.4, side[0]) for side in (lower, upper) if 1e-9 < side[0] < 1 - 1e-9]
        else:
            found = [
                t * (side[0] - 0.4) ** 2 / (2 * noise.variance(state)) for side in (lower, upper)
            ]  # kl of two normal distributions
        assert found == pytest.approx([allowed] * len(found), rel=1e-3)


def test_a_draw_of_the_posterior_has_the_prior_and_every_answer_once():
    class Given:
        def normal(self, mean, deviation):
            return np.stack((mean, deviation))

        def beta(self, wins, losses):
            return np.stack((wins, losses))

    for t, std in itertools.product((0, 1, 50), (0.3, 4.0)):
        state = campaign("ns_ts", "given", t=t, mean=[0.4] * N)
        settings = NoisySettings("ns_ts", N, K, 0.1, 0.0, noise_std=std)
        state = NoisyState(settings, (0,), state.counts, state.sums, state.open, state.calibration, 0, 0, 0)
        mean, deviation = noise.draw(state, 2, Given())
        weight = [1 / max(0.5, std**2), *[1 / std**2] * t]
        assert deviation[0] ** -2 == pytest.approx(sum(weight))
        assert mean[0] == pytest.approx(np.average([0.0, *[0.4] * t], weights=weight))
        judged = campaign("ns_ts", "judgements", t=t, mean=[0.4] * N)
        wins, losses = noise.draw(judged, 2, Given())
        assert (wins[0] - 1, losses[0] - 1) == pytest.approx((0.4 * t, 0.6 * t))


def test_a_draw_of_ds_ts_has_a_uniform_prior():
    class Given:
        def random(self, count):
            return np.zeros(count)

        def beta(self, wins, losses):
            self.seen = wins, losses
            return wins.copy()

    rng = Given()
    race = SimpleNamespace(
        rng=rng, centers=[0, 1], looks=np.array([[1, 2], [2, 3]]), reads_after=np.array([0, 64, 128, 192]),
        mean=np.array([[0.25, 0.5], [0.5, 0.125]]), last_look=3, lower=np.zeros((2, 2)),
    )  # fmt: skip
    ds_ts.near_center(race, np.array([0, 1]), 1.0)
    np.testing.assert_array_equal(rng.seen[0], [[17, 65], [65, 25]])
    np.testing.assert_array_equal(rng.seen[1], [[49, 65], [65, 169]])


# When a centre is certain

MEANS = [
    [0.0, 0.9, 0.6, 0.5, 0.2, 0.1],  # of the pairs with point 0
    [0.9, 0.0, 0.7, 0.95, 0.2, 0.1],  # of the pairs with point 1; of 3 much farther than of 2
]


def first_certain(decide, limit=2**40):
    """The least number of answers of a pair at which ``decide`` has a centre; it must then keep it."""
    t = 1
    while decide(t) is None:
        t *= 2
        assert t < limit
    low, high = t // 2, t
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decide(middle) is not None else (middle, high)
    return high


def ns_ts_by_the_rule(state, share):
    """No other point's upper bound exceeds the leader's lower bound by more than epsilon; Gaussian."""
    found, sigma = len(state.centers), math.sqrt(noise.variance(state))
    sides = {}
    for point in set(range(N)) - set(state.centers):
        both = []
        for row in range(found):
            t = int(state.counts[row, point])
            half = sigma * math.sqrt(2 * math.log(11.001 * t**1.1 / share) / t)
            both.append((state.sums[row, point] / t - half, state.sums[row, point] / t + half))
        sides[point] = min(low for low, _ in both), min(high for _, high in both)
    leader = max(sides, key=lambda point: sides[point][0])
    rival = max(high for point, (_, high) in sides.items() if point != leader)
    return leader if sides[leader][0] + state.settings.epsilon >= rival else None


@pytest.mark.parametrize("kind", ["given", "estimated"])
@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("centers", [(0,), (0, 1)])
def test_ns_ts_is_certain_after_as_many_answers_as_its_rule_says(kind, epsilon, centers):
    for delta in DELTAS:
        share = (delta / 2 if kind == "estimated" else delta) / (2 * N * K if epsilon == 0 else N * (N - 1))

        def state(t, delta=delta):
            mean = MEANS[: len(centers)]
            return campaign("ns_ts", kind, t=t, mean=mean, delta=delta, epsilon=epsilon, centers=centers)

        code = first_certain(lambda t, state=state: ns_ts.next_center(state(t)))
        rule = first_certain(lambda t, state=state, share=share: ns_ts_by_the_rule(state(t), share))
        assert abs(code - rule) <= 1
        assert ns_ts.next_center(state(code + 1)) == ns_ts_by_the_rule(state(code + 1), share)


@cache
def exploration_of(x):
    """C(x) of Kaufmann and Koolen, Theorem 9, on a grid."""
    part = np.linspace(0.5, 1.0, 20_002)[1:-1]
    shape = 2 * part - 2 * part * np.log(4 * part) + np.log(zeta(2 * part)) - 0.5 * np.log(1 - part)
    return float(((shape + x) / part).min())


def comparisons_of(epsilon):
    """All pairs of arms with a tolerance, else at least those on greedy's path."""
    return (N * (N - 1) // 2) ** 2 if epsilon else N * K * (K - 1) // 2


def tands_by_the_rule(state, delta):
    """The printed Equation 21 with the variance of the answers, arm by arm."""
    centers, epsilon = state.centers, state.settings.epsilon
    arms = {
        (point, row): (int(state.counts[row, point]), state.sums[row, point] / state.counts[row, point])
        for point in set(range(N)) - set(centers)
        for row in range(len(centers))
    }
    rows = range(len(centers))
    nearest = {point: min(arms[point, row][1] for row in rows) for point, _ in arms}
    best = max(nearest, key=lambda point: nearest[point])
    x = math.log(comparisons_of(epsilon) / delta)
    constant = 2 * exploration_of(x / 2)
    total = sum(t for t, _ in arms.values())

    def margin(one, other):
        (t, mean), (other_t, other_mean) = arms[one], arms[other]
        lead = mean + epsilon - other_mean
        z = math.copysign(lead**2, lead) / (2 * noise.variance(state) * (1 / t + 1 / other_t))
        if state.settings.threshold == "heuristic":
            return z - math.log((1 + math.log(total)) / delta)
        return z - constant - 2 * math.log(4 + math.log(t)) - 2 * math.log(4 + math.log(other_t))

    certain = all(
        any(min(margin((best, row), (point, theirs)) for row in rows) > 0 for theirs in rows)
        for point in nearest
        if point != best
    )
    return best if certain else None


@kinds
@pytest.mark.parametrize("threshold", ["proven", "heuristic"])
@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("centers", [(0,), (0, 1)])
def test_tands_is_certain_after_as_many_answers_as_its_rule_says(centers, epsilon, threshold, kind):
    """Boxes of uneven numbers of answers: what is right for one number alone is wrong for another."""
    several = np.array([3, 1, 2, 9, 1, 4])
    for delta in (0.3, 1e-4):
        share = delta / 2 if kind == "estimated" and threshold == "proven" else delta

        def state(t, delta=delta):
            return campaign(
                "ns_tands", kind, t=t * several, mean=MEANS[: len(centers)], delta=delta, epsilon=epsilon,
                centers=centers, threshold=threshold,
            )  # fmt: skip

        code = first_certain(lambda t, state=state: ns_tands.next_center(state(t)))
        rule = first_certain(lambda t, state=state, share=share: tands_by_the_rule(state(t), share))
        assert abs(code - rule) <= 1
        assert ns_tands.next_center(state(code + 1)) == tands_by_the_rule(state(code + 1), share)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_threshold_of_tands_is_theorem_9_at_its_share(epsilon):
    for delta, t_a, t_b in itertools.product(DELTAS, (1, 80, 10**6), (2, 5_000)):
        state = campaign("ns_tands", "given", t=9, mean=[0.5] * N, delta=delta, epsilon=epsilon)
        found = ns_tands.stopping_threshold(state, np.array([t_a]), np.array([t_b]), t_a + t_b)
        x = math.log(comparisons_of(epsilon) / delta)
        expected = 2 * exploration_of(x / 2)
        expected += sum(2 * math.log(4 + math.log(t)) for t in (t_a, t_b))
        assert found[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.125, 0.5])
def test_a_race_over_coordinates_is_certain_up_to_its_tolerance(epsilon):
    """The leader's bound is 1/2; the others' are multiples of 1/16, some just at the limit."""
    low = np.array([0.0, 0.25, 0.5, 0.125])
    for numerators in itertools.product(range(7, 17), repeat=2):
        high = np.array([numerators[0] / 16, 0.375, 0.75, numerators[1] / 16])
        race = SimpleNamespace(low=low, high=high, rounding=2.0**-30)
        leader, contested = stages.contest(race, epsilon)
        limit = 0.5 + epsilon
        # Equal distances go to the lowest index: a tie before the leader is not settled.
        first = high[0] > limit or (epsilon == 0 and high[0] == limit)
        assert leader == 2
        expected = [point for point, above in ((0, first), (3, high[3] > limit)) if above]
        assert contested.tolist() == (sorted([*expected, 2]) if expected else [])


def test_a_tolerance_is_in_the_unit_of_the_distances(monkeypatch):
    """Bounds are on the scale of [0, 1], distances on that of the largest squared range of a coordinate."""
    points = np.sin(np.arange(12 * 256.0)).reshape(12, 256) * 5.0
    coordinates = blocked(points, rng=np.random.default_rng(0))
    apart = np.abs(points[:, None] - points[None]).max()
    assert coordinates.scale == pytest.approx(apart**2)
    tolerances = []
    original = stages.contest

    def seen(race, epsilon):
        tolerances.append(epsilon)
        return original(race, epsilon)

    monkeypatch.setattr(stages, "contest", seen)
    monkeypatch.setattr(stages, "can_tell_apart", lambda *_: True)
    ds_ucb(coordinates, k=2, delta=0.1, rng=np.random.default_rng(0), epsilon=3.0)
    assert tolerances[0] == pytest.approx(3.0 / apart**2)


# What is asked next: Algorithm 4


@pytest.mark.parametrize("epsilon", [0.0, 0.05])
def test_the_proportions_are_those_of_squared_gaps(epsilon):
    mean = np.array(MEANS)[:, 2:]
    near = mean.min(axis=0)
    gaps = np.array([[(mean[row, 0] - near[box] + epsilon) ** 2 / 2 for box in (1, 2, 3)] for row in (0, 1)])
    assert near.argmax() == 0
    w, u = weights(gaps)
    found = ns_tands.pull_proportions(mean, epsilon)
    assert found[:, 0] == pytest.approx(w)
    assert found[mean[:, 1:].argmin(axis=0), [1, 2, 3]] == pytest.approx(u)
    assert found.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("fewest", "explored"), [(6, True), (7, True), (8, False), (9, False)])
def test_an_arm_is_explored_below_the_root_of_all_answers_less_half_of_the_arms(fewest, explored):
    """5 arms and 100 answers: sqrt(100) - 5 / 2 is 7.5. The arm is too near to be tracked."""
    t = [0, 38, 25, 16, 21 - fewest, fewest]
    state = campaign("ns_tands", "given", t=t, mean=[0.0, 0.9, 0.89, 0.88, 0.87, 0.01])
    points, _ = ns_tands.choose(state, 1, np.random.default_rng(0))
    assert (points[0] == 5) == explored
