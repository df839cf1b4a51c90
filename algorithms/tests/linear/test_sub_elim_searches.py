"""Which searches SubElim makes, and what an index that lacks arms does to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sub_elim import (
    DIM,
    RADIUS,
    Scan,
    brute_order,
    brute_survivors,
    finders,
    many_of_one_width,
    posterior_of,
)

from shortlist.errors import InvalidParameter
from shortlist.linear import linear_elimination, ridge, sub_elim
from shortlist.linear.elimination import add, delete, rules, start
from shortlist.linear.most_uncertain_arm import (
    AlternatingSearch,
    StageSample,
    Watched,
    every_arm,
    whole_stage,
)
from shortlist.linear.sub_elim import choose, play
from shortlist.types import NO_ROWS

pytestmark = pytest.mark.rest


def test_a_null_is_followed_by_a_pass_and_the_lowest_stage_rises():
    features = np.eye(2)
    old = ridge.prior(2, ridge=1.0)
    state = start(old, np.arange(2), lambda rows: features[rows], rules(radius=1.0, eta=0.001, few=0))
    known = posterior_of(np.repeat(features, 400, axis=0), np.zeros(800))
    options = {"k": 1, "rng": np.random.default_rng(0)}
    null = choose(state, known, lambda rows: features[rows], whole_stage, **options)
    assert null.due
    assert len(null.arms.rows) == 1
    after, arms = play(state, known, lambda rows: features[rows], whole_stage, **options)
    assert after.stages[0].stage > state.stages[0].stage + 1
    assert arms.scores[0] >= 2.0 ** -(after.stages[0].stage + 1)
    assert not choose(after, known, lambda rows: features[rows], whole_stage, **options).due


def test_in_the_last_stage_the_choice_is_uniform():
    """False alarm at most 1e-6 (chi-square), seed fixed."""
    features = np.ones((6, 1)) * 0.001
    state = start(
        ridge.prior(1, ridge=1.0),
        np.arange(6),
        lambda rows: features[rows],
        rules(radius=1.0, eta=0.01, few=0),
    )
    assert state.capped
    rng = np.random.default_rng(0)
    played = [
        choose(
            state, ridge.prior(1, ridge=1.0), lambda rows: features[rows], every_arm, k=1, rng=rng
        ).arms.rows[0]
        for _ in range(3000)
    ]
    counts = np.bincount(played, minlength=6)
    assert ((counts - 500) ** 2 / 500).sum() < 36.9  # chi-square(5) at 1 - 6e-7


def test_in_the_last_stage_a_sample_is_compared():
    """Of 2,000 arms 128 are drawn. The widest that the sample does not rule out is above average in both."""
    features, state, posterior = many_of_one_width(0.9)
    catalogue, rng = (lambda rows: features[rows], Watched()), np.random.default_rng(1)
    spans, estimates = RADIUS * ridge.widths(posterior, features), features @ posterior.theta
    found = [choose(state, posterior, *catalogue, k=1, rng=rng).arms for _ in range(200)]
    rows = [int(arms.rows[0]) for arms in found]
    assert not any(arms.exact for arms in found)
    assert len(set(rows)) > 20
    upper = estimates[rows] + spans[rows]
    assert (upper >= np.quantile(estimates - spans, 0.9)).all()
    more = choose(state, posterior, *catalogue, k=150, rng=rng, exclude=np.arange(100)).arms.rows.tolist()
    assert len(set(more)) == 150
    assert min(more) >= 100


def test_passes_end_when_the_threshold_is_contradicted():
    """The estimate falls from 9 to 1: no arm reaches r any more, and most are ruled out besides."""
    features = np.array([[1.0], [0.993], [0.991]])
    high = posterior_of(np.ones((50, 1)), np.full(50, 9.0))
    low = posterior_of(np.ones((20_000, 1)), np.ones(20_000))
    state = start(high, np.arange(3), lambda rows: features[rows], rules(radius=0.4, eta=1e-6))
    assert state.living.count == 3
    options = {"k": 1, "rng": np.random.default_rng(0)}
    after, arms = play(state, low, lambda rows: features[rows], every_arm, **options)
    assert after.stale
    assert after.living.count == 3
    assert arms.rows.tolist() == [0]


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    arms=st.integers(1, 25),
    k=st.integers(1, 30),
    name=st.sampled_from(sorted(finders(np.ones((1, 1))))),
    data=st.data(),
)
def test_k_distinct_living_arms_outside_the_excluded_come_widest_first(seed, arms, k, name, data):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((arms, DIM))
    posterior = posterior_of(features[rng.integers(0, arms, 10)], rng.standard_normal(10))
    state = start(posterior, np.arange(arms), lambda rows: features[rows], rules(radius=1.0, eta=0.01, few=0))
    exclude = np.array(sorted(data.draw(st.sets(st.integers(0, arms - 1)))), dtype=np.int64)
    eligible = set(state.living.rows().tolist()) - set(exclude.tolist())
    options = {"k": k, "rng": rng, "exclude": exclude}
    found = choose(state, posterior, lambda rows: features[rows], finders(features)[name], **options).arms
    assert len(set(found.rows.tolist())) == len(found.rows) == min(k, len(eligible))
    assert set(found.rows.tolist()) <= eligible
    assert (np.diff(found.scores) <= 0).all()
    np.testing.assert_allclose(found.scores, ridge.widths(posterior, features[found.rows]), rtol=1e-9)


def test_no_k_is_refused_and_no_arm_is_an_empty_answer():
    features = np.ones((2, 1))
    posterior = ridge.prior(1, ridge=1.0)
    state = start(posterior, np.arange(2), lambda rows: features[rows], rules(radius=1.0, eta=0.01, few=0))
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidParameter, match="k"):
        choose(state, posterior, lambda rows: features[rows], every_arm, k=0, rng=rng)
    gone = delete(state, np.arange(2))
    assert not len(choose(gone, posterior, lambda rows: features[rows], every_arm, k=1, rng=rng).arms.rows)


@pytest.mark.parametrize("dim", [2, 8, 16])
@pytest.mark.parametrize("skewed", [False, True])
def test_the_searches_find_what_they_promise(dim, skewed):
    """The quadratic index finds the widest; alternation a quarter of its square, which is the paper's c."""
    rng = np.random.default_rng(dim)
    features = rng.standard_normal((3000, dim)) * (rng.lognormal(0, 1, (3000, 1)) if skewed else 1.0)
    played = features[rng.integers(0, 3000, 5 * dim)]
    posterior = posterior_of(played, rng.standard_normal(len(played)))
    state = start(
        posterior, np.arange(3000), lambda rows: features[rows], rules(radius=1.0, eta=0.001, few=0)
    )
    spans = ridge.widths(posterior, features)
    living = spans[state.living.rows()].max()
    quadratic = finders(features)["quadratic"](posterior, state, rng)
    if spans.argmax() in set(state.living.rows().tolist()):
        assert spans.argmax() in quadratic
    alternating = AlternatingSearch(Scan(features), lambda rows: features[rows])
    for _ in range(20):
        rows = state.living.among(alternating(posterior, state, rng))
        assert spans[rows].max() ** 2 >= living**2 / 4


