"""Arms that nobody liked: Good and Turing's share of what their fields promise."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.embedding import table_map, unliked_arms
from shortlist.embedding.behaviour import embed, keys_by_arms

KEYS, ARMS = 400, 1_000


def a_shop(chances, seed):
    """Each key likes each arm with its chance; fields say nothing of it. Likes, embedding and map."""
    rng = np.random.default_rng(seed)
    keys, arms = np.nonzero(rng.random((KEYS, len(chances))) < chances)
    found = embed(keys_by_arms(keys, arms, np.ones(len(keys)), shape=(KEYS, len(chances))), 4, rng)
    table = rng.standard_normal((len(chances), 2))
    fitted = table_map.fit(table, found.vectors, found.likes, rng)
    return found, fitted, fitted.expected(table)


def taste(found):
    return (found.likes / KEYS) @ found.vectors / np.square(found.vectors).sum(axis=0)


def test_the_share_is_what_good_and_turing_expect_over_what_fields_promise():
    found, _, expected = a_shop(np.geomspace(0.3, 1e-4, ARMS), 0)
    once, nobody = (found.likes == 1).sum(), (found.likes == 0).sum()
    promised = (expected @ taste(found))[found.likes == 0].sum() * (nobody + once) / nobody
    exposure = np.ones(ARMS)
    share = unliked_arms.shares(expected, found.vectors, found.likes, KEYS, exposure=exposure)
    assert share == pytest.approx(np.full(ARMS, once / KEYS / promised))
    assert 0.0 < share[0] < 0.5


def test_features_of_an_arm_that_was_passed_over_promise_about_what_it_earns():
    """Where a few arms have most likes; in full their fields promise ten times of it. Sum over five shops."""
    earned = promised = in_full = 0.0
    for seed in range(5):
        chances = np.geomspace(0.3, 1e-4, ARMS)
        found, fitted, expected = a_shop(chances, seed)
        share = unliked_arms.shares(expected, found.vectors, found.likes, KEYS, exposure=np.ones(ARMS))
        nobody = found.likes == 0
        likes = unliked_arms.passed_over(share, fitted.kappa)[nobody]
        mixed = (fitted.kappa * expected[nobody]) / (likes + fitted.kappa)[:, None]
        assert mixed == pytest.approx(share[nobody, None] * expected[nobody])
        earned += chances[nobody].sum()
        promised += float((mixed @ taste(found)).sum())
        in_full += float((expected[nobody] @ taste(found)).sum())
    assert 0.5 * earned < promised < 2.0 * earned
    assert in_full > 5.0 * earned


def test_an_arm_that_came_later_gets_more_and_one_younger_than_the_history_all():
    found, _, expected = a_shop(np.geomspace(0.3, 1e-4, ARMS), 0)
    exposure = np.ones(ARMS)
    exposure[-3:] = 0.0, 0.5, 1.0
    share = unliked_arms.shares(expected, found.vectors, found.likes, KEYS, exposure=exposure)
    assert share[-3] == 1.0
    assert share[-2] == pytest.approx(1.0 - 0.5 * (1.0 - share[-1]))
    assert share[-1] == share[0] < 0.5


def test_where_nothing_is_promised_or_nobody_liked_one_arm_alone_shares_are_bounds():
    vectors, exposure = np.ones((3, 1)), np.ones(3)
    share = unliked_arms.shares(-vectors, vectors, np.array([2, 2, 0]), 2, exposure=exposure)
    assert share.tolist() == [1.0] * 3
    share = unliked_arms.shares(vectors, vectors, np.array([2, 2, 0]), 2, exposure=exposure)
    assert share == pytest.approx(np.full(3, unliked_arms.LEAST_SHARE))
    share = unliked_arms.shares(vectors, vectors, np.array([2, 2, 2]), 2, exposure=exposure)
    assert share.tolist() == [1.0] * 3
