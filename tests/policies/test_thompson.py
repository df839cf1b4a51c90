"""Comparing all arms with many draws at once finds what a search for each draw finds."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.bandits.effect_version import version_of_fit
from app.indexes.live import IndexOptions, LiveIndex
from app.policies.targets import NO_ARM
from app.policies.thompson import LinearTs, ThompsonTarget
from app.selection.arm_effects import DIRECTIONS, ArmEffects, Directions
from shortlist.linear import ridge
from shortlist.linear.arm_effects import EffectFit
from shortlist.types import NO_ROWS

ARMS, DIM = 60, 4


@pytest.mark.parametrize("k", [1, 3, 15, 30])
def test_a_comparison_of_all_arms_finds_what_searches_find(k: int):
    rng = np.random.default_rng(3)
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert([f"a{n}" for n in range(ARMS)], rng.normal(size=(ARMS, DIM)), range(ARMS))
    index.upsert(["a7", "a0"], rng.normal(size=(2, DIM)), [ARMS, ARMS + 1])  # rows not in the order of arms
    index.remove(["a11"])
    view = index.snapshot()
    target = ThompsonTarget(view, view, k, 40, together=7 * ARMS)
    queries = rng.normal(size=(40, DIM))
    for exclude in (NO_ROWS, view.rows_of(["a3", "a5", "a40"])):
        scanned = target.best_by_scan(queries, exclude, lambda: None)
        assert scanned.tolist() == target.best_by_search(queries, exclude, lambda: None).tolist()
        assert not np.isin(scanned, exclude).any()


@pytest.mark.rest
def test_where_no_arm_is_left_none_is_found():
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert(["a", "b"], np.eye(2, DIM), [1, 2])
    view = index.snapshot()
    target = ThompsonTarget(view, view, 3, 5)
    queries = np.ones((5, DIM))
    assert (target.best_by_scan(queries, view.rows_of(["a", "b"]), lambda: None) == NO_ARM).all()
    assert (
        target.best_by_scan(queries, view.rows_of(["a"]), lambda: None).tolist() == [[1, NO_ARM, NO_ARM]] * 5
    )


@pytest.mark.parametrize("k", [1, 2, 10, 20])
def test_of_equal_arms_lists_have_the_first(k: int):
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert(
        [f"a{n}" for n in range(120)], np.ones((120, DIM)) * [[n % 3] for n in range(120)], range(120)
    )
    target = ThompsonTarget(index.snapshot(), index.snapshot(), k, 5)
    best = list(range(2, 120, 3))[:k]
    assert target.best_by_scan(np.ones((5, DIM)), NO_ROWS, lambda: None).tolist() == [best] * 5


@pytest.mark.parametrize("k", [1, 4])
def test_with_effects_a_comparison_finds_what_searches_find(k: int):
    rng = np.random.default_rng(k)
    index = LiveIndex(3, IndexOptions(kind="exact"))
    index.upsert([f"a{n}" for n in range(50)], rng.normal(size=(50, 3)), range(1, 51))
    arms = index.snapshot()
    fits, n, R = [EffectFit(1.0, 0.5)], np.full((1, 30), 5.0), rng.normal(size=(1, 30)) * 5.0
    names = [f"a{n}" for n in range(30)]
    found = version_of_fit(
        1, 1, space=0, decisions=150, fits=fits, arms=names, revisions=range(1, 31), n=n, R=R
    )
    effects = ArmEffects.of(found, Directions(), arms.table, np.ones(1), 0.7, most_head=10)
    target = ThompsonTarget(arms, arms, k, draws=40)
    queries, noise = rng.normal(size=(40, 3)), rng.standard_normal((40, DIRECTIONS))
    exclude = arms.eligible()[:5]
    scanned = target.best_by_scan(queries, exclude, lambda: None, effects, noise)
    searched = target.best_by_search(queries, exclude, lambda: None, effects, noise)
    assert (scanned == searched).all()
    assert not (scanned == target.best_by_scan(queries, exclude, lambda: None)).all()


@pytest.mark.rest
def test_a_choice_and_its_evaluation_draw_as_much_as_the_posterior_says():
    """Not by the number that the bandit begins with: here it says 0, and the best arm is sure."""
    rng = np.random.default_rng(4)
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert([f"a{n}" for n in range(ARMS)], rng.normal(size=(ARMS, DIM)), range(ARMS))
    view, learner = index.snapshot(), ridge.prior(DIM, ridge=1.0)
    for value in range(3):
        learner = ridge.learned(learner, np.eye(DIM)[value], 1.0)
    best = int(view.search(learner.theta, 1).rows[0])
    bandit: Any = SimpleNamespace(exploration=9.0, exploration_of=lambda _: 0.0, observed=lambda hits: hits)
    candidates: Any = SimpleNamespace(request=SimpleNamespace(bandit=bandit), exclude=NO_ROWS)
    chosen = [LinearTs().rank(learner, candidates, 1, rng, view).hits.rows[0] for _ in range(20)]
    assert chosen == [best] * 20
    situations: Any = SimpleNamespace(
        bandit=bandit,
        effects=None,
        names=["one"],
        exclude=[NO_ROWS],
        bounds=(np.zeros(1), np.ones(1)),
        posterior=lambda _: learner,
        scores=lambda _table, rows, _position: np.zeros(len(rows)),
    )
    rows, _ = ThompsonTarget(view, view, 1, 20)._drawn(situations, 0, lambda: None)  # private: one situation
    assert rows.tolist() == [[best]] * 20