def test_new_arms_are_played_before_narrower_ones():
    features = np.vstack((np.eye(DIM) * 0.1, np.eye(DIM)[:1] * 8))
    posterior = ridge.prior(DIM, ridge=1.0)
    state = start(posterior, np.arange(DIM), lambda rows: features[rows], rules(radius=1.0, eta=0.001, few=0))
    state = add(state, posterior, np.array([DIM]), lambda rows: features[rows])
    for find in finders(features).values():
        rng = np.random.default_rng(0)
        assert play(state, posterior, lambda rows: features[rows], find, k=1, rng=rng)[1].rows.tolist() == [
            DIM
        ]


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    arms=st.integers(0, 20),
    k=st.integers(1, 25),
    radius=st.sampled_from([0.1, 1, 9]),
)
def test_linear_elimination_is_its_definition(seed, arms, k, radius):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((arms, DIM))
    posterior = posterior_of(rng.standard_normal((20, DIM)), rng.standard_normal(20))
    exclude = np.flatnonzero(rng.random(arms) < 0.2)
    found = linear_elimination.choose(posterior, features, k=k, radius=radius, exclude=exclude)
    inverse = posterior.root @ posterior.root.T
    scored = []
    lower = [x @ posterior.theta - radius * np.sqrt(x @ inverse @ x) for x in features]
    for row, x in enumerate(features):
        span = radius * np.sqrt(x @ inverse @ x)
        upper = x @ posterior.theta + span
        if row not in exclude:
            scored.append((upper < max(lower), -span if upper >= max(lower) else -upper, row))
    assert found.rows.tolist() == [row for _, _, row in sorted(scored)][:k]
    assert found.exact


