"""The samplers' promise: the arm of exact Gumbel-max, but for a share of at most delta.

A draw and its exact answer share their Gumbel variables, so errors are counted, not estimated. A rate of at
most delta is rejected beyond the binomial quantile at 1e-8: over all tests of this file the false-alarm
probability stays below 1e-6. Each promise has a broken variant that the same test must reject.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from shortlist.sampling import clusters as clusters_module
from shortlist.sampling import racing_ebs as ebs_module
from shortlist.sampling import racing_normal as normal_module
from shortlist.sampling.clusters import Cluster, racing_clusters
from shortlist.sampling.control_variates import Proxy, controlled
from shortlist.sampling.factors import Factors
from shortlist.sampling.lil_ucb import Constants, lil_ucb
from shortlist.sampling.metropolis_hastings import metropolis_hastings_step
from shortlist.sampling.racing_ebs import racing_ebs
from shortlist.sampling.racing_normal import racing_normal

pytestmark = pytest.mark.rest

ALARM = 1e-8
DELTA = 0.1
RUNS = pytest.mark.parametrize("runs", [200, pytest.param(600, marks=pytest.mark.slow)])
P = np.array([0.28, 0.2, 0.16, 0.12, 0.09, 0.06, 0.04, 0.03, 0.015, 0.005])
POPULATIONS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "lognormal": lambda rng, shape: rng.lognormal(0.0, 2.0, shape),
}
HARD, EASY = 0.1, 1e-3


def allowed(runs, rate):
    return int(stats.binom.isf(ALARM, runs, rate))


def matrix(kind, sigma, *, arms=10, size=4_000, seed=1):
    """Log factors of standard deviation ``sigma`` whose sums are log p."""
    noise = POPULATIONS[kind](np.random.default_rng(seed), (arms, size))
    noise -= noise.mean(axis=1, keepdims=True)
    noise /= noise.std(axis=1, keepdims=True)
    p = P[:arms] if arms <= len(P) else np.random.default_rng(2).dirichlet(np.ones(arms))
    return np.log(p / p.sum())[:, None] / size + sigma * noise


def exact(logs, seed, prior=0.0):
    return int((logs.sum(axis=1) + prior + np.random.default_rng(seed).gumbel(size=len(logs))).argmax())


def errors(sampler, logs, runs):
    """How many draws differ from the exact one, and the share of factors read."""
    factors, wrong, reads = Factors.of(logs), 0, 0
    for seed in range(runs):
        drawn = sampler(factors, np.random.default_rng(seed))
        assert drawn.reads <= drawn.exhaustive_reads == logs.size
        wrong += drawn.rows[0] != exact(logs, seed)
        reads += drawn.reads
    return wrong, reads / (runs * logs.size)


def normal(factors, rng):
    return racing_normal(factors, delta=DELTA, rng=rng)


def marginal(factors, rng):
    return racing_normal(factors, delta=DELTA, rng=rng, variance="marginal")


def few_of(*cases, quick):
    """All cases, of which ``make test`` runs those at the places ``quick``."""
    slow = [pytest.param(*case, marks=pytest.mark.slow) for case in cases]
    return [cases[place] if place in quick else slow[place] for place in range(len(cases))]


@RUNS
@pytest.mark.parametrize(
    ("sampler", "kind"), few_of(*itertools.product([normal, marginal], POPULATIONS), quick={2, 4})
)
def test_racing_normal_errs_at_most_delta_where_the_noise_hides_everything(kind, sampler, runs):
    wrong, share = errors(sampler, matrix(kind, HARD), runs)
    assert wrong <= allowed(runs, DELTA)
    assert share > 0.8


@pytest.mark.parametrize("arms", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_racing_normal_errs_at_most_delta_with_few_and_many_arms(arms):
    wrong, _ = errors(normal, matrix("lognormal", HARD, arms=arms, size=2_000), 300)
    assert wrong <= allowed(300, DELTA)


def test_racing_normal_is_sharp_for_two_arms():
    """A bound that is never used up would pass everything else: here errors come close to delta."""
    wrong, _ = errors(normal, matrix("normal", HARD, arms=2, size=5_000), 600)
    assert wrong >= stats.binom.ppf(ALARM, 600, 0.5 * DELTA)


@pytest.mark.parametrize(
    "kind", ["normal", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("uniform", "lognormal"))]
)
def test_a_third_of_the_width_of_racing_normal_errs_more(kind, monkeypatch):
    monkeypatch.setattr(normal_module, "b_normal", lambda delta, share: 1.0)
    wrong, _ = errors(normal, matrix(kind, HARD), 200)
    assert wrong > allowed(200, DELTA)


@pytest.mark.parametrize(
    ("method", "sigma", "kind"),
    few_of(*itertools.product([racing_ebs, lil_ucb], [HARD, EASY], POPULATIONS), quick={1, 7}),
)
def test_the_proven_methods_err_at_most_delta(method, sigma, kind):
    logs = matrix(kind, sigma, size=1_000)
    ranges = np.ptp(logs, axis=1)
    wrong, _ = errors(lambda f, rng: method(f, ranges=ranges, delta=DELTA, rng=rng), logs, 60)
    assert wrong <= allowed(60, DELTA)


def test_racing_ebs_with_a_width_that_is_too_small_errs_more(monkeypatch):
    true = ebs_module.empirical_bernstein_serfling
    monkeypatch.setattr(
        ebs_module, "empirical_bernstein_serfling", lambda *args, **named: 0.05 * true(*args, **named)
    )
    logs = matrix("uniform", HARD, size=1_000)
    ranges = np.ptp(logs, axis=1)
    wrong, _ = errors(lambda f, rng: racing_ebs(f, ranges=ranges, delta=DELTA, rng=rng), logs, 100)
    assert wrong > allowed(100, DELTA)


def test_lil_ucb_with_a_width_that_is_too_small_errs_more(monkeypatch):
    true = Constants.width
    monkeypatch.setattr(Constants, "width", lambda self, t: 0.1 * true(self, t))
    logs = matrix("uniform", HARD, size=1_000)
    ranges = np.ptp(logs, axis=1)
    wrong, _ = errors(lambda f, rng: lil_ucb(f, ranges=ranges, delta=DELTA, rng=rng), logs, 100)
    assert wrong > allowed(100, DELTA)


def proposition_7(logs, seed, variance, first=50):
    """Equation 10 for the Gumbel variables of a seed. All of it is from the whole population."""
    arms, size = logs.shape
    sums = logs.sum(axis=1) + np.random.default_rng(seed).gumbel(size=arms)
    best = sums.argmax()
    pair = variance == "pairwise"
    deviations = (logs - logs[best]).std(axis=1) if pair else logs.std(axis=1) + logs[best].std()
    others = np.arange(arms) != best
    gap = ((sums[best] - sums)[others] / size / deviations[others]).min()
    bound = normal_module.b_normal(DELTA / (arms - pair), first / size)
    needed = size / ((size - 1) * gap**2 / (4 * bound**2) + 1)
    return arms * min(size, first * 2 ** max(0, int(np.ceil(np.log2(needed / first)))))


def beyond_proposition_7(variance, runs):
    """How many draws read more than Equation 10, and how many of the bounds say less than everything."""
    logs = matrix("normal", 3e-4, size=10_000)
    factors, beyond, saying = Factors.of(logs), 0, 0
    for seed in range(runs):
        drawn = racing_normal(factors, delta=DELTA, rng=np.random.default_rng(seed), variance=variance)
        most = proposition_7(logs, seed, variance)
        beyond += drawn.reads > most
        saying += most < logs.size
    return beyond, saying


@pytest.mark.parametrize("variance", ["pairwise", pytest.param("marginal", marks=pytest.mark.slow)])
def test_a_draw_reads_no_more_than_proposition_7_and_with_wide_widths_more(variance, monkeypatch):
    beyond, saying = beyond_proposition_7(variance, 150)
    assert beyond <= allowed(150, DELTA)
    assert saying > 100
    true = normal_module.normal_width
    monkeypatch.setattr(normal_module, "normal_width", lambda size, bound: true(size, 4.0 * bound))
    assert beyond_proposition_7(variance, 150)[0] > allowed(150, DELTA)


def correlated(size=20_000, arms=5):
    """Arms that share most of their noise, as likelihoods of the same observations do."""
    rng = np.random.default_rng(3)
    shared = rng.standard_normal(size) * 0.02
    own = rng.standard_normal((arms, size)) * 1e-3
    own -= own.mean(axis=1, keepdims=True)
    return np.log(P[:arms])[:, None] / size + own + shared - shared.mean(), shared


def test_a_control_variate_reads_less_and_changes_no_answer():
    rng, size, arms = np.random.default_rng(3), 20_000, 5
    known = rng.standard_normal((arms, size)) * 0.02
    logs, _ = correlated()
    logs += known
    proxy = Proxy(lambda rows, indices: known[rows[:, None], indices], known.mean(axis=1))

    def helped(factors, generator):
        residual, constants = controlled(factors, proxy)
        return racing_normal(residual, delta=DELTA, rng=generator, log_prior=constants)

    wrong, share = errors(helped, logs, 60)
    _, alone = errors(normal, logs, 60)
    assert wrong <= allowed(60, DELTA)
    assert share < 0.5 * alone

    def biased(factors, generator):
        residual, constants = controlled(factors, Proxy(proxy.values, 0.0 * proxy.means))
        return racing_normal(residual, delta=DELTA, rng=generator, log_prior=constants)

    assert errors(biased, logs, 60)[0] > allowed(60, DELTA)


SIZES = (2_000, 900, 400, 150, 7, 1)


def cluster_sums(kind, sizes, seed=6):
    """Log factors of clusters of these sizes; the sums are log p."""
    rng = np.random.default_rng(seed)
    values = [POPULATIONS[kind](rng, size) for size in sizes]
    values = [0.3 * (v - v.mean()) / (v.std() or 1.0) for v in values]
    return [v + np.log(w) / len(v) for v, w in zip(values, P, strict=False)]


CLUSTER_DELTA = 0.01


def cluster_errors(runs, kind="normal", sizes=SIZES, **options):
    values = cluster_sums(kind, sizes)
    sums = np.array([v.sum() for v in values])
    arms = [Cluster(len(v), v.__getitem__) for v in values]
    wrong, reads = 0, 0
    for seed in range(runs):
        drawn = racing_clusters(arms, delta=CLUSTER_DELTA, rng=np.random.default_rng(seed), **options)
        assert drawn.reads <= drawn.exhaustive_reads
        wrong += drawn.rows[0] != (sums + np.random.default_rng(seed).gumbel(size=len(sums))).argmax()
        reads += drawn.reads
    return wrong, reads / (runs * sum(map(len, values)))


@pytest.mark.parametrize(
    ("kind", "sizes"),
    few_of(*itertools.product(["normal", "uniform"], [SIZES, (500,) * 6]), quick={0}),
    ids=["normal-unequal", "normal-equal", "uniform-unequal", "uniform-equal"],
)
def test_clusters_err_at_most_delta_by_default(kind, sizes):
    wrong, share = cluster_errors(600, kind, sizes)
    assert wrong <= allowed(600, CLUSTER_DELTA)
    assert share < 0.999


@pytest.mark.parametrize("runs", [100, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("first", [2, 3])
def test_clusters_of_gaussian_factors_err_at_most_delta_after_any_first_batch(first, runs):
    """One degree of freedom is enough for Student's quantile."""
    assert cluster_errors(runs, first=first)[0] <= allowed(runs, CLUSTER_DELTA)


