"""Copies of rows follow what a filter matches, and earlier copies stay true."""

from __future__ import annotations

import numpy as np
import pytest

from app.filtering.row_copy import RowCopy
from app.filters.filter import parse
from app.indexes.eligible_rows import EligibleRows, eligible_rows
from app.indexes.live import LiveIndex
from app.indexes.snapshot import Snapshot
from oracle import best_rows
from shortlist.types import NO_ROWS
from tests.indexes.brute_force import limit

DIM = 3
MANY = 5_000  # more rows than are read at once
INSIDE = parse({"is_inside": True})


class Shop:
    """Arms 0 to count - 1, of which the even ones match."""

    def __init__(self, count: int, *, length: float | None = None) -> None:
        self.index, self.count, self.length = LiveIndex(DIM), 0, length
        self.extend(count)
        self.describe(range(0, count, 2), is_inside=True)

    def extend(self, count: int) -> None:
        features = np.random.default_rng((7, self.count)).normal(size=(count, DIM))
        if self.length is not None:
            features *= self.length / np.linalg.norm(features, axis=1, keepdims=True)
        arms = range(self.count, self.count + count)
        self.index.upsert([str(arm) for arm in arms], features, arms)
        self.count += count

    def describe(self, arms, *, is_inside: bool) -> None:
        ids = [str(arm) for arm in arms]
        self.index.describe(ids, [((), {"is_inside": is_inside})] * len(ids))

    def now(self, before: EligibleRows | None = None) -> tuple[Snapshot, EligibleRows]:
        snapshot = self.index.snapshot()
        return snapshot, eligible_rows(INSIDE, snapshot.table, snapshot.attributes, before)

    def compact(self) -> None:
        limits = self.index.limits
        limit(self.index, least_dead=0, dead_share=0.0)
        job = self.index.begin_maintenance()
        self.index.limits = limits
        job.run()
        self.index.finish(job)
        self.index.rest_until = 0.0


def check(copy: RowCopy, snapshot: Snapshot, seed: int = 1) -> None:
    """It finds what brute force finds, at its moment."""
    rows, table = copy.eligible.rows, snapshot.table
    assert len(copy) == len(rows)
    for query in np.random.default_rng(seed).normal(size=(6, DIM)):
        best = np.array(best_rows(table.features, rows, query), dtype=int)
        for k in (1, 4):
            for exclude in (NO_ROWS, best[[0, 2]] if len(best) > 2 else best):
                expected = best[~np.isin(best, exclude)][:k].tolist()
                found = copy.search(snapshot, query, k, exclude)
                assert found.rows.tolist() == expected
                assert found.exact


@pytest.mark.parametrize("count", [10, MANY])
@pytest.mark.parametrize("seed", range(5))
def test_a_copy_follows_any_changes_and_earlier_ones_stay_true(count: int, seed: int):
    rng, shop = np.random.default_rng(seed), Shop(count)
    snapshot, eligible = shop.now()
    copy, earlier = RowCopy.of(snapshot.table, eligible), []
    for _ in range(8):
        earlier.append((copy, snapshot))
        if rng.random() < 0.7:
            shop.extend(int(rng.integers(0, count // 2)))
        flipped = rng.permutation(shop.count)[: rng.integers(0, count // 2)]
        shop.describe(flipped[::2], is_inside=True)
        shop.describe(flipped[1::2], is_inside=False)
        shop.index.remove([str(arm) for arm in rng.integers(0, shop.count, 2)])
        snapshot, eligible = shop.now(eligible)
        copy = copy.followed(snapshot.table, eligible)
    for each in (*earlier, (copy, snapshot)):
        check(*each)


def circle(count: int) -> np.ndarray:
    angles = np.linspace(0.0, 2 * np.pi, count, endpoint=False)
    return np.stack((np.cos(angles), np.sin(angles)), axis=1)


@pytest.mark.parametrize("came_later", [False, True])
def test_no_row_is_read_that_is_too_short_to_win(came_later: bool):
    """1,024 arms of length 2 and 4,000 of length .5: a score of 1 is more than these can have."""
    long = {f"long{n}": 2.0 * arm for n, arm in enumerate(circle(1_024))}
    short = {f"short{n}": 0.5 * arm for n, arm in enumerate(circle(4_000))}
    index, everything = LiveIndex(2), parse({})
    first, later = (short, long) if came_later else (short | long, {})
    index.upsert([*first], np.array([*first.values()]), range(len(first)))
    snapshot = index.snapshot()
    eligible = eligible_rows(everything, snapshot.table, snapshot.attributes)
    copy = RowCopy.of(snapshot.table, eligible)
    if later:
        index.upsert([*later], np.array([*later.values()]), range(5_000, 5_000 + len(later)))
        snapshot = index.snapshot()
        copy = copy.followed(
            snapshot.table, eligible_rows(everything, snapshot.table, snapshot.attributes, eligible)
        )
    for _, norm, features in copy.order.blocks:
        if norm < 1.0:
            features[:] = np.nan  # whoever reads them finds nothing
    for query in circle(1_024)[::100]:
        (found,) = copy.search(snapshot, 3.0 * query, 1).rows.tolist()
        assert snapshot.table.features[found] @ query == pytest.approx(2.0)


@pytest.mark.parametrize("count", [20, MANY])
def test_a_copy_follows_one_compaction_and_not_two(count: int):
    shop = Shop(count)
    snapshot, eligible = shop.now()
    copy = RowCopy.of(snapshot.table, eligible)
    shop.describe([2, 4], is_inside=False)
    snapshot, eligible = shop.now(eligible)
    copy = copy.followed(snapshot.table, eligible)
    shop.index.remove(["0", "1", "8"])
    shop.compact()
    shop.describe([3], is_inside=True)
    shop.describe([10], is_inside=False)
    snapshot, eligible = shop.now()
    followed = copy.followed(snapshot.table, eligible)
    check(followed, snapshot)
    shop.index.remove(["6"])
    once, eligible_once = shop.now(eligible)
    check(followed.followed(once.table, eligible_once), once)
    shop.compact()
    shop.index.remove(["12"])
    shop.compact()
    twice, eligible_twice = shop.now()
    assert followed.followed(twice.table, eligible_twice) is None


def test_a_copy_of_another_precision_or_table_cannot_follow():
    shop = Shop(20)
    snapshot, eligible = shop.now()
    copy = RowCopy.of(snapshot.table, eligible)
    other, eligible_other = Shop(20).now()
    assert copy.followed(other.table, eligible_other) is None
    shop.index.upsert(["long"], np.full((1, DIM), 1e30), [99])
    later, eligible_later = shop.now(eligible)
    assert later.table.working.dtype == np.float64
    assert copy.followed(later.table, eligible_later) is None
    check(RowCopy.of(later.table, eligible_later), later)


def test_of_equal_arms_the_first_is_found():
    index = LiveIndex(DIM)
    index.upsert([str(arm) for arm in range(MANY)], np.ones((MANY, DIM)), range(MANY))
    snapshot = index.snapshot()
    eligible = eligible_rows(parse({}), snapshot.table, snapshot.attributes)
    copy = RowCopy.of(snapshot.table, eligible)
    assert copy.search(snapshot, np.ones(DIM), 2).rows.tolist() == [0, 1]
