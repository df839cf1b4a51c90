"""Sub-Elim: every good answer is wide enough, every null is followed by progress, whatever the finder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.errors import InvalidParameter, InvalidShape
from shortlist.linear import linear_elimination, ridge, ridge_sums
from shortlist.linear.elimination import rules, start
from shortlist.linear.most_uncertain_arm import (
    AlternatingSearch,
    QuadraticSearch,
    StageSample,
    Watched,
    every_arm,
    packed,
    packed_squares,
    whole_stage,
)
from shortlist.linear.sub_elim import choose, play
from shortlist.mips.exact import exact
from shortlist.types import NO_ROWS

DIM = 4


class Scan:
    def __init__(self, features):
        self.features = features

    def search(self, query, k, exclude=NO_ROWS):
        return exact(self.features, query, k=k, exclude=exclude)


def finders(features):
    return {
        "every_arm": every_arm,
        "whole_stage": whole_stage,
        "sample": StageSample(4),
        "watched": Watched(StageSample(2)),
        "alternating": AlternatingSearch(Scan(features), lambda rows: features[rows], shortlist=2),
        "quadratic": QuadraticSearch(Scan(packed_squares(features)), shortlist=2),
        "nothing": lambda *_: NO_ROWS,
    }


def posterior_of(features, values):
    sums = ridge_sums.add(
        ridge_sums.empty(features.shape[1]), features, values, np.ones(len(values), dtype=bool)
    )
    return ridge.posterior(sums, ridge=1.0)


def simulate(features, theta, finder, *, radius, steps, seed, eta=0.02):
    """Play ``steps`` rounds; yields (state before the choice, posterior, state after, arms)."""
    rng = np.random.default_rng(seed)
    sums = ridge_sums.empty(features.shape[1])
    posterior = ridge.posterior(sums, ridge=1.0)
    state = start(
        posterior, np.arange(len(features)), lambda rows: features[rows], rules(radius=radius, eta=eta, few=0)
    )
    for _ in range(steps):
        if state.stale:
            state = start(posterior, np.arange(len(features)), lambda rows: features[rows], state.rules)
        before = state
        state, arms = play(before, posterior, lambda rows: features[rows], finder, k=1, rng=rng)
        yield before, posterior, state, arms
        row = arms.rows[:1]
        values = features[row] @ theta + rng.standard_normal(1)
        sums = ridge_sums.add(sums, features[row], values, np.ones(1, dtype=bool))
        posterior = ridge.posterior(sums, ridge=1.0)


@pytest.mark.parametrize("name", list(finders(np.ones((1, 1)))))
@pytest.mark.parametrize("radius", [0.3, 2.0])
def test_what_is_played_is_wide_enough_for_the_lowest_stage(name, radius):
    """The step of the paper's proof: 2^-s <= 2 w of the arm that is played, s the lowest stage then."""
    rng = np.random.default_rng(3)
    features = rng.standard_normal((60, DIM))
    for _, posterior, state, arms in simulate(
        features, rng.standard_normal(DIM), finders(features)[name], radius=radius, steps=120, seed=4
    ):
        span = radius * ridge.widths(posterior, features[arms.rows])[0]
        assert arms.scores[0] == pytest.approx(span)
        assert arms.rows[0] in state.living.rows()
        if not state.capped:
            assert span >= 2.0 ** -(state.stages[0].stage + 1)
            assert span >= radius * ridge.widths(posterior, features[state.living.rows()]).max() / 2


def brute_order(features, posterior, rows, radius, exclude):
    """Rows in the order of ``linear_elimination`` among themselves, and how many are not ruled out."""
    spans = radius * ridge.widths(posterior, features[rows])
    estimates = features[rows] @ posterior.theta
    hopeful = estimates + spans >= (estimates - spans).max()
    keys = [
        (not fine, -(span if fine else mean + span), row)
        for fine, span, mean, row in zip(hopeful, spans, estimates, rows.tolist(), strict=True)
        if row not in exclude
    ]
    return [row for _, _, row in sorted(keys)], int(hopeful.sum())


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 30),
    radius=st.sampled_from([0.05, 0.4, 3.0]),
    eta=st.sampled_from([0.001, 0.9]),  # with the second every arm is in the last stage
    data=st.data(),
)
def test_few_living_arms_are_compared_as_linear_elimination_compares_them(seed, k, radius, eta, data):
    rng, arms = np.random.default_rng(seed), data.draw(st.integers(4, 25))
    exclude = np.array(sorted(data.draw(st.sets(st.integers(0, arms - 1)))), dtype=np.int64)
    features = rng.standard_normal((arms, DIM))
    catalogue = (lambda rows: features[rows], every_arm)
    played = features[np.append(np.arange(3), rng.integers(0, arms, 30))]
    values = played[:, 0] + rng.standard_normal(33)
    state = start(
        posterior_of(played[:3], values[:3]), np.arange(arms), catalogue[0], rules(radius=radius, eta=eta)
    )
    posterior, living = posterior_of(played, values), state.living.rows()
    found = choose(state, posterior, *catalogue, k=k, rng=rng, exclude=exclude)
    expected, hopeful = brute_order(features, posterior, living, radius, set(exclude.tolist()))
    assert found.arms.rows.tolist() == expected[:k]
    assert found.arms.exact
    assert found.due == (2 * hopeful <= len(living))
    after, _ = play(state, posterior, *catalogue, k=k, rng=rng)
    assert after.threshold >= state.threshold
    if found.due and not after.stale:
        survivors = brute_survivors(features, posterior, living, radius, state.threshold)
        assert after.living.rows().tolist() == survivors


