"""The constants of the hashed solver, computed in other ways, and the adaptive solver over such solvers."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from shortlist.errors import InvalidArgument
from shortlist.mips.adaptive import AdaptiveSolver
from shortlist.mips.epsilon_net import nearest_point, solvers_needed
from shortlist.mips.screening import lsh_mips
from shortlist.mips.screening.lsh_mips import MOST_BITS, solver_for

pytestmark = pytest.mark.rest

COSINES = (-0.9, -0.3, 0.0, 0.1, 0.4, 0.6, 0.8, 0.95, 0.999)


@functools.cache
def agree(cosine):
    """The probability that two correlated normal numbers have one sign: twice an integral over one."""
    slope = cosine / math.sqrt(1.0 - cosine**2)
    return 2.0 * integrate.quad(lambda x: stats.norm.pdf(x) * stats.norm.cdf(slope * x), 0.0, 12.0)[0]


def test_a_bit_agrees_with_the_probability_of_an_orthant():
    for cosine in COSINES:
        assert lsh_mips.collision_probability(cosine) == pytest.approx(agree(cosine), abs=1e-9)


def test_a_candidate_agrees_in_all_bits_of_at_least_one_table():
    for tables in [1, 2, 9, 50]:
        for bits in [1, 2, 7, 20]:
            for cosine in COSINES:
                whole = stats.binom.pmf(bits, bits, agree(cosine))
                expected = sum(stats.binom.pmf(j, tables, whole) for j in range(1, tables + 1))
                found = lsh_mips.success_probability(cosine, bits=bits, tables=tables)
                assert found == pytest.approx(expected, rel=1e-6)


def test_tables_are_the_least_that_find_an_arm_nine_times_of_ten():
    for bits in [1, 2, 4, 7]:
        for cosine in COSINES[2:]:
            missed, tables = 1.0, 0
            while missed > 0.1:
                missed, tables = missed * (1.0 - agree(cosine) ** bits), tables + 1
            assert lsh_mips.tables_needed(cosine, bits=bits) == tables


def test_bits_are_those_of_the_fewest_products():
    """Hashing costs a b products, and each of n arms is scored if it agrees in all bits of some table."""
    for count in [1, 50, 10_000, 10**9]:
        for far in [0.0, 0.3, 0.45]:
            for near in [0.5, 0.8, 0.95]:
                products = []
                for bits in range(1, MOST_BITS + 1):
                    missed, tables = 1.0, 0
                    while missed > 0.1 and tables < 2_000:
                        missed, tables = missed * (1.0 - agree(near) ** bits), tables + 1
                    if tables == 2_000:
                        break
                    scored = count * stats.binom.sf(0, tables, agree(far) ** bits)
                    products.append(bits * tables + scored)
                    found = lsh_mips.products_needed(count, near=near, far=far, bits=bits)
                    assert found == pytest.approx(products[-1], rel=1e-6)
                chosen = lsh_mips.bits_for(count, near=near, far=far)
                assert chosen >= len(products) or products[chosen - 1] == pytest.approx(
                    min(products), rel=1e-6
                )


@given(
    seed=st.integers(0, 2**32), dim=st.integers(1, 20), epsilon=st.floats(0.01, 0.9), r=st.floats(0.01, 0.99)
)
def test_an_arm_that_counts_has_the_least_cosine_at_least(seed, dim, epsilon, r):
    """Of arms of norm at most 1, one of norm 1 and product r with the rounded query is furthest from it."""
    rng = np.random.default_rng(seed)
    query = rng.standard_normal(dim)
    rounded = nearest_point(query / np.linalg.norm(query), epsilon=epsilon)
    norm = float(np.linalg.norm(rounded))
    half_a_step = np.full(dim, epsilon / dim / 2.0)
    least = lsh_mips.least_cosine(r, dim=dim, epsilon=epsilon)
    assert least == pytest.approx(r / (1.0 + np.linalg.norm(half_a_step)))
    assert r <= max(norm, r) * 1.0
    if norm > 0.0:
        assert r / norm >= least * (1.0 - 1e-12)


def cap(arm, least, rng):
    """Unit queries whose product with a unit arm is ``least`` or little more."""
    while True:
        side = rng.standard_normal(len(arm))
        side -= (side @ arm) * arm
        along = rng.uniform(least, least + 0.02)
        yield along * arm + math.sqrt(1.0 - along**2) * side / np.linalg.norm(side)


C, R, EPSILON, DIM = 0.5, 0.8, 0.02, 8


def arms_around(arm, rng, count=50):
    """One arm of norm 1, and others that are too short to be an answer."""
    others = rng.standard_normal((count - 1, len(arm)))
    return np.vstack((arm, 0.9 * C * R * others / np.linalg.norm(others, axis=1, keepdims=True)))


def failures(solvers, arm, rng, *, steps):
    """Queries that are answered wrongly, of an adversary who stays with the first one."""
    solver = AdaptiveSolver(solvers, C, R, EPSILON)
    queries = cap(arm, R + EPSILON, rng)
    query = next(queries)
    failed = 0
    for _ in range(steps):
        if solver.query(query) is None:
            failed += 1
        else:
            query = next(queries)
    return failed


def hashed(arms, seeds):
    return [
        solver_for(arms, c=C, r=R, epsilon=EPSILON, rng=np.random.default_rng((4, seed))) for seed in seeds
    ]


def test_an_adversary_breaks_shared_tables_and_not_independent_ones():
    """False alarm: all kappa solvers fail somewhere on the net with probability at most delta = 1e-6.

    As many solvers that share their tables are one solver: it fails on one of these queries in twenty, and
    then always. A query in ten would be allowed if nobody stayed with it.
    """
    rng = np.random.default_rng(1)
    arm = np.eye(DIM)[0]
    arms = arms_around(arm, rng)
    kappa = solvers_needed(DIM, epsilon=EPSILON, delta=1e-6)
    assert failures(hashed(arms, range(kappa)), arm, rng, steps=300) == 0
    shared = [failures(hashed(arms, [seed]) * 2, arm, rng, steps=300) for seed in range(5)]
    assert np.median(shared) > 150


def test_a_solver_is_cut_for_its_contract():
    rng = np.random.default_rng(2)
    arms = arms_around(np.eye(DIM)[0], rng)
    solver = solver_for(arms, c=C, r=R, epsilon=EPSILON, rng=rng)
    least = R / (1.0 + EPSILON / (2.0 * math.sqrt(DIM)))
    assert solver.bits == lsh_mips.bits_for(50, near=least, far=0.4)
    assert solver.tables == lsh_mips.tables_needed(least, bits=solver.bits)
    # The best candidate is returned, so an answer is checked against c r by the adaptive solver alone.
    assert set(solver.search(arms[0], 1).rows) <= {0}


@pytest.mark.parametrize("bad", [{"c": 0.0}, {"c": 1.1}, {"r": 0.0}, {"r": 1.1}])
def test_bad_parameters_are_named(bad):
    with pytest.raises(InvalidArgument) as raised:
        solver_for(np.eye(2), **{"c": 0.5, "r": 0.5, "epsilon": 0.1, "rng": np.random.default_rng(0), **bad})
    assert (raised.value.argument,) == tuple(bad)
