"""Each step of the samplers against the same step written out in plain Python; nothing is left to a draw."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shortlist.errors import InvalidArgument, InvalidParameter
from shortlist.mips import blocked
from shortlist.mips.partial_sums import PartialSums
from shortlist.mips.rewards import blocked_rewards
from shortlist.sampling import clusters, coordinates
from shortlist.sampling import race as race_module
from shortlist.sampling.b_normal import b_normal, crossing
from shortlist.sampling.control_variates import Proxy, controlled, taylor_proxy
from shortlist.sampling.factors import Factors, RandomOrder
from shortlist.sampling.gumbel_max import from_weights, gumbel_max, top_k
from shortlist.sampling.lil_ucb import Constants, constants_of, lil_ucb
from shortlist.sampling.metropolis_hastings import metropolis_hastings_step
from shortlist.sampling.racing_ebs import ebs_rules, racing_ebs
from shortlist.sampling.racing_normal import normal_rules, racing_normal

pytestmark = pytest.mark.rest


class InOrder:
    """Takes the place of a random order: 0, 1, 2, ..."""

    def __init__(self, size, rng):
        self.take = np.arange


class Gumbel:
    """A generator whose Gumbel variables are given, and whose orders are those of the indices."""

    def __init__(self, *given):
        self.given = list(given)

    def gumbel(self, *, size):
        return np.array(self.given.pop(0)[:size], dtype=float)

    def shuffle(self, order):
        pass


# Clusters


def schedule(size, first):
    """How many are read by each look: after the first a tenth of the others, then twice as many as before."""
    reads = [min(first, size)]
    if reads[0] < size:
        reads.append(reads[0] + max(1, (size - first) // 10))
    while reads[-1] < size:
        reads.append(min(2 * reads[-1], size))
    return reads


def estimate(seen, size):
    """The sum of all by those that were seen, its variance, and the degrees of freedom of that."""
    if (t := len(seen)) == size:
        return sum(seen), 0.0, math.inf
    return size * np.mean(seen), size**2 * np.var(seen, ddof=1) / t * (1 - t / size), t - 1


def clusters_by_hand(values, offsets, delta, first):
    """Appendix C.3, arm by arm: the winner and what was read."""
    schedules = [schedule(len(one), first) for one in values]
    looks = max(map(len, schedules))
    tail = delta / (max(len(values) - 1, 1) * max(looks - 1, 1))
    left, read, total = list(range(len(values))), [0] * len(values), {}
    for look in range(looks):
        if len(left) == 1:
            break
        found = {}
        for arm in left:
            read[arm] = schedules[arm][min(look, len(schedules[arm]) - 1)]
            found[arm] = estimate(values[arm][: read[arm]], len(values[arm]))
            total[arm] = found[arm][0] + offsets[arm]
        leader = max(left, key=total.__getitem__)

        def width(arm, found=found, leader=leader):
            freedom = min(found[arm][2], found[leader][2])
            quantile = 0.0 if math.isinf(freedom) else max(stats.t.isf(tail, freedom), 0.0)
            return math.sqrt(found[arm][1] + found[leader][1]) * quantile

        left = [arm for arm in left if total[leader] - total[arm] <= width(arm)]
    return max(left, key=lambda arm: total[arm] if len(left) > 1 else 0.0), sum(read)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_race_of_clusters_is_that_of_the_appendix(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0, 1, 5, 60, 300, 800], rng.integers(2, 6))
    values = [rng.standard_normal(size) * 0.05 - 0.02 * rng.random() for size in sizes]
    noise, prior = rng.gumbel(size=len(sizes)), rng.standard_normal(len(sizes))
    delta, first = 0.2, int(rng.choice([2, 20]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "RandomOrder", InOrder)
        drawn = clusters.racing_clusters(
            [clusters.Cluster(len(one), one.__getitem__) for one in values],
            delta=delta, rng=Gumbel(noise), log_prior=prior, first=first,
        )  # fmt: skip
    row, reads = clusters_by_hand(values, prior + noise, delta, first)
    assert (drawn.rows.tolist(), drawn.reads) == ([row], reads)
    assert (drawn.exhaustive_reads, drawn.raced) == (sum(sizes), 1)


def test_a_first_batch_of_clusters_has_at_least_two_factors():
    two = [clusters.Cluster(9, lambda indices: indices * 1.0)] * 2
    for first in (1, 0, -3):
        with pytest.raises(InvalidParameter, match="first"):
            clusters.racing_clusters(two, delta=0.1, rng=np.random.default_rng(0), first=first)
    for change in (
        {"delta": 0.0},
        {"delta": 1.0},
        {"log_prior": np.zeros(3)},
        {"log_prior": np.full(2, np.nan)},
    ):
        with pytest.raises(InvalidArgument):
            clusters.racing_clusters(two, **({"delta": 0.1, "rng": np.random.default_rng(0)} | change))
    for wrong in (np.zeros(3), np.full(2, np.inf)):
        bad = clusters.Cluster(9, lambda indices, wrong=wrong: wrong)
        with pytest.raises(InvalidArgument, match="log_factors"):
            clusters.racing_clusters([bad, bad], delta=0.1, rng=np.random.default_rng(0), first=2)


# The race, and several draws


@pytest.mark.parametrize("method", ["normal", "ebs"])
@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_first_look_takes_two_at_least(method, first):
    if method == "normal":
        rules = normal_rules(3, 40, delta=0.1, variance="pairwise", first=first)
    else:
        rules = ebs_rules(np.ones(3), 40, delta=0.1, variance="pairwise", first=first)
    assert rules.schedule[0] == max(first, 2)
    assert rules.schedule[-1] == 40
    assert len(rules.ranges) == 3


def test_the_first_looks_that_may_be_left_out(monkeypatch):
    """50 factors where means have to be Gaussian, 2 where only a deviation is needed."""
    seen = []
    original = race_module.race

    def kept(sample, offsets, rules):
        seen.append((rules.schedule[0], rules.variance))
        return original(sample, offsets, rules)

    monkeypatch.setattr(race_module, "race", kept)
    logs = np.sin(np.arange(300.0)).reshape(2, 150)
    rng = np.random.default_rng(0)
    racing_normal(Factors.of(logs), delta=0.1, rng=rng)
    racing_ebs(Factors.of(logs), ranges=np.ptp(logs, axis=1), delta=0.1, rng=rng)
    assert seen == [(50, "pairwise"), (2, "pairwise")]
    one = [clusters.Cluster(60, lambda indices: indices * 0.0)] * 2
    assert clusters.racing_clusters(one, delta=0.1, rng=Gumbel([9.0, 0.0])).reads == 100
    step = metropolis_hastings_step(
        Factors.of(np.array([[0.0] * 60, [1.0] * 60])),
        log_prior=np.zeros(2), log_proposal=np.zeros(2), delta=0.1, rng=rng,
    )  # fmt: skip
    assert (step.accepted, step.reads) == (True, 100)


def test_a_delta_is_a_probability():
    factors, rng, ranges = Factors.of(np.zeros((2, 9))), np.random.default_rng(0), np.ones(2)
    for delta in (0.0, -0.5, 1.0, 1.5):
        for method in (
            lambda **given: racing_normal(factors, **given),
            lambda **given: racing_ebs(factors, ranges=ranges, **given),
            lambda **given: lil_ucb(factors, ranges=ranges, **given),
            lambda **given: lil_ucb(factors, ranges=ranges, setting="heuristic", **given),
        ):
            with pytest.raises(InvalidParameter, match="delta"):
                method(delta=delta, rng=rng)
    for first, method in itertools.product((0, -1), (racing_normal, racing_ebs)):
        given = {"ranges": ranges} if method is racing_ebs else {}
        with pytest.raises(InvalidParameter, match="first"):
            method(factors, delta=0.1, first=first, rng=rng, **given)


@pytest.mark.parametrize("name", ["observations", "reference", "values", "gradients", "hessians"])
def test_the_arguments_of_a_taylor_proxy_fit_and_are_finite(name):
    given = {
        "observations": np.ones((9, 2)), "reference": np.ones(2), "values": np.ones(3),
        "gradients": np.ones((3, 2)), "hessians": np.ones((3, 2, 2)),
    }  # fmt: skip
    assert taylor_proxy(**given).means.shape == (3,)
    narrower = [given[name][0]] if given[name].ndim > 1 else []
    for wrong in (np.full_like(given[name], np.nan), given[name][..., None], *narrower):
        with pytest.raises(InvalidArgument):
            taylor_proxy(**given | {name: wrong})
    if name in {"reference", "gradients", "hessians"}:
        with pytest.raises(InvalidArgument, match=name):
            taylor_proxy(**given | {name: given[name][..., :1]})
    if name in {"gradients", "hessians"}:
        with pytest.raises(InvalidArgument, match=name):
            taylor_proxy(**given | {name: given[name][:2]})


def test_factors_that_are_none_are_refused():
    rng, zeros = np.random.default_rng(0), np.zeros(2)
    for shape in ((0, 3), (3, 0)):
        with pytest.raises(InvalidParameter, match="log_factors"):
            gumbel_max(Factors.of(np.zeros(shape)), rng=rng)
    for shape in ((2, 0), (1, 3), (3, 3)):
        with pytest.raises(InvalidParameter, match="likelihoods"):
            metropolis_hastings_step(
                Factors.of(np.zeros(shape)), log_prior=zeros, log_proposal=zeros, delta=0.1, rng=rng
            )
    single = metropolis_hastings_step(
        Factors.of(np.array([[0.0], [900.0]])), log_prior=zeros, log_proposal=zeros, delta=0.1, rng=rng
    )
    assert (single.accepted, single.reads) == (True, 2)
    with pytest.raises(InvalidArgument):
        controlled(Factors.of(np.zeros((2, 3))), Proxy(lambda rows, indices: np.zeros(0), np.zeros(3)))


@pytest.mark.parametrize("stops", [(1, 2, 3), (20,), (3, 20, 40), (39, 40), (40,)])
def test_an_order_goes_on_where_it_was(stops):
    """What was taken is kept, however the rest is made; every index comes once."""
    order, taken = RandomOrder(40, np.random.default_rng(1)), []
    for start, stop in itertools.pairwise((0, *stops)):
        taken += order.take(start, stop).tolist()
        assert len(taken) == stop
        assert order.take(0, stop).tolist() == taken
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(range(40))


def test_sums_do_not_depend_on_how_many_are_read_at_a_time():
    logs = np.sin(np.arange(3.0 * 41)).reshape(3, 41)
    for entries in (1, 3, 30, 120, 123, 1_000):
        sizes = []

        def read(arms, indices, sizes=sizes):
            sizes.append(len(indices))
            return logs[arms[:, None], indices]

        assert Factors(3, 41, read).sums(entries) == pytest.approx(logs.sum(axis=1))
        assert sum(sizes) == 41
        assert max(sizes) == min(max(entries // 3, 1), 41)
    assert Factors.of(logs).exhaustive_reads == 123


# Exact draws


def test_several_draws_invert_the_distribution_function():
    weights = np.log([0.125, 0.5, 0.25, 0.125]) - 700.0
    uniform_variables = np.array([0.0, 0.1249, 0.1251, 0.6249, 0.6251, 0.8749, 0.8751, 1.0])
    rng = SimpleNamespace(random=lambda draws: uniform_variables[:draws])
    assert from_weights(weights, draws=8, rng=rng).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    # 1 stands for what rounds to 1: it is the last state.


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_the_k_largest_come_in_order_and_equal_ones_by_row(k):
    noise = np.array([0.5, 2.0, -1.0, 2.0])
    rows, logs = top_k(np.zeros(4), k, rng=Gumbel(noise))
    assert rows.tolist() == [1, 3, 0, 2][:k]
    assert np.exp(logs) == pytest.approx([1 / 4, 1 / 3, 1 / 2, 1][:k])
    nothing, none = top_k(np.zeros(0), k, rng=Gumbel([]))
    assert len(nothing) == len(none) == 0


# lil'UCB


def test_a_bound_is_infinite_up_to_where_the_iterated_logarithm_begins():
    at = Constants(0.0, 0.0, math.log(2.0), None)
    assert at.width(1) == at.width(2) == math.inf
    assert at.width(3) == pytest.approx(math.sqrt(2 * math.log(math.log(3) / math.log(2)) / 3))


class Told:
    """The factors of a matrix that remember, for each arm, the indices that were read, call by call."""

    def __init__(self, logs):
        self.logs, self.reads = logs, [[] for _ in logs]
        self.factors = Factors(*logs.shape, self.read)

    def read(self, arms, indices):
        (arm,) = arms
        self.reads[arm].append(indices.tolist())
        return self.logs[arms[:, None], indices]


@given(seed=st.integers(0, 2**32), setting=st.sampled_from(["safe", "heuristic"]))
@settings(max_examples=20)
def test_lil_ucb_is_that_of_the_source(seed, setting):
    """The arm of highest bound is read on, by a sixteenth; written out with what was read."""
    rng = np.random.default_rng(seed)
    arms, size = 3, 700
    logs = 0.02 * rng.standard_normal((arms, size)) + 0.01 * rng.random((arms, 1))
    ranges, prior = np.ptp(logs, axis=1), np.array([0.0, 0.5, 0.2])
    told = Told(logs)
    drawn = lil_ucb(
        told.factors,
        ranges=ranges,
        delta=0.1,
        rng=np.random.default_rng(seed),
        log_prior=prior,
        setting=setting,
    )
    offsets = prior + np.random.default_rng(seed).gumbel(size=arms)
    constants = constants_of(setting, 0.1, arms)
    count, calls = [0] * arms, [0] * arms

    def bounds(arm):
        if not count[arm]:
            return -math.inf, math.inf
        read = list(itertools.chain(*told.reads[arm]))[: count[arm]]
        mean = logs[arm, read].sum() / count[arm] + offsets[arm] / size
        width = 0.0 if count[arm] == size else ranges[arm] / 2 * constants.width(count[arm])
        return mean - width, mean + width

    while True:
        arm = next((one for one in range(arms) if not count[one]), None)
        if arm is None:
            arm = max(range(arms), key=lambda one: bounds(one)[1])
            others = [one for one in range(arms) if one != arm]
            done = bounds(arm)[0] > max(bounds(one)[1] for one in others)
            if setting == "heuristic":
                done = count[arm] >= 1 + (1 + 10 / arms) * sum(count[one] for one in others)
            if done or count[arm] == size:
                break
        more = min(size - count[arm], max(1, count[arm] // 16))
        assert len(told.reads[arm][calls[arm]]) == more
        count[arm], calls[arm] = count[arm] + more, calls[arm] + 1
    assert drawn.rows.tolist() == [arm]
    assert drawn.reads == sum(count) == sum(len(one) for calls in told.reads for one in calls)
    assert calls == [len(reads) for reads in told.reads]
    for reads in told.reads:
        read = list(itertools.chain(*reads))
        assert len(set(read)) == len(read)


# Over the coordinates of a catalogue


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
def test_the_widths_of_a_catalogue_are_those_of_the_arms_that_are_left(variance):
    """After arms have left, the widths are the same as before for those that are left."""
    rng = np.random.default_rng(5)
    vectors, query = rng.standard_normal((7, 1_024)), rng.standard_normal(1_024)
    rewards = blocked_rewards(blocked.build(vectors, rng=np.random.default_rng(1)), query)
    for leader, stay in ((4, [1, 4, 6]), (0, [0, 2, 3, 5])):
        partial = PartialSums(rewards)
        widths = coordinates._Normal(partial, rewards, 0.1, variance)
        widths.read_to(widths.schedule[0])
        for other in (2, leader):
            before = widths.of(other)
        partial.keep(np.array(stay))
        widths.keep(np.array(stay))
        place = stay.index(leader)
        assert widths.of(place) == pytest.approx(before[stay])
        single = [np.abs(widths.of(one)) for one in range(len(stay))]
        for one, two in itertools.combinations(range(len(stay)), 2):
            assert single[one][two] == pytest.approx(single[two][one], rel=1e-3)
    bernstein = coordinates._Bernstein(PartialSums(rewards), rewards, 0.1)
    bernstein.read_to(bernstein.schedule[0])
    assert len(bernstein.of(0)) == 7


@pytest.mark.parametrize("method", ["racing_normal", "racing_ebs"])
def test_one_arm_of_a_catalogue_is_drawn_unread(method):
    rewards = blocked_rewards(blocked.build(np.ones((1, 200)), rng=np.random.default_rng(1)), np.ones(200))
    drawn = coordinates.race_coordinates(rewards, method=method, delta=0.1, rng=np.random.default_rng(0))
    assert (drawn.rows.tolist(), drawn.reads, drawn.exhaustive_reads, drawn.raced) == ([0], 0, 200, 1)
    for delta in (0.0, 1.0, -1.0):
        with pytest.raises(InvalidParameter, match="delta"):
            coordinates.race_coordinates(rewards, method=method, delta=delta, rng=np.random.default_rng(0))


def test_arms_that_rounding_cannot_tell_apart_are_compared_with_their_noise():
    """The first is ahead by almost 3, and its Gumbel variable is behind by 3."""
    vectors = np.zeros((2, 96))
    vectors[0] = (3.0 - 1e-9) / 96
    rewards = blocked_rewards(blocked.build(vectors, rng=np.random.default_rng(1)), np.ones(96))
    for noise, winner in (([0.0, 3.0], 1), ([0.0, 3.0 - 2e-9], 0), ([0.0, -3.0], 0)):
        drawn = coordinates.race_coordinates(rewards, method="racing_ebs", delta=0.1, rng=Gumbel(noise))
        assert drawn.rows.tolist() == [winner]


# B_Normal


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.5), (0.3, 0.6), (1.5, 2.0)])
def test_the_root_is_that_of_its_crossing(low, high):
    for share, two_sided in itertools.product((0.01, 0.2, 0.3), (False, True)):
        delta = crossing((low + high) / 2, share, two_sided=two_sided)
        assert b_normal(delta, share, two_sided=two_sided) == pytest.approx((low + high) / 2, abs=1e-9)
    assert b_normal(1e-200, 0.2) == pytest.approx(stats.norm.isf(1e-200), rel=0.01)


# Uniform draws by rejection
