"""Weights between arms: against least squares arm by arm, and for likes that were held out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from shortlist.embedding import item_to_item


def likes_by_taste(keys=200, arms=40, seed=0):
    """Keys of four tastes like half of the arms of theirs, and a few others."""
    rng = np.random.default_rng(seed)
    is_own = np.equal.outer(np.arange(keys) % 4, np.arange(arms) % 4)
    return sparse.csr_array((rng.random((keys, arms)) < np.where(is_own, 0.5, 0.05)).astype(np.float32))


def regression(liked, arm, ridge):
    """The weights of an arm: ridge regression of its likes on those of all other arms."""
    others = np.delete(np.arange(liked.shape[1]), arm)
    given = liked[:, others]
    found = np.linalg.solve(given.T @ given + ridge * np.eye(len(others)), given.T @ liked[:, arm])
    return np.insert(found, arm, 0.0)


@pytest.mark.parametrize("keys", [12, 200])  # fewer than arms, and more
def test_ease_is_a_ridge_regression_of_each_arm_on_the_others(keys):
    liked = likes_by_taste(keys)
    found = item_to_item.ease(liked, 30.0)
    dense = liked.toarray().astype(float)[:, found.arms]
    for arm in range(len(found.arms)):
        assert found.weights[:, arm] == pytest.approx(regression(dense, arm, 30.0), abs=1e-9)
    scores = found.scores(liked[[3]])
    assert scores[0, found.arms] == pytest.approx(dense[3] @ found.weights)


def test_item_knn_has_the_cosines_of_arms():
    liked = likes_by_taste()
    dense = liked.toarray().astype(float)
    found = item_to_item.item_knn(liked).weights
    length = np.linalg.norm(dense, axis=0)
    assert found[5, 9] == pytest.approx(dense[:, 5] @ dense[:, 9] / length[5] / length[9])
    assert not found.diagonal().any()


@pytest.mark.parametrize(
    "fit",
    [item_to_item.item_knn, lambda liked, most_arms: item_to_item.ease(liked, 9.0, most_arms=most_arms)],
)
def test_the_most_liked_arms_alone_have_weights(fit):
    liked = likes_by_taste().toarray()
    liked[:, 7], liked[:, [3, 11]] = 0.0, 1.0
    found = fit(sparse.csr_array(liked), most_arms=2)
    assert found.arms.tolist() == [3, 11]
    assert np.flatnonzero(found.scores(sparse.csr_array(liked))[0]).tolist() == [3, 11]
    assert 7 not in fit(sparse.csr_array(liked), most_arms=100).arms, "nobody liked it"
    assert not fit(sparse.csr_array((5, 4)), most_arms=100).scores(sparse.csr_array((2, 4))).any()


def test_the_ridge_is_the_one_that_finds_most_of_what_was_held_out():
    liked, ridges = likes_by_taste(), (1e-3, 30.0, 1e6)
    found = item_to_item.best_ridge(liked, np.random.default_rng(0), ridges=ridges)
    assert found == 30.0
    few = item_to_item.best_ridge(liked[:3], np.random.default_rng(0), ridges=ridges)
    assert few == 30.0, "without a key to test, the middle"


def test_half_of_the_likes_of_a_key_are_known_and_none_twice():
    liked = likes_by_taste()
    known, hidden = item_to_item.halves(liked, np.random.default_rng(1))
    assert ((known + hidden) != liked).nnz == 0
    assert known.sum(axis=1).tolist() == (liked.sum(axis=1) // 2).tolist()


def test_recall_counts_hidden_likes_in_lists_without_what_is_known():
    known = sparse.csr_array(np.array([[1.0, 0, 0, 0], [0, 0, 0, 0]]))
    hidden = sparse.csr_array(np.array([[0, 1.0, 0, 1.0], [1.0, 0, 0, 0]]))
    scores = np.array([[9.0, 5.0, 7.0, 1.0], [1.0, 3.0, 2.0, 4.0]])
    found = [item_to_item.recall(lambda _: scores.copy(), known, hidden, shown=shown) for shown in (2, 4, 9)]
    assert found == [pytest.approx(1 / 3), 1.0, 1.0]
    assert item_to_item.recall(lambda _: scores.copy(), known, hidden) == 0.0, "lists of one of four"