def test_a_finder_that_lies_changes_nothing_but_the_cost():
    """Proposals that were eliminated, deleted or never there are left out."""
    rng = np.random.default_rng(2)
    features = rng.standard_normal((30, DIM))
    posterior = posterior_of(features, 3 * features[:, 0])
    state = start(posterior, np.arange(30), lambda rows: features[rows], rules(radius=0.3, eta=0.001, few=0))
    dead = np.setdiff1d(np.arange(30), state.living.rows())
    assert len(dead)
    found = choose(
        state, posterior, lambda rows: features[rows], lambda *_: np.append(dead, 10**6), k=1, rng=rng
    )
    assert found.due
    assert found.arms.rows[0] in state.living.rows()
    assert isinstance(found, sub_elim.EliminationChoice)


class Coin:
    """A generator whose uniform numbers are all the same."""

    def __init__(self, value):
        self.value, self.rng = value, np.random.default_rng(0)

    def random(self):
        return self.value

    def integers(self, *words):
        return self.rng.integers(*words)


def test_one_choice_in_32_compares_a_sample_of_32_as_well():
    features, state, posterior = many_of_one_width(1e-6)
    for value, compared in ((0.0, [32]), (1 / 32 - 1e-9, [32]), (1 / 32, []), (0.9, [])):
        read = []

        def features_of(rows, read=read):
            read.append(len(rows))
            return features[rows]

        found = choose(state, posterior, features_of, lambda *_: state.watched, k=1, rng=Coin(value))
        assert read == [len(state.watched), *compared]
        assert found.due == bool(compared)


def test_missing_arms_are_drawn_from_all_stages():
    """By a finder that finds nothing: 40 arms are in the lowest stage, 160 in the next."""
    features = np.repeat([[0.9], [0.3]], (40, 160), axis=0)
    prior = ridge.prior(1, ridge=1.0)
    state = start(prior, np.arange(200), lambda rows: features[rows], rules(radius=1.0, eta=1e-6, few=0))
    assert state.sizes() == [(0, 40), (1, 160)]
    assert not state.capped
    rng = np.random.default_rng(0)
    rows = [
        choose(state, prior, lambda rows: features[rows], lambda *_: NO_ROWS, k=1, rng=rng).arms.rows.item()
        for _ in range(200)
    ]
    assert 130 < sum(row >= 40 for row in rows) < 190


def of_two_stages(**options):
    """Ten arms in stage 0, forty in stage 1, nothing learned."""
    features = np.repeat([[0.9], [0.4]], (10, 40), axis=0)
    limits = rules(**({"radius": 1.0, "eta": 1e-6, "few": 0} | options))
    prior = ridge.prior(1, ridge=1.0)
    return features, prior, start(prior, np.arange(50), lambda rows: features[rows], limits)