def printed_quantile(tail, freedom):
    return np.full(len(freedom), -stats.norm.ppf(tail))


def printed_variance(arm):
    t, size = len(arm.values), arm._cluster.size  # private: a broken variant of the same arm
    return 0.0 if t == size else (size * arm.values.std()) ** 2 / t * (1.0 - (t - 1) / (size - 1))


@pytest.mark.parametrize("kind", ["normal", pytest.param("uniform", marks=pytest.mark.slow)])
def test_the_printed_widths_after_the_printed_first_batch_err_more(kind, monkeypatch):
    """The deviation of three factors is taken for that of all: one draw in eleven is wrong."""
    monkeypatch.setattr(clusters_module, "quantile", printed_quantile)
    monkeypatch.setattr(clusters_module._Arm, "variance", printed_variance)
    assert cluster_errors(600, kind, first=3)[0] > allowed(600, CLUSTER_DELTA)


def test_equation_26_as_it_is_printed_errs_more(monkeypatch):
    """Deviations in place of variances: their sum, rooted, is far too small a width for large clusters."""
    true = clusters_module._Arm.variance
    monkeypatch.setattr(clusters_module._Arm, "variance", lambda self: np.sqrt(true(self)))
    assert cluster_errors(200)[0] > allowed(200, CLUSTER_DELTA)