def brute_survivors(features, posterior, rows, radius, threshold):
    spans, estimates = radius * ridge.widths(posterior, features[rows]), features[rows] @ posterior.theta
    return rows[estimates + spans >= max((estimates - spans).max(), threshold)].tolist()


RADIUS = 1.9


def many_of_one_width(eta):
    """Unit vectors, a state made at the prior, where all have one width, and a posterior that knows more.

    Three arms were played: some widths are as they were, and most arms are ruled out.
    """
    rng = np.random.default_rng(5)
    features = rng.standard_normal((2_000, DIM))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    prior, limits = ridge.prior(DIM, ridge=1.0), rules(radius=RADIUS, eta=eta)
    state = start(prior, np.arange(2_000), lambda rows: features[rows], limits)
    return features, state, posterior_of(features[:3], np.array([30.0, -30.0, 30.0]))


@pytest.mark.parametrize(("eta", "capped"), [(0.9, True), (1e-6, False)])
def test_a_pass_follows_when_most_of_the_lowest_stage_is_ruled_out(eta, capped):
    features, state, posterior = many_of_one_width(eta)
    catalogue, options = (lambda rows: features[rows], Watched()), {"k": 1, "rng": np.random.default_rng(0)}
    assert state.capped == capped
    survivors = brute_survivors(features, posterior, np.arange(2_000), RADIUS, -np.inf)
    assert 0 < len(survivors) < 500
    if not capped:
        assert not choose(state, posterior, *catalogue, check_rate=0.0, **options).due, "no null"
    assert choose(state, posterior, *catalogue, check_rate=1.0, **options).due
    after, _ = play(state, posterior, *catalogue, check_rate=1.0, **options)
    assert after.living.rows().tolist() == survivors
    same, _ = play(after, posterior, *catalogue, check_rate=1.0, **options)
    assert same is after


@pytest.mark.parametrize("dim", [1, 2, 6, 12])
def test_the_packed_square_is_the_quadratic_form(dim):
    rng = np.random.default_rng(dim)
    root = rng.standard_normal((dim, dim))
    points = rng.standard_normal((40, dim))
    assert packed_squares(points).shape == (40, dim * (dim + 1) // 2)
    np.testing.assert_allclose(
        packed_squares(points) @ packed(root @ root.T),
        np.einsum("ij,jk,ik->i", points, root @ root.T, points),
        rtol=1e-9,
    )


@pytest.mark.rest
def test_linear_elimination_names_bad_input():
    posterior = ridge.prior(2, ridge=1.0)
    with pytest.raises(InvalidShape, match="features"):
        linear_elimination.choose(posterior, np.ones((3, 3)), k=1, radius=1.0)
    with pytest.raises(InvalidParameter, match="k"):
        linear_elimination.choose(posterior, np.ones((3, 2)), k=0, radius=1.0)
    with pytest.raises(InvalidParameter, match="radius"):
        linear_elimination.choose(posterior, np.ones((3, 2)), k=1, radius=0.0)


@pytest.mark.parametrize("few", [0, 256])
@pytest.mark.parametrize("stage", [0, 1, 7])
@pytest.mark.parametrize(
    ("factor", "broken"),
    [
        (0.4, False),
        (1 - 1e-9, False),
        (1, False),
        (1 + 1e-9, False),
        (1 + 1e-5, True),
        (1.5, True),
        (9, True),
    ],
)
def test_an_arm_wider_than_its_stage_allows_is_told(few, stage, factor, broken):
    """Widths only fall while a posterior grows, so rounding is all that could widen them."""
    features = np.full((3, 1), 2.0**-stage)
    limits = rules(radius=1.0, eta=1e-6, few=few)
    state = start(ridge.prior(1, ridge=1.0), np.arange(3), lambda rows: features[rows], limits)
    assert state.stages[0].stage == stage
    other = ridge.prior(1, ridge=factor**-2.0)
    options = {"k": 1, "rng": np.random.default_rng(0)}
    assert choose(state, other, lambda rows: features[rows], every_arm, **options).broken == broken
