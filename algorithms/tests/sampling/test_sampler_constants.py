"""Every constant of the samplers' promises, against the papers' statements computed in another way.

Nothing here is drawn, or it does not matter what is: a dropped union, a factor of two or an index that is off
by one changes a number, and the test fails always.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import zeta

from shortlist.finite_population import bernstein_serfling
from shortlist.mips import blocked
from shortlist.mips import racing as mips_racing
from shortlist.mips.rewards import blocked_rewards
from shortlist.sampling import clusters, coordinates
from shortlist.sampling import lil_ucb as lil_module
from shortlist.sampling import race as race_module
from shortlist.sampling.control_variates import Proxy, controlled, taylor_proxy
from shortlist.sampling.factors import Factors, RandomOrder
from shortlist.sampling.lil_ucb import Constants, constants_of, lil_ucb
from shortlist.sampling.metropolis_hastings import metropolis_hastings_step
from shortlist.sampling.race import FactorSample, RaceRules, race
from shortlist.sampling.racing_ebs import ebs_rules
from shortlist.sampling.racing_normal import normal_rules
from shortlist.types import Rows

pytestmark = pytest.mark.rest

DELTAS = (0.3, 0.05, 1e-6)
ARMS = (1, 2, 3, 40)
SIZES = ((100, 2), (1_000, 50), (1_024, 64), (77, 40))


def share_of_an_arm(delta, arms, variance):
    """Proposition 1: the best arm against the D - 1 others, or the means of all D arms."""
    return delta / {"pairwise": max(arms - 1, 1), "marginal": arms}[variance]


def looks_before_the_end(first, size):
    """t* - 1: how many of m, 2 m, 4 m, ... are below N."""
    return sum(first * 2**i < size for i in range(64))


# Racing-EBS: section 3.3.1


def theorem_4_3(t, size, deviation, spread, probability):
    """Bardenet and Maillard's Theorem 4.3, in the cases in which they print rho."""
    rho = 1 - (t - 1) / size if t <= size / 2 else (1 - t / size) * (1 + 1 / t)
    log = math.log(5 / probability)
    return deviation * math.sqrt(2 * rho * log / t) + (7 / 3 + 3 / math.sqrt(2)) * spread * log / t


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
@pytest.mark.parametrize(("size", "first"), SIZES)
def test_the_widths_of_racing_ebs_are_b_ebs_at_the_share_of_an_arm_and_a_look(size, first, variance):
    for delta, arms in itertools.product(DELTAS, ARMS):
        rules = ebs_rules(np.ones(arms), size, delta=delta, variance=variance, first=first)
        share = share_of_an_arm(delta, arms, variance) / looks_before_the_end(first, size)
        assert len(rules.schedule) == looks_before_the_end(first, size) + 1
        for t in rules.schedule[:-1]:
            (found,) = rules.width(t, np.array([0.7]), np.array([1.9]))
            assert found == pytest.approx(theorem_4_3(t, size, 0.7, 1.9, share), rel=1e-12)


# The race: section 3.3, Algorithm 1


class Fixed:
    """A sample of given means: one row a look. It remembers which arms were kept."""

    reads = 0

    def __init__(self, means):
        self._looks, self._left, self.look, self.kept = means, np.arange(means.shape[1]), -1, []

    def read_to(self, t):
        self.look += 1

    def keep(self, places):
        self._left = self._left[places]
        self.kept.append(self._left.tolist())

    def means(self):
        return self._looks[self.look, self._left]

    def deviations(self):
        return 1.0 + self._left

    def deviations_from(self, place):
        return 100.0 * (1 + self._left[place]) + self._left


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
def test_a_race_drops_what_is_behind_by_more_than_the_width_of_both_arms(variance):
    """Means are a quarter apart, but for the offsets of the first look; widths are given."""
    size, seen = 64, []
    ranges = np.array([1.0, 2.0, 4.0, 8.0])

    def width(t, deviations, some):
        seen.append((t, deviations.tolist(), some.tolist()))
        return np.full(len(deviations), 0.25 if variance == "marginal" else 0.5)

    sample = Fixed(np.array([[1.0, 0.75, 0.5, 0.0], [1.0, 0.75, 0.5, 0.0], [0.0] * 4]))
    offsets = size * np.array([0.0, 0.0, 0.0, 0.5])
    race(sample, offsets, RaceRules((16, 32, size), width, ranges, variance))
    assert sample.kept == [[0, 1, 2, 3]] * 2
    if variance == "pairwise":
        expected = [100.0, 101.0, 102.0, 103.0], [2.0, 3.0, 5.0, 9.0]
    else:
        expected = [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0, 8.0]
    assert seen == [(16, *expected), (32, *expected)]
    lower = Fixed(np.array([[1.0, 0.75, 0.5 - 2**-30, 0.0]] * 3))
    race(lower, offsets, RaceRules((16, 32, size), width, ranges, variance))
    assert lower.kept == [[0, 1, 3]] * 2