def test_what_is_done_follows_the_lowest_stage_not_the_last():
    features, prior, state = of_two_stages()
    assert state.sizes() == [(0, 10), (1, 40)]
    assert state.pass_size == 10
    rng = np.random.default_rng(0)
    assert whole_stage(prior, state, rng).tolist() == list(range(10))
    assert StageSample(10)(prior, state, rng).tolist() == list(range(10))
    assert StageSample(9)(prior, state, rng).max() < 10
    options = {"k": 1, "rng": rng, "check_rate": 0.0}
    wide = choose(state, prior, lambda rows: features[rows], every_arm, **options)
    assert (wide.due, wide.broken, wide.arms.rows.item()) == (False, False, 0)
    narrow = choose(state, prior, lambda rows: features[rows], lambda *_: np.array([20]), **options)
    assert narrow.due, "0.4 is less than half of 1, if more than half of 1/2"


def test_a_state_that_is_sampled_is_so_from_its_lowest_stage():
    """Were the sample from all stages, most of it would be ruled out."""
    features = np.repeat([[0.9, 0.0], [0.0, 0.4]], (300, 900), axis=0)
    prior = ridge.prior(2, ridge=1.0)
    state = start(prior, np.arange(1_200), lambda rows: features[rows], rules(radius=1.0, eta=1e-6))
    seen = []

    def features_of(rows):
        seen.append(rows)
        return features[rows]

    choose(
        state, prior, features_of, lambda *_: np.array([0]), k=1, rng=np.random.default_rng(0), check_rate=1
    )
    assert [len(rows) for rows in seen] == [1, 32]
    assert seen[1].max() < 300


@pytest.mark.parametrize("exclude", [[], [3, 8]])
def test_of_few_arms_the_widest_with_hope_come_first_then_those_of_largest_bound(exclude):
    """Twelve arms of other widths and means each; half of them are ruled out."""
    features = np.vstack((np.linspace(-1.0, 1.0, 12), np.arange(12) * 5 % 12 / 12.0)).T
    played = np.vstack((np.repeat([[1.0, 0.0]], 60, axis=0), np.repeat([[0.0, 1.0]], 20, axis=0)))
    posterior = posterior_of(played, played[:, 0])
    state = start(
        ridge.prior(2, ridge=1.0), np.arange(12), lambda rows: features[rows], rules(radius=1.5, eta=1e-6)
    )
    expected, hopeful = brute_order(features, posterior, np.arange(12), 1.5, set(exclude))
    assert 3 <= hopeful <= 9
    for k in (1, 2, 7, 12):
        options = {"k": k, "rng": np.random.default_rng(0), "exclude": np.array(exclude, dtype=np.int64)}
        found = choose(state, posterior, lambda rows: features[rows], every_arm, **options)
        assert found.arms.rows.tolist() == expected[:k]


def test_after_a_pass_the_next_stage_is_looked_at_too():
    """The first stage is known well and left; of the second most arms are ruled out, and none is a null."""
    rng = np.random.default_rng(8)
    first = np.zeros((50, DIM))
    first[:, 0] = rng.uniform(0.95, 1.0, 50)
    second = np.zeros((400, DIM))
    second[:, 1] = rng.uniform(-0.3, 0.3, 400)
    second[:360, 1] = -0.3
    second[:, 2] = np.sqrt(0.45**2 - second[:, 1] ** 2)
    second[:360, 2] *= 0.2
    features = np.concatenate((first, second))
    state = start(
        ridge.prior(DIM, ridge=1.0), np.arange(450), lambda rows: features[rows], rules(radius=1.0, eta=1e-6)
    )
    played = np.concatenate(
        (np.repeat(np.eye(DIM)[:1], 4_000, axis=0), np.repeat(np.eye(DIM)[1:2], 60, axis=0))
    )
    posterior = posterior_of(played, played @ np.array([0.1, 2.0, 0.0, 0.0]))
    options = {"k": 1, "rng": np.random.default_rng(0), "check_rate": 1.0}
    after, _ = play(state, posterior, lambda rows: features[rows], Watched(), **options)
    survivors = brute_survivors(features, posterior, np.arange(450), 1.0, -np.inf)
    assert [count for _, count in state.sizes()] == [50, 400]
    assert 0 < len(survivors) < 100
    assert after.living.rows().tolist() == survivors
