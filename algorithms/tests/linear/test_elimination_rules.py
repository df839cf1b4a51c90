"""The rules of elimination one by one: stages, thresholds, arms without hope."""

from __future__ import annotations

import numpy as np
import pytest
from test_elimination import DIM, EliminationRun

from shortlist.errors import InvalidParameter, NonFinite
from shortlist.linear import elimination, ridge, ridge_sums
from shortlist.linear.elimination import add, advance, delete, rules, start

pytestmark = pytest.mark.rest


def test_without_readmission_only_arms_that_the_old_threshold_eliminated_are_missing():
    run = EliminationRun(seed=5, radius=0.3, arms=60)
    run.learn(200)
    run.restart()
    lost = delete(run.state, np.array([run.state.setter]))
    assert lost.stale
    run.present.discard(run.state.setter)
    before = set(lost.living.rows().tolist())
    old_threshold = lost.threshold
    run.restart()
    missing = run.living() - before
    assert missing
    for row in missing:
        _, bound = run.entries()[row]
        assert bound < old_threshold


def test_the_stage_as_printed_breaks_the_invariant():
    """ceil(-log2 w) puts 2^-s below the width, for every width that is not a power of two."""
    spans = np.random.default_rng(0).lognormal(0, 3, 1000)
    printed = np.ceil(-np.log2(spans))
    assert (spans > 2.0**-printed).all()
    ours = elimination.stage_of(spans, 10**6)
    assert (spans <= 2.0**-ours).all()
    assert (spans > 2.0 ** -(ours + 1)).all()


@pytest.mark.parametrize(("span", "stage"), [(1.0, 0), (0.5, 1), (2.0, -1), (0.75, 0), (3.0, -2), (0.0, 7)])
def test_stages_of_powers_of_two_are_exact(span, stage):
    assert elimination.stage_of(np.array([span]), 7).tolist() == [stage]


def test_stages_are_capped_and_may_be_negative():
    assert elimination.stage_of(np.array([1e-9, 100.0]), 4).tolist() == [4, -7]
    assert rules(radius=1.0, eta=0.02).last_stage == 3
    assert rules(radius=1.0, eta=1 / 64).last_stage == 3
    assert rules(radius=1.0, eta=0.9).last_stage == -2


def test_a_contradicted_threshold_eliminates_nobody():
    """With a radius far too small r may exceed every bound; the last arms must not go."""
    posterior = ridge.prior(1, ridge=1.0)
    features = np.array([[1.0], [0.5]])
    state = start(posterior, np.array([0, 1]), lambda rows: features[rows], rules(radius=0.01, eta=1e-6))
    high = ridge.posterior(
        ridge_sums.add(ridge_sums.empty(1), np.ones((50, 1)), np.full(50, 9.0), np.ones(50, dtype=bool)),
        ridge=1.0,
    )
    state = add(state, high, np.array([2]), lambda rows: np.array([[0.9]]))
    low = ridge.posterior(
        ridge_sums.add(ridge_sums.empty(1), np.ones((60, 1)), np.zeros(60), np.ones(60, dtype=bool)),
        ridge=1.0,
    )
    for _ in range(9):
        state = advance(state, low, lambda rows: np.array([[1.0], [0.5], [0.9]])[rows])
    assert state.stale
    assert state.living.count


def test_the_widest_placed_are_watched():
    features = np.random.default_rng(0).standard_normal((2_000, DIM))
    prior = ridge.prior(DIM, ridge=1.0)
    state = start(prior, np.arange(1_000), lambda rows: features[rows], rules(radius=1.0, eta=0.01))
    state = add(state, prior, np.arange(1_000, 2_000), lambda rows: features[rows])
    widest = np.argsort(-ridge.widths(prior, features))[: len(state.watched)]
    assert len(state.watched) == 128
    assert set(state.watched.tolist()) == set(widest.tolist())
    state = delete(state, widest[:50])
    state = advance(state, prior, lambda rows: features[rows])
    assert not set(state.watched.tolist()) & set(widest[:50].tolist())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_finite_are_named(bad):
    with pytest.raises(NonFinite, match="features"):
        start(
            ridge.prior(1, ridge=1.0),
            np.arange(1),
            lambda rows: np.array([[bad]]),
            rules(radius=1.0, eta=0.01),
        )