def mh_errors(runs, size=20_000):
    """Steps of a random walk on the mean of a Gaussian, decided with the same u exactly and by the race."""
    data = np.random.default_rng(1).normal(0.3, 1.0, size)
    wrong, reads = 0, 0
    for seed in range(runs):
        move = np.random.default_rng(10_000 + seed)
        states = np.array([0.3, 0.3]) + move.normal(0.0, size**-0.5, 2)

        def log_likelihood(rows, indices, states=states):
            return -0.5 * (data[indices] - states[rows][:, None]) ** 2

        factors = Factors(2, size, log_likelihood)
        step = metropolis_hastings_step(
            factors,
            log_prior=np.zeros(2),
            log_proposal=np.zeros(2),
            delta=DELTA,
            rng=np.random.default_rng(seed),
        )
        first, second = factors.sums()
        wrong += step.accepted != (second - first > -np.random.default_rng(seed).standard_exponential())
        reads += step.reads
    return wrong, reads / (runs * 2 * size)


def test_metropolis_hastings_errs_at_most_delta_and_a_narrow_width_more(monkeypatch):
    wrong, share = mh_errors(150)
    assert wrong <= allowed(150, DELTA)
    assert share < 0.95
    monkeypatch.setattr(normal_module, "b_normal", lambda delta, share: 0.3)
    assert mh_errors(150)[0] > allowed(150, DELTA)