def test_the_marginal_width_is_that_of_the_leader_and_that_of_the_arm():
    sample = Fixed(np.array([[0.0, 1.0, 0.5]]))
    sample.read_to(1)
    rules = RaceRules(
        (1, 9), lambda t, deviations, ranges: deviations + 10.0 * ranges, np.arange(3.0), "marginal"
    )
    single = np.array([1.0, 12.0, 23.0])
    assert race_module.widths_of(sample, 1, 1, rules, np.arange(3)).tolist() == (single + single[1]).tolist()


def test_deviations_are_those_of_the_differences_from_the_leader():
    logs = np.arange(48.0).reshape(3, 16) ** 1.5 % 7.0
    order = RandomOrder(16, np.random.default_rng(0))
    sample = FactorSample(Factors.of(logs), order)
    sample.read_to(10)
    read = logs[:, order.take(0, 10)]
    for leader in range(3):
        variance = ((read - read[leader]) ** 2).mean(axis=1) - (read - read[leader]).mean(axis=1) ** 2
        assert sample.deviations_from(leader) ** 2 == pytest.approx(variance)
    assert sample.deviations() ** 2 == pytest.approx((read**2).mean(axis=1) - read.mean(axis=1) ** 2)


# Racing-Normal: section 3.3.2, Equation 9, Corollary 4


