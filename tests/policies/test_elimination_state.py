"""The state of a learner beside a catalogue that changes, against one made again after every change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bandits.settings import RewardRule
from app.indexes.live import LiveIndex
from app.policies.elimination_state import caught_up, pick, rebuilt, refreshed, sets_of
from app.policies.registry import POLICIES
from app.selection.selection import ReadSnapshot
from headless_service import bandit_record
from shortlist.linear import elimination, ridge, ridge_sums
from shortlist.linear.ridge import Posterior

DIM = 3
RULES = elimination.rules(radius=0.4, eta=1e-3, few=4)


def learned(seed: int) -> Posterior:
    rng = np.random.default_rng(seed)
    rows, values = rng.standard_normal((60, DIM)), rng.standard_normal(60)
    sums = ridge_sums.add(ridge_sums.empty(DIM), rows, values, np.ones(60, dtype=bool))
    return ridge.posterior(sums, ridge=1.0)


def at(posterior: Posterior, view, version: int = 60) -> ReadSnapshot:
    return ReadSnapshot(posterior, view, version, 0)


class GrowingCatalogue:
    """A catalogue whose revisions ascend."""

    def __init__(self, seed: int, arms: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.index = LiveIndex(DIM)
        self.revision = 0
        self.put([f"a{i}" for i in range(arms)])

    def put(self, ids: list[str]) -> None:
        revisions = list(range(self.revision, self.revision + len(ids)))
        self.revision += len(ids)
        self.index.upsert(ids, self.rng.standard_normal((len(ids), DIM)), revisions)


def living_ids(placed, view) -> set[str]:
    return {view.id_of(row) for row in placed.state.living.rows().tolist()}


changes = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "setter"]), st.lists(st.integers(0, 30), max_size=8)),
    max_size=12,
)


@settings(max_examples=120)
@given(seed=st.integers(0, 2**32), arms=st.integers(0, 25), script=changes)
def test_after_each_change_it_is_the_state_made_anew(seed, arms, script):
    """New arms, replaced features, deletions, the arm that set r: at one posterior no difference."""
    catalogue, known = GrowingCatalogue(seed, arms), learned(seed)
    placed = rebuilt(at(known, catalogue.index.snapshot()), RULES)
    for what, numbers in script:
        if what == "put":
            catalogue.put([f"a{i}" for i in dict.fromkeys(numbers)])
        elif what == "remove":
            catalogue.index.remove([f"a{i}" for i in numbers])
        elif placed.state.present:
            catalogue.index.remove([catalogue.index.snapshot().id_of(placed.state.setter)])
        view = catalogue.index.snapshot()
        placed = refreshed(placed, at(known, view), RULES)
        anew = rebuilt(at(known, view), RULES)
        assert living_ids(placed, view) == living_ids(anew, view)
        assert sets_of(placed).stages == sets_of(anew).stages
        assert sets_of(placed).eliminated == sets_of(anew).eliminated
        assert sets_of(placed).threshold == pytest.approx(sets_of(anew).threshold, abs=1e-9)
        found = pick(placed, at(known, view), k=40, rng=np.random.default_rng(0)).hits
        assert {view.id_of(row) for row in found.rows.tolist()} == {
            view.id_of(row) for row in view.table.live_rows.tolist()
        }


def test_new_arms_wait_when_they_are_too_many_and_deleted_ones_never_do():
    catalogue, known = GrowingCatalogue(1, 20), learned(1)
    placed = rebuilt(at(known, catalogue.index.snapshot()), RULES)
    catalogue.put([f"new{i}" for i in range(50)])
    catalogue.index.remove(["a3", "new7"])
    view = catalogue.index.snapshot()
    waiting = caught_up(placed, at(known, view), most_work=49 * DIM**2)
    assert waiting.rows == 20
    assert pick(waiting, at(known, view), k=1, rng=np.random.default_rng(0)).due
    assert "a3" not in living_ids(waiting, view)
    catalogue.index.remove(["new8"])
    view = catalogue.index.snapshot()
    seen = refreshed(waiting, at(known, view), RULES)
    anew = rebuilt(at(known, view), RULES)
    assert living_ids(seen, view) == living_ids(anew, view)
    assert seen.state.present == 67


@pytest.mark.rest
def test_a_compaction_makes_another_table():
    catalogue, known = GrowingCatalogue(2, 3_000), learned(2)
    before = rebuilt(at(known, catalogue.index.snapshot()), RULES)
    catalogue.index.remove([f"a{i}" for i in range(2_000)])
    job = catalogue.index.begin_maintenance()
    assert job is not None
    job.run()
    catalogue.index.finish(job)
    view = catalogue.index.snapshot()
    assert view.table.number != before.table_number
    assert rebuilt(at(known, view), RULES).state.present == 1_000


def test_a_state_of_a_posterior_that_knew_more_is_found_out():
    """Widths above what a stage allows: the learner was forgotten meanwhile, and has begun again."""
    catalogue = GrowingCatalogue(3, 200)
    view = catalogue.index.snapshot()
    known = rebuilt(at(learned(3), view), RULES)
    fresh = at(ridge.prior(DIM, ridge=1.0), view, version=99)
    assert pick(known, fresh, k=1, rng=np.random.default_rng(0)).broken
    assert not pick(known, at(learned(3), view), k=1, rng=np.random.default_rng(0)).broken


@pytest.mark.parametrize("policy", ["sub_elim", "linear_elim"])
def test_radius_and_accuracy_are_in_the_unit_of_rewards(policy: str):
    """By themselves; so the same arms are eliminated in whatever unit rewards are."""
    for unit in (1.0, 1_000.0):
        record = bandit_record(
            scope="global",
            policy=policy,
            exploration="auto",
            horizon=400,
            reward=RewardRule(min=-unit, max=unit),
        )
        assert POLICIES[policy].exploration(record, 3, 3) == 2.0 * unit
        assert POLICIES[policy].eta(record) == pytest.approx(unit / 20)
