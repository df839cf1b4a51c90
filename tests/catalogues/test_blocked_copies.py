"""Blocked copies: one a version, within the bound on memory, and drawn again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from app.catalogues.blocked_copies import BlockedCopies
from app.indexes.live import LiveIndex


@dataclass
class Catalogue:
    """What a copy asks of one."""

    uid: str
    version: int = 1
    index: LiveIndex = field(default_factory=lambda: LiveIndex(300))

    def put(self, *ids: str) -> Catalogue:
        rng = np.random.default_rng(len(ids))
        self.version += 1
        self.index.upsert(ids, rng.standard_normal((len(ids), 300)), [self.version] * len(ids))
        return self


def test_one_version_has_one_copy_and_another_has_another():
    kept, catalogue = BlockedCopies(1 << 30), Catalogue("1").put("a", "b", "c")
    first = kept.arms(kept.prepare(catalogue))
    assert kept.arms(kept.prepare(catalogue)) is first
    catalogue.index.remove(["b"])
    catalogue.version += 1
    second = kept.arms(kept.prepare(catalogue))
    assert second.rows.tolist() == [0, 2]
    assert first.size == 3
    assert second.order.tolist() != first.order.tolist()


def test_after_a_compaction_rows_are_those_of_the_new_table():
    """It makes no new version, but numbers the arms anew."""
    kept, catalogue = BlockedCopies(1 << 30), Catalogue("1").put(*map(str, range(1_200)))
    catalogue.index.remove([str(arm) for arm in range(1_100)])
    before = kept.prepare(catalogue).table
    job = catalogue.index.begin_maintenance()
    assert job is not None
    job.run()
    catalogue.index.finish(job)
    after = kept.prepare(catalogue).table
    rows = [(table.row_of("1150"), table.rows) for table in (before, after)]
    assert rows == [(1_150, 1_200), (50, 100)]


def test_the_order_is_drawn_again_after_many_answers():
    kept, catalogue = BlockedCopies(1 << 30, redraw=3), Catalogue("1").put("a", "b")
    found = [kept.arms(kept.prepare(catalogue)) for _ in range(7)]
    assert [arms is found[0] for arms in found] == [True, True, True, False, False, False, False]
    assert found[3] is found[5]
    assert found[6] is not found[5]


@pytest.mark.rest
def test_memory_is_bounded_and_the_least_used_goes_first():
    catalogues = [Catalogue(str(i)).put(*map(str, range(20))) for i in range(4)]
    one = BlockedCopies(1 << 30)
    one.arms(one.prepare(catalogues[0]))
    kept = BlockedCopies(int(2.5 * one.bytes))
    made = [kept.arms(kept.prepare(catalogue)) for catalogue in catalogues[:2]]
    assert kept.arms(kept.prepare(catalogues[0])) is made[0]
    kept.arms(kept.prepare(catalogues[2]))
    assert kept.bytes <= 2.5 * one.bytes
    assert kept.arms(kept.prepare(catalogues[0])) is made[0]
    assert kept.arms(kept.prepare(catalogues[1])) is not made[1]


@pytest.mark.rest
def test_what_does_not_fit_is_not_made():
    kept, catalogue = BlockedCopies(1_000), Catalogue("1").put("a", "b", "c")
    assert not kept.fits(kept.prepare(catalogue))
    assert BlockedCopies(1 << 20).fits(kept.prepare(catalogue))