def exceeded(bound, share):
    """P(some check t < t*: Y_t > B), for one or two checks, by an integral over the first Y."""
    found = float(stats.norm.sf(bound))
    assert share * 4 >= 1
    if share * 2 < 1:
        rho = math.sqrt(share * (1 - 2 * share) / (2 * share * (1 - share)))
        tail = integrate.quad(
            lambda y: stats.norm.pdf(y) * stats.norm.sf((bound - rho * y) / math.sqrt(1 - rho**2)),
            -10.0,
            bound,
            epsabs=1e-14,
        )
        found += tail[0]
    return found


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
@pytest.mark.parametrize(("size", "first"), [(100, 25), (100, 31), (100, 50), (90, 77)])
def test_the_widths_of_racing_normal_are_equation_9(size, first, variance):
    for delta, arms in itertools.product((0.3, 1e-3), (1, 2, 40)):
        rules = normal_rules(arms, size, delta=delta, variance=variance, first=first)
        (scale,) = rules.width(first, np.ones(1), np.zeros(1))
        (other,) = rules.width(size // 2 + 1, np.ones(1), np.zeros(1))
        bound = scale / math.sqrt((size - first) / (size - 1) / first)
        assert other == pytest.approx(
            bound * math.sqrt((size - size // 2 - 1) / (size - 1) / (size // 2 + 1))
        )
        assert exceeded(bound, first / size) == pytest.approx(
            share_of_an_arm(delta, arms, variance), rel=1e-7
        )


# lil'UCB: section 3.2, and the setting that docs/papers/racing-samplers.md proves


@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("delta", DELTAS)
def test_safe_blocks_of_lil_ucb_fail_with_the_share_of_an_arm(delta, arms):
    """Step 2 and 3 of the proof, from the widths of the code: block by block, the ends of each block."""
    constants = constants_of("safe", delta, arms)
    eta = 1.0 + constants.epsilon
    power = (1.0 + math.sqrt(constants.epsilon)) ** 2

    def fails(block):
        """Of an arm of sigma 1: P(some t >= eta^i: mean off by the least width up to eta^(i+1)), squared."""
        edge = eta ** (block + 1)
        squared = 2.0 * power * eta * math.log((block + 1) * math.log(eta) / constants.share) / edge
        return math.exp(-(eta**block) * squared / 2.0)

    blocks = np.arange(1, 200)
    summed = sum(fails(block) for block in blocks if (block + 1) * math.log(eta) > constants.share)
    tail = (constants.share / math.log(eta)) ** power * float(zeta(power, 201))
    first = (constants.share / math.log(eta)) ** power
    assert first + summed + tail == pytest.approx(delta / arms, rel=1e-9)
    for t in (1, 2, 7, 300, 10**6):
        if math.log(eta * t) > constants.share:
            squared = 2.0 * power * eta * math.log(math.log(eta * t) / constants.share) / t
            assert constants.width(t) ** 2 == pytest.approx(squared)


def test_the_heuristic_setting_is_that_of_the_source():
    for delta, arms in itertools.product(DELTAS, ARMS):
        constants = constants_of("heuristic", delta, arms)
        assert (constants.epsilon, constants.beta, constants.share) == (0.0, 0.5, delta / 5)
        assert constants.ratio == pytest.approx((arms + 10) / arms)
    found = Constants(0.0, 0.5, 0.02, None).width(9) ** 2
    assert found == pytest.approx(1.5**2 * 2 * math.log(math.log(9) / 0.02) / 9)


def test_an_arm_of_lil_ucb_has_half_of_its_range_for_sigma(monkeypatch):
    kept = []

    class Kept(lil_module._SearchState):
        def __init__(self, *given):
            super().__init__(*given)
            kept.append(self)

    monkeypatch.setattr(lil_module, "_SearchState", Kept)
    logs = np.sin(np.arange(400.0)).reshape(2, 200)
    logs[1] *= 0.25
    ranges = np.ptp(logs, axis=1)
    far = np.array([0.0, 4_000.0])  # so that neither is read to its end
    lil_ucb(Factors.of(logs), ranges=ranges, delta=0.1, rng=np.random.default_rng(0), log_prior=far)
    (arms,) = kept
    for arm in range(2):
        count = int(arms.pull_counts[arm])
        assert 0 < count < 200
        half = ranges[arm] / 2 * constants_of("safe", 0.1, 2).width(count)
        assert arms.upper_bounds[arm] - arms.lower_bounds[arm] == pytest.approx(2 * half)


@pytest.mark.parametrize(("scale", "pulls"), [(1.0, 20), (0.0, 1)])
def test_an_arm_of_lil_ucb_that_is_read_to_its_end_or_constant_has_no_width(scale, pulls):
    logs = scale * np.sin(np.arange(12.0)).reshape(1, 12)
    arms = lil_module._SearchState(
        Factors.of(logs),
        np.zeros(1),
        np.full(1, scale),
        constants_of("safe", 0.1, 2),
        np.random.default_rng(0),
    )
    for _ in range(pulls):
        if arms.pull_counts[0] < 12:
            arms.pull(0)
    assert arms.upper_bounds[0] == arms.lower_bounds[0] == pytest.approx(logs.mean())


def test_lil_ucb_stops_when_one_arm_is_above_all_others():
    logs = np.zeros((3, 100))
    arms = lil_module._SearchState(
        Factors.of(logs), np.zeros(3), np.ones(3), constants_of("safe", 0.1, 3), np.random.default_rng(0)
    )
    arms.lower_bounds[:] = [0.5, -1.0, -9.0]
    for others, done in (((0.4, -5.0), True), ((-5.0, 0.6), False), ((0.5, 0.0), False)):
        arms.upper_bounds[:] = [1.0, *others]
        assert arms.finished(0) is done
    arms._constants = constants_of("heuristic", 0.1, 3)  # private: the rule of stopping in the other setting
    for counts, done in (((60, 6, 7), True), ((57, 6, 7), False), ((58, 6, 7), True)):
        arms.pull_counts[:] = counts
        assert arms.finished(0) is done, "T_i >= 1 + (13 / 3) times the others"


# Clusters: Appendix C.3


@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("delta", DELTAS)
def test_all_comparisons_of_clusters_share_delta(delta, arms):
    for size, first in ((1_000, 50), (51, 50), (20, 50), (9_999, 3)):
        looks = clusters.schedule(size, first)
        tail = clusters.share_of_a_comparison(delta, arms, len(looks))
        compared = sum(t < size for t in looks) * (arms - 1)
        assert tail * max(compared, 1) == pytest.approx(delta if compared else tail), (
            "the best with each other, while something is unread"
        )
        if size > first and arms > 1:
            assert compared > 0


def test_clusters_are_compared_at_their_share(monkeypatch):
    """What a race asks of Student's quantile: its share, and the fewer degrees of freedom of the two."""
    asked = []
    quantile = clusters.quantile

    def seen(tail, freedom):
        asked.append((tail, freedom.tolist()))
        return np.maximum(quantile(tail, freedom), 1e6)  # so wide that nobody leaves

    monkeypatch.setattr(clusters, "quantile", seen)
    sizes = (400, 90, 12)
    values = [np.sin(np.arange(size) + size) for size in sizes]
    arms = [clusters.Cluster(len(v), v.__getitem__) for v in values]
    offsets = np.array([0.0, 0.0, 1e4])  # the last one leads
    clusters.racing_clusters(arms, delta=0.1, rng=np.random.default_rng(0), log_prior=offsets, first=8)
    read = [[8, 47, 94, 188, 376, 400], [8, 16, 32, 64, 90], [8, 9, 12]]
    assert [list(clusters.schedule(size, 8)) for size in sizes] == read
    for look, (tail, freedom) in enumerate(asked[:-1]):
        assert tail == pytest.approx(0.1 / (2 * 5))
        single = [t[min(look, len(t) - 1)] for t in read]
        own = [math.inf if t == size else t - 1.0 for t, size in zip(single, sizes, strict=True)]
        assert freedom == [min(one, own[2]) for one in own]
    assert len(asked) == 6


def test_the_width_of_two_clusters_is_equation_26_with_variances():
    size, values = 40, np.array([0.0, 1.0, 5.0, 2.0, 2.0])
    order = np.random.default_rng(0)
    arm = clusters._Arm(clusters.Cluster(size, lambda rows: np.zeros(len(rows))), order)
    arm.values = values
    deviation = math.sqrt(((values - 2.0) ** 2).sum() / 4)
    assert arm.variance() == pytest.approx(((40 * deviation) ** 2 / 5) * (35 / 40))
    assert arm.freedom() == 4
    variances, freedom = np.array([9.0, 16.0, 0.0]), np.array([4.0, 9.0, math.inf])
    for leader, tail in itertools.product(range(3), (0.2, 0.004)):
        found = clusters.widths(variances, freedom, leader, tail)
        for other in range(3):
            fewest = min(freedom[leader], freedom[other])
            quantile = 0.0 if math.isinf(fewest) else stats.t.isf(tail, fewest)
            assert found[other] == pytest.approx(
                math.sqrt(variances[leader] + variances[other]) * quantile, rel=1e-9
            )


# Control variates, section 3.4, and Metropolis-Hastings, Equation 12


@pytest.mark.parametrize("size", [1, 2, 7, 300])
def test_what_a_control_variate_takes_off_is_given_back(size):
    """The sums of log f_n are those of the residual factors and of what is added to the prior."""
    logs = np.sin(np.arange(3.0 * size)).reshape(3, size)
    known = np.cos(np.arange(3.0 * size)).reshape(3, size) + 2.0
    proxy = Proxy(lambda rows, indices: known[rows[:, None], indices], known.mean(axis=1))
    residual, constants = controlled(Factors.of(logs), proxy)
    assert residual.sums() + constants == pytest.approx(logs.sum(axis=1))


def test_the_means_of_a_taylor_proxy_are_those_of_its_values():
    y = np.sin(np.arange(60.0)).reshape(20, 3)
    hessians = np.arange(36.0).reshape(4, 3, 3)
    proxy = taylor_proxy(
        y,
        reference=np.array([0.3, -0.2, 0.9]),
        values=np.arange(4.0),
        gradients=np.arange(12.0).reshape(4, 3),
        hessians=hessians + hessians.transpose(0, 2, 1),
    )
    assert proxy.means == pytest.approx(proxy.values(np.arange(4), np.arange(20)).mean(axis=1))


class Coin:
    """The uniform variable of Equation 12 is ``u``; the order does not matter, for everything is read."""

    def __init__(self, u):
        self.u = u

    def standard_exponential(self):
        return -math.log(self.u)

    def shuffle(self, order):
        pass


@pytest.mark.parametrize("u", [0.999, 0.4, 0.01])
def test_a_step_accepts_by_the_ratio_of_metropolis_and_hastings(u):
    """Accept x' if u p(x) q(x' | x) L(x) < p(x') q(x | x') L(x')."""
    logs = np.log([[0.5, 0.25, 0.5], [0.25, 0.5, 0.75]])
    likelihoods = np.exp(logs.sum(axis=1))
    densities = (0.1, 0.5, 1.0, 3.0)
    accepted = 0
    for prior, prior_, forth, back in itertools.product(densities, repeat=4):
        ratio = prior_ * back * likelihoods[1] / (prior * forth * likelihoods[0])
        if abs(math.log(ratio / u)) < 1e-9:
            continue
        step = metropolis_hastings_step(
            Factors.of(logs),
            log_prior=np.log([prior, prior_]),
            log_proposal=np.log([forth, back]),
            delta=0.1,
            rng=Coin(u),
            first=3,
        )
        assert step.accepted == (u < ratio)
        accepted += step.accepted
    assert 0 < accepted < len(densities) ** 4


# Over the coordinates of a catalogue


def catalogue(n=7, dim=4_096):
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((n, dim)) + 0.3 * rng.standard_normal(dim)
    query = rng.standard_normal(dim)
    return vectors, query, blocked_rewards(blocked.build(vectors, rng=np.random.default_rng(1)), query)


@pytest.mark.parametrize("delta", DELTAS)
def test_the_widths_of_catalogue_ebs_share_delta_among_arms_looks_and_sides(delta):
    _, _, rewards = catalogue()
    partial = coordinates.PartialSums(rewards)
    widths = coordinates._Bernstein(partial, rewards, delta)
    roots = rewards.root_mean_squares()
    looks = len(mips_racing.schedule(rewards))
    assert looks >= 4
    for t in widths.schedule:
        partial.read_to(t)
        radius = bernstein_serfling(
            t, 4_096, root=roots, largest=rewards.bounds.largest, level=-math.log(delta / 2 / 7 / looks)
        )
        for leader in (0, 4):
            assert widths.of(leader) == pytest.approx([one + radius[leader] for one in radius], rel=1e-12)


@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
def test_the_widths_of_catalogue_normal_are_equation_9_with_the_deviations_of_the_first_batch(variance):
    vectors, query, rewards = catalogue(dim=1_024)
    delta = 0.07
    partial = coordinates.PartialSums(rewards)
    widths = coordinates._Normal(partial, rewards, delta, variance)
    first = widths.schedule[0]
    assert first == 64
    assert widths.schedule == (64, 128, 256, 512)
    widths.read_to(first)
    batch = rewards.arms.order[:first]
    centered = (vectors - rewards.arms.columns.center) * query
    read = centered[:, batch]
    expected = normal_rules(7, 1_024, delta=delta, variance=variance, first=first)
    for t, leader in itertools.product(widths.schedule, (0, 3)):
        partial.read_to(t)
        deviations = (read - read[leader]).std(axis=1) if variance == "pairwise" else read.std(axis=1)
        single = expected.width(t, deviations, deviations)
        wanted = single if variance == "pairwise" else single + single[leader]
        found = widths.of(leader)
        assert (found >= wanted).all()
        assert found == pytest.approx(wanted, rel=2e-3, abs=2e-2 * single.max())


def test_a_race_over_few_coordinates_reads_them_all_and_ends_with_the_exact_draw():
    vectors, query, rewards = catalogue(n=40, dim=96)
    for seed in range(30):
        rng, same = (np.random.default_rng(seed) for _ in range(2))
        drawn = coordinates.race_coordinates(rewards, method="racing_ebs", delta=0.1, rng=rng)
        assert drawn.rows.tolist() == [(vectors @ query + same.gumbel(size=40)).argmax()]
        assert drawn.reads == drawn.exhaustive_reads == vectors.size
        assert drawn.raced == 1


def test_the_sums_of_all_rewards_and_the_gumbel_variables_decide():
    """N times an estimate from everything is q.x / tau + g; a part has its sum scaled up, and not g."""
    sums, gumbel = np.array([3.0, -8.0]), np.array([0.5, 1.25])
    assert 64 * coordinates.estimates(sums, 64, gumbel, 64) == pytest.approx(sums + gumbel)
    assert 64 * coordinates.estimates(sums, 16, gumbel, 64) == pytest.approx(4 * sums + gumbel)


def test_both_means_of_a_comparison_are_rounded():
    means, widths = np.array([0.0, 1.0, 0.5, 0.25]), np.array([0.5, 0.0, 0.25, 0.25])
    kept: Rows = coordinates.within(means, 1, widths, 0.25)
    assert kept.tolist() == [0, 1, 2, 3]
    assert coordinates.within(means, 1, widths, 0.125).tolist() == [1, 2]
    assert coordinates.within(means, 1, widths, 0.0).tolist() == [1]
