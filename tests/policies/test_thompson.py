"""Comparing all arms with many draws at once finds what a search for each draw finds."""

import numpy as np
import pytest

from app.indexes.live import IndexOptions, LiveIndex
from app.policies import thompson
from app.policies.targets import NO_ARM
from app.policies.thompson import ThompsonTarget
from shortlist.types import NO_ROWS

ARMS, DIM = 60, 4


@pytest.mark.parametrize("k", [1, 3, 15, 30])
def test_a_comparison_of_all_arms_finds_what_searches_find(k: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thompson, "SCORES", 7 * ARMS)
    rng = np.random.default_rng(3)
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert([f"a{n}" for n in range(ARMS)], rng.normal(size=(ARMS, DIM)), range(ARMS))
    index.upsert(["a7", "a0"], rng.normal(size=(2, DIM)), [ARMS, ARMS + 1])  # rows not in the order of arms
    index.remove(["a11"])
    view = index.snapshot()
    target = ThompsonTarget(view, view, k, 40)
    queries = rng.normal(size=(40, DIM))
    for exclude in (NO_ROWS, view.rows_of(["a3", "a5", "a40"])):
        scanned = target._scanned(queries, exclude, lambda: None)
        assert scanned.tolist() == target._searched(queries, exclude, lambda: None).tolist()
        assert not np.isin(scanned, exclude).any()


def test_where_no_arm_is_left_none_is_found():
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert(["a", "b"], np.eye(2, DIM), [1, 2])
    view = index.snapshot()
    target = ThompsonTarget(view, view, 3, 5)
    queries = np.ones((5, DIM))
    assert (target._scanned(queries, view.rows_of(["a", "b"]), lambda: None) == NO_ARM).all()
    assert target._scanned(queries, view.rows_of(["a"]), lambda: None).tolist() == [[1, NO_ARM, NO_ARM]] * 5


@pytest.mark.parametrize("k", [1, 2, 10, 20])
def test_of_equal_arms_lists_have_the_first(k: int):
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert(
        [f"a{n}" for n in range(120)], np.ones((120, DIM)) * [[n % 3] for n in range(120)], range(120)
    )
    target = ThompsonTarget(index.snapshot(), index.snapshot(), k, 5)
    best = list(range(2, 120, 3))[:k]
    assert target._scanned(np.ones((5, DIM)), NO_ROWS, lambda: None).tolist() == [best] * 5
