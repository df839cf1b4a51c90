"""What the races do besides being right: reads, schedules, proxies, and bad arguments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shortlist.errors import InvalidArgument
from shortlist.sampling.clusters import quantile, racing_clusters, schedule
from shortlist.sampling.control_variates import taylor_proxy
from shortlist.sampling.factors import Factors
from shortlist.sampling.lil_ucb import constants_of, lil_ucb
from shortlist.sampling.metropolis_hastings import metropolis_hastings_step
from shortlist.sampling.race import doubling
from shortlist.sampling.racing_ebs import racing_ebs
from shortlist.sampling.racing_normal import normal_rules, racing_normal

METHODS = {
    "normal": lambda factors, logs, **rest: racing_normal(factors, **rest),
    "marginal": lambda factors, logs, **rest: racing_normal(factors, variance="marginal", **rest),
    "ebs": lambda factors, logs, **rest: racing_ebs(factors, ranges=np.ptp(logs, axis=1), **rest),
    "lil": lambda factors, logs, **rest: lil_ucb(factors, ranges=np.ptp(logs, axis=1), **rest),
    "heuristic": lambda factors, logs, **rest: lil_ucb(
        factors, ranges=np.ptp(logs, axis=1), setting="heuristic", **rest
    ),
}


class Counted:
    """The factors of a matrix that remember how often each was read."""

    def __init__(self, logs):
        self.logs, self.times = logs, np.zeros(logs.shape, dtype=int)
        self.factors = Factors(*logs.shape, self.read)

    def read(self, arms, indices):
        np.add.at(self.times, (arms[:, None], indices), 1)
        return self.logs[arms[:, None], indices]


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=15)
@given(st.integers(1, 6), st.integers(1, 400), st.floats(1e-4, 10.0), st.integers(0, 999))
def test_reads_are_counted_and_no_factor_is_read_twice(method, arms, size, scale, seed):
    logs = np.random.default_rng(seed).standard_normal((arms, size)) * scale
    counted = Counted(logs)
    drawn = METHODS[method](counted.factors, logs, delta=0.1, rng=np.random.default_rng(seed))
    assert counted.times.max(initial=0) <= 1
    assert drawn.reads == counted.times.sum() <= drawn.exhaustive_reads == logs.size
    assert drawn.raced <= 1


@pytest.mark.rest
@pytest.mark.parametrize("method", METHODS)
def test_many_draws_read_everything_once_at_most(method):
    logs = np.random.default_rng(1).standard_normal((3, 2_000)) * 0.05
    drawn = METHODS[method](Factors.of(logs), logs, delta=0.1, rng=np.random.default_rng(0), draws=500)
    assert len(drawn.rows) == 500
    assert drawn.reads <= drawn.exhaustive_reads
    assert drawn.raced < 500


@pytest.mark.rest
def test_schedules_double_and_end_with_everything():
    assert doubling(50, 1_000) == (50, 100, 200, 400, 800, 1_000)
    assert doubling(50, 400) == (50, 100, 200, 400)
    assert doubling(50, 30) == (30,)
    assert schedule(1_000, 3) == (3, 102, 204, 408, 816, 1_000)
    assert schedule(5, 3) == (3, 4, 5)
    assert schedule(2, 3) == (2,)
    assert schedule(0, 3) == (0,)


@pytest.mark.rest
def test_a_rarer_error_needs_a_wider_bound():
    ones = np.ones(2)
    widths = [
        normal_rules(5, 1_000, delta=delta, variance="pairwise", first=50).width(100, ones, ones)[0]
        for delta in (0.2, 0.05, 1e-6)
    ]
    assert widths == sorted(widths)
    assert constants_of("safe", 0.1, 5).width(10) < constants_of("safe", 1e-6, 5).width(10)


@pytest.mark.rest
def test_a_quadratic_likelihood_is_its_own_taylor_proxy():
    rng = np.random.default_rng(0)
    y, centers = rng.standard_normal((500, 3)), rng.standard_normal((4, 3))
    curvature = rng.standard_normal((3, 3))
    curvature = -(curvature @ curvature.T + np.eye(3))
    reference = y.mean(axis=0)
    offsets = reference - centers
    proxy = taylor_proxy(
        y,
        reference=reference,
        values=0.5 * np.einsum("ip,pq,iq->i", offsets, curvature, offsets),
        gradients=offsets @ curvature,
        hessians=np.broadcast_to(curvature, (4, 3, 3)).copy(),
    )
    difference = y[None] - centers[:, None]
    logs = 0.5 * np.einsum("inp,pq,inq->in", difference, curvature, difference)
    assert np.allclose(proxy.values(np.arange(4), np.arange(500)), logs)
    assert np.allclose(proxy.means, logs.mean(axis=1))


@pytest.mark.rest
@pytest.mark.parametrize(("first", "raced"), [(10, 1), (299, 1), (300, 0), (400, 0)])
def test_a_first_look_at_everything_is_no_race(first, raced):
    logs = np.random.default_rng(2).standard_normal((3, 300))
    drawn = racing_normal(Factors.of(logs), delta=0.1, first=first, rng=np.random.default_rng(0))
    assert drawn.raced == raced


@pytest.mark.rest
def test_the_quantile_is_that_of_student_and_nothing_where_nothing_is_estimated():
    freedom = np.array([1.0, 2.0, 30.0, np.inf])
    found = quantile(0.002, freedom)
    np.testing.assert_allclose(found[:3], stats.t.isf(0.002, freedom[:3]))
    assert found[3] == 0.0
    assert (quantile(0.7, freedom) == 0.0).all()


@pytest.mark.rest
def test_bad_arguments_are_named():
    rng = np.random.default_rng(0)
    two = Factors.of(np.zeros((2, 3)))
    nan = Factors(2, 100, lambda arms, indices: np.full((len(arms), len(indices)), np.nan))
    flat = Factors(2, 100, lambda arms, indices: np.zeros(len(indices)))
    zeros = np.zeros(2)
    for broken in (
        lambda: racing_normal(two, delta=0.0, rng=rng),
        lambda: racing_normal(two, delta=1.0, rng=rng),
        lambda: racing_normal(two, delta=0.1, rng=rng, first=0),
        lambda: racing_normal(two, delta=0.1, rng=rng, variance="other"),
        lambda: racing_normal(nan, delta=0.1, rng=rng),
        lambda: racing_normal(flat, delta=0.1, rng=rng),
        lambda: racing_ebs(two, ranges=np.array([1.0, -1.0]), delta=0.1, rng=rng),
        lambda: racing_ebs(two, ranges=np.ones(3), delta=0.1, rng=rng),
        lambda: lil_ucb(two, ranges=np.array([1.0, np.inf]), delta=0.1, rng=rng),
        lambda: lil_ucb(two, ranges=zeros, delta=0.1, rng=rng, setting="other"),
        lambda: lil_ucb(two, ranges=zeros, delta=1.5, rng=rng),
        lambda: racing_clusters([], delta=0.1, rng=rng),
        lambda: metropolis_hastings_step(
            Factors.of(np.zeros((3, 3))), log_prior=zeros, log_proposal=zeros, delta=0.1, rng=rng
        ),
        lambda: metropolis_hastings_step(
            two, log_prior=np.array([0.0, -np.inf]), log_proposal=zeros, delta=0.1, rng=rng
        ),
    ):
        with pytest.raises(InvalidArgument) as raised:
            broken()
        assert raised.value.argument