@pytest.mark.parametrize(
    ("radius", "eta"), [(0.0, 0.1), (-1.0, 0.1), (np.nan, 0.1), (1.0, 0.0), (1.0, np.inf)]
)
def test_bad_rules_are_named(radius, eta):
    with pytest.raises(InvalidParameter):
        rules(radius=radius, eta=eta)


@pytest.mark.parametrize("share", [0.0, 0.6, np.nan])
def test_a_share_with_which_a_pass_might_not_help_is_refused(share):
    with pytest.raises(InvalidParameter, match="share"):
        rules(radius=1.0, eta=0.1, share=share)


def known_well():
    """Twenty arms, nearly known: the first is the best by far, and sets r."""
    features = np.vstack((np.linspace(1.0, 0.9, 20), np.full(20, 0.1))).T
    sums = ridge_sums.add(
        ridge_sums.empty(2),
        np.repeat(np.eye(2), 2_000, axis=0),
        np.repeat([1.0, 0.0], 2_000),
        np.ones(4_000, bool),
    )
    posterior = ridge.posterior(sums, ridge=1.0)
    state = start(posterior, np.arange(20), lambda rows: features[rows], rules(radius=1.0, eta=1e-6, few=4))
    return posterior, state


def test_an_arm_without_hope_changes_nothing_but_the_count():
    posterior, state = known_well()
    after = add(state, posterior, np.arange(20, 23), lambda rows: np.tile([0.1, 4.0], (len(rows), 1)))
    assert after.present == state.present + 3
    for name in ("stages", "living", "threshold", "watched", "few"):
        assert getattr(after, name) is getattr(state, name)


def test_of_new_arms_only_those_with_hope_are_placed_and_watched():
    posterior, state = known_well()
    features = np.array([[0.1, 4.0], [1.0, 0.5], [0.1, 5.0]])
    after = add(state, posterior, np.arange(20, 23), lambda rows: features[rows - 20])
    placed = set(np.concatenate([heap.rows for heap in after.stages]).tolist())
    assert placed & {20, 21, 22} == {21}
    assert set(after.watched.tolist()) & {20, 21, 22} == {21}
    assert after.present == 23


def test_arms_that_come_when_r_cannot_be_trusted_all_live():
    posterior, state = known_well()
    stale = delete(state, np.array([state.setter]))
    assert stale.stale
    after = add(stale, posterior, np.array([20]), lambda rows: np.array([[0.1, 4.0]]))
    assert 20 in after.watched
    assert after.stale


def test_what_is_deleted_of_a_state_that_cannot_be_trusted_makes_it_no_better():
    _, state = known_well()
    stale = delete(state, np.array([state.setter]))
    assert delete(stale, np.setdiff1d(stale.living.rows(), [state.setter])[:1]).stale


def test_a_pass_does_not_place_what_was_deleted():
    """The best arm is deleted before it sets r: the next pass over its stage must not let it do so."""
    features = np.vstack((np.full(20, 0.6), np.linspace(0.7, 0.5, 20))).T
    prior = ridge.prior(2, ridge=1.0)
    limits = rules(radius=1.0, eta=1e-6, few=0)
    state = start(prior, np.arange(20), lambda rows: features[rows], limits)
    best = 0 if state.setter != 0 else 1
    state = delete(state, np.array([best]))
    assert not state.stale
    assert best in state.stages[0].rows, "its entry is still there"
    everything = np.repeat(np.eye(2), 400, axis=0)
    sums = ridge_sums.add(ridge_sums.empty(2), everything, everything @ [0.0, 1.0], np.ones(800, dtype=bool))
    after = advance(state, ridge.posterior(sums, ridge=1.0), lambda rows: features[rows])
    assert after.setter == 1 - best
    assert best not in np.concatenate([heap.rows for heap in after.stages])


def test_what_a_pass_reads():
    """The lowest stage, or all living arms when they are few."""
    features = np.array([[0.9]] * 3 + [[0.4]] * 5)
    prior = ridge.prior(1, ridge=1.0)
    for few, size in ((0, 3), (7, 3), (8, 8)):
        limits = rules(radius=1.0, eta=1e-6, few=few)
        state = start(prior, np.arange(8), lambda rows: features[rows], limits)
        read = []

        def features_of(rows, read=read):
            read.append(len(rows))
            return features[rows]

        advance(state, prior, features_of)
        assert state.pass_size == size
        assert read == [size]
