"""Algorithm 1's contract and Algorithm 4's ladder, by brute force and under an adaptive adversary."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetful import Forgetful
from shortlist.errors import InvalidArgument
from shortlist.mips.adaptive import AdaptiveSolver, Ladder, Scan, adaptive, rung_of
from shortlist.mips.epsilon_net import nearest_point, solvers_needed

DIM = 3


def unit_ball(rng, count, dim=DIM):
    """Points of norm at most 1."""
    points = rng.standard_normal((count, dim))
    return points / np.maximum(np.linalg.norm(points, axis=1), 1.0)[:, None] * rng.random((count, 1)) ** 0.2


def holds(arms, query, row, solver):
    """The (c, r, epsilon) contract: {row: arm} and an answer, which may be null."""
    products = {number: float(arm @ query) for number, arm in arms.items()}
    if row is None:
        return max(products.values(), default=-math.inf) < solver.r + solver.epsilon
    return products[row] >= solver.c * solver.r - solver.epsilon


@given(
    seed=st.integers(0, 2**32),
    c=st.floats(0.05, 1.0),
    r=st.floats(0.01, 1.2),
    epsilon=st.floats(1e-3, 0.5),
    count=st.integers(1, 30),
)
def test_an_exact_solver_keeps_the_contract_on_any_query(seed, c, r, epsilon, count):
    rng = np.random.default_rng(seed)
    arms = unit_ball(rng, count)
    solver = AdaptiveSolver([Scan(arms)], c, r, epsilon)
    for query in unit_ball(rng, 5):
        assert holds(dict(enumerate(arms)), query, solver.query(query), solver)


def adversary(solvers, arms, rng, *, steps):
    """Queries near the best arm, moved at random until an answer is null, and from then on that query."""
    solver = AdaptiveSolver(solvers, 0.5, 0.8, 0.5)
    target = arms[np.linalg.norm(arms, axis=1).argmax()]
    query, failed = target / np.linalg.norm(target), 0
    for _ in range(steps):
        assert float(max(arms @ query)) >= solver.r + solver.epsilon
        if solver.query(query) is None:
            failed += 1
            continue
        moved = query + 0.3 * rng.standard_normal(DIM)
        moved /= np.linalg.norm(moved)
        query = moved if max(arms @ moved) >= solver.r + solver.epsilon else query
    return failed


# The longest arm is of norm 1.6, so that r + epsilon = 1.3 is reached on a cap of queries: a solver that
# compares products does not need |p| <= 1.
@pytest.mark.rest
def test_an_adversary_breaks_one_solver_and_not_as_many_as_the_net_needs():
    """False alarm: all kappa fail somewhere on the net with probability at most delta = 1e-6."""
    rng = np.random.default_rng(1)
    arms = unit_ball(rng, 20) * 0.5
    arms[7] *= 1.6 / np.linalg.norm(arms[7])
    kappa = solvers_needed(DIM, epsilon=0.5, delta=1e-6)
    assert adversary([Forgetful(arms, seed) for seed in range(kappa)], arms, rng, steps=2_000) == 0
    # One solver fails a fixed query with probability 0.1; the adversary makes it fail nearly always.
    broken = [adversary([Forgetful(arms, (seed, "one"))], arms, rng, steps=500) for seed in range(5)]
    assert min(broken) > 250


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32), operations=st.lists(st.sampled_from(["add", "delete", "query"]), max_size=40)
)
def test_arms_come_and_go(seed, operations):
    rng = np.random.default_rng(seed)
    kappa = solvers_needed(DIM, epsilon=0.2, delta=1e-9)
    arms = dict(enumerate(unit_ball(rng, 3)))
    solvers = [Forgetful(list(arms.values()), (seed, place)) for place in range(kappa)]
    solver = AdaptiveSolver(solvers, 0.8, 0.3, 0.2)
    for number, operation in enumerate(operations, start=3):
        if operation == "add":
            arms[number] = unit_ball(rng, 1)[0]
            for one in solvers:
                one.add(number, arms[number])
        elif operation == "delete" and arms:
            gone = list(arms)[int(rng.integers(len(arms)))]
            del arms[gone]
            for one in solvers:
                one.delete(gone)
        query = unit_ball(rng, 1)[0]
        row = solver.query(query)
        assert row is None or row in arms
        assert holds(arms, query, row, solver)


@pytest.mark.rest
def test_a_query_outside_of_the_ball_is_refused():
    with pytest.raises(InvalidArgument):
        AdaptiveSolver([Scan(np.eye(2))], 0.5, 0.5, 0.1).query(np.array([1.0, 1.0]))


@pytest.mark.rest
@given(seed=st.integers(0, 2**32), eta=st.floats(0.01, 1.0), count=st.integers(1, 40))
def test_the_ladder_is_as_many_solvers_as_it_has_rungs(seed, eta, count):
    """Asked rung by rung, as Algorithm 4 does, the largest that is not null is the one read off."""
    rng = np.random.default_rng(seed)
    arms = unit_ball(rng, count)
    largest = float(np.linalg.norm(arms, axis=1).max())
    query = rng.standard_normal(DIM)
    unit = query / np.linalg.norm(query)
    answers = {}
    for i in range(1, math.ceil(DIM / eta) + 1):
        solver = AdaptiveSolver([Scan(arms / largest)], 1 - 1 / (i + 1), i * eta / DIM, eta / DIM)
        answers[i] = solver.query(unit)
    top = max((i for i, row in answers.items() if row is not None), default=0)
    products = arms @ nearest_point(unit, epsilon=eta / DIM) / largest
    assert abs(int(rung_of(products, dim=DIM, eta=eta).max()) - top) <= (
        0 if top == 0 or abs(products.max() - top**2 / (top + 1) * eta / DIM) > 1e-12 else 1
    )
    found = Ladder([Scan(arms)], lambda rows: arms[rows], largest, eta).search(query, 1)
    assert (len(found.rows) == 0) == (top == 0)


@pytest.mark.rest
@given(
    seed=st.integers(0, 2**32), eta=st.floats(1e-4, 1.0), count=st.integers(1, 60), dim=st.integers(1, 12),
    scale=st.floats(-30, 30),
)  # fmt: skip
def test_the_ladder_falls_short_by_less_than_four_steps(seed, eta, count, dim, scale):
    rng = np.random.default_rng(seed)
    arms = rng.standard_normal((count, dim)) * 10.0**scale
    query = rng.standard_normal(dim) * 10.0**-scale
    largest = float(np.linalg.norm(arms, axis=1).max())
    step = eta / dim * largest * float(np.linalg.norm(query))
    found = adaptive(arms, query, k=1, eta=eta)
    best = float((arms @ query).max())
    if best >= 2 * step:
        assert len(found.rows) == 1
        assert found.scores[0] > best - 4 * step
    if len(found.rows):
        assert found.scores[0] == pytest.approx(arms[found.rows[0]] @ query, rel=1e-9, abs=1e-12)
        assert found.scores[0] > 0


@pytest.mark.rest
def test_a_fine_ladder_finds_the_best_and_leaves_out_what_is_negative():
    rng = np.random.default_rng(3)
    arms, query = rng.standard_normal((200, 8)), rng.standard_normal(8)
    products = arms @ query
    found = adaptive(arms, query, k=200, eta=1e-6)
    good = np.argsort(-products)[: np.count_nonzero(products > 1e-4)]
    assert set(good) <= set(found.rows.tolist())
    assert (found.scores > 0).all()
    assert found.rows[0] == products.argmax()
    assert not len(adaptive(-np.abs(arms), np.abs(query), k=3, eta=0.1).rows)
    assert not len(adaptive(arms, np.zeros(8), k=3, eta=0.1).rows)


@pytest.mark.rest
@given(values=st.lists(st.floats(-0.5, 1.2), min_size=1, max_size=20), eta=st.sampled_from([0.03, 0.25, 1.0]))
def test_a_value_is_on_the_largest_rung_that_it_reaches(values, eta):
    rungs = rung_of(np.array(values), dim=DIM, eta=eta)
    for value, rung in zip(values, rungs.tolist(), strict=True):
        reached = [
            i for i in range(1, math.ceil(DIM / eta) + 1) if i**2 / (i + 1) * eta / DIM <= value + 1e-12
        ]
        short = [i for i in range(1, math.ceil(DIM / eta) + 1) if i**2 / (i + 1) * eta / DIM <= value - 1e-12]
        assert max(short, default=0) <= rung <= max(reached, default=0)


@pytest.mark.rest
@pytest.mark.parametrize(("dim", "eta"), [(4, 0.125), (1, 1 / 64), (32, 1.0), (3, 1.0)])
def test_the_rung_is_the_largest_whose_comparison_holds(dim, eta):
    """In whole numbers: t = value d / eta in sixteenths, and i is reached if 16 i^2 <= 16 t (i + 1)."""
    rungs, sixteenths = math.ceil(dim / eta), np.arange(-32, 16 * 80)
    found = rung_of(sixteenths / 16 * (eta / dim), dim=dim, eta=eta)
    expected = [
        max((i for i in range(1, rungs + 1) if 16 * i * i <= t * (i + 1)), default=0)
        for t in sixteenths.tolist()
    ]
    if dim == 3:  # a third is rounded: a value that is just on a rung may be below it
        expected, found = np.array(expected)[sixteenths % 8 != 0], found[sixteenths % 8 != 0]
    assert list(found) == list(expected)


@pytest.mark.rest
@pytest.mark.parametrize(("dim", "eta"), [(1, 0.01), (3, 0.01), (7, 0.3), (40, 0.7)])
def test_where_the_root_is_rounded_the_comparison_decides(dim, eta):
    """At each rung, and at the numbers next to it: some roots are rounded below it, some above."""
    rungs = np.arange(1.0, math.ceil(dim / eta) + 1)
    on = rungs * rungs / (rungs + 1.0) * eta / dim
    for values in (on, np.nextafter(on, 2.0), np.nextafter(on, 0.0)):
        reached = rungs * rungs <= (values * dim / eta)[:, None] * (rungs + 1.0)
        assert rung_of(values, dim=dim, eta=eta).tolist() == reached.sum(axis=1).tolist()
