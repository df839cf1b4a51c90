"""A live index against a dict: any order of changes, maintenance and searches, and every old snapshot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.indexes import maintenance
from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex
from app.platform.errors import DimensionMismatch
from shortlist.errors import InvalidParameter, InvalidShape, NonFinite
from shortlist.index import planner
from tests.indexes.brute_force import best_ids, filled, maintain, scores_of

IDS = st.lists(st.integers(0, 40).map("arm-{}".format), unique=True, min_size=1, max_size=12)
SEEDS = st.integers(0, 2**16)


EAGER = IndexLimits(
    least_dead=5,
    small_numbers=1,
    work_rest=0.0,
    measuring_rest=0.0,
    much_lost=1.0,
    least_probes=20,
    newer_share=0.0,
)
"""Small catalogues are planned, compacted and pruned like large ones; and nothing rests."""


class LiveIndexMachine(RuleBasedStateMachine):
    """``arms`` is the model: id -> (revision, features)."""

    options: IndexOptions
    exact: bool

    @initialize(dim=st.integers(1, 5))
    def start(self, dim):
        self.index = LiveIndex(dim, self.options, limits=EAGER)
        self.dim, self.revision = dim, 0
        self.arms, self.job, self.old = {}, None, []
        self.measurement = None

    def features(self, count, seed):
        """Half of the time on a grid, for ties."""
        rng = np.random.default_rng(seed)
        drawn = rng.standard_normal((count, self.dim)) * np.exp(rng.normal())
        return drawn if seed % 2 else rng.integers(-2, 3, (count, self.dim)).astype(np.float64)

    @rule(ids=IDS, seed=SEEDS)
    def upsert(self, ids, seed):
        features = self.features(len(ids), seed)
        revisions = range(self.revision + 1, self.revision + 1 + len(ids))
        self.revision += len(ids)
        self.index.upsert(ids, features, revisions)
        self.arms.update(zip(ids, zip(revisions, features, strict=True), strict=True))

    @rule(ids=IDS, seed=SEEDS)
    def upsert_what_is_known(self, ids, seed):
        known = [arm_id for arm_id in ids if arm_id in self.arms]
        stale = [max(0, self.arms[arm_id][0] - seed % 2) for arm_id in known]
        self.index.upsert(known, self.features(len(known), seed), stale)

    @rule(ids=IDS)
    def remove(self, ids):
        self.index.remove(ids)
        for arm_id in ids:
            self.arms.pop(arm_id, None)

    @rule(count=st.integers(1, 12))
    def remove_the_longest(self, count):
        lengths = {arm_id: -float(np.linalg.norm(features)) for arm_id, (_, features) in self.arms.items()}
        self.remove(sorted(lengths, key=lengths.get)[:count])

    @rule(run=st.booleans())
    def begin_a_measurement(self, run):
        if self.measurement is None:
            self.measurement = self.index.begin_measurement()
            if self.measurement is not None and run:
                self.measurement.run()

    @precondition(lambda self: self.measurement is not None)
    @rule()
    def finish_a_measurement(self):
        if self.measurement.answers is None:
            self.measurement.run()
        self.index.finish(self.measurement)
        self.measurement = None

    @rule()
    def remove_all(self):
        self.index.remove(list(self.arms))
        self.arms.clear()

    @precondition(lambda self: self.job is self.measurement is None)
    @rule()
    def maintain(self):
        maintain(self.index)

    @precondition(lambda self: self.job is None)
    @rule(run=st.booleans())
    def begin(self, run):
        self.job, self.ran = self.index.begin_maintenance(), run
        if self.job is not None:
            assert self.index.begin_maintenance() is None
            if run:
                self.job.run()

    @precondition(lambda self: self.job is not None)
    @rule()
    def finish(self):
        if not self.ran:
            self.job.run()
        self.index.finish(self.job)
        self.job = None

    @precondition(lambda self: self.job is not None)
    @rule()
    def cancel(self):
        self.job.cancel()
        if not self.ran:
            self.job.run()
            assert self.job.plan is self.job.compacted is self.job.structure is None
        self.index.finish(self.job)
        self.job = None

    @rule()
    def keep_a_snapshot(self):
        self.old = [*self.old[-3:], (self.index.snapshot(), dict(self.arms))]

    @rule(seed=SEEDS, k=st.integers(1, 50), excluded=st.lists(st.integers(0, 45), unique=True, max_size=20))
    def search(self, seed, k, excluded):
        exclude = [f"arm-{number}" for number in excluded]
        query = self.features(1, seed)[0]
        for snapshot, arms in [(self.index.snapshot(), self.arms), *self.old]:
            self.check_search(snapshot, arms, query, k, exclude)

    def check_search(self, snapshot, arms, query, k, exclude):
        rows = snapshot.rows_of(exclude)
        assert [snapshot.id_of(row) for row in rows] == [arm_id for arm_id in exclude if arm_id in arms]
        exactly = snapshot.search_exact(query, k, rows)
        assert exactly.exact
        wanted = best_ids(arms, query, k, exclude)
        assert ([snapshot.id_of(row) for row in exactly.rows], exactly.scores.tolist()) == wanted
        found = snapshot.search(query, k, rows)
        ids = [snapshot.id_of(row) for row in found.rows]
        if self.exact or found.exact:
            assert (ids, found.scores.tolist()) == wanted
        assert len(ids) == len(set(ids)) == len(wanted[0])
        assert set(ids) <= set(arms) - set(exclude)
        assert found.scores.tolist() == scores_of([arms[arm_id][1] for arm_id in ids], query)
        assert found.scores.tolist() == sorted(found.scores, reverse=True)

    @invariant()
    def holds_the_same_arms(self):
        for snapshot, arms in [(self.index.snapshot(), self.arms), *self.old]:
            assert snapshot.size == len(arms)
            rows = snapshot.page(-1, 1_000)
            assert [(snapshot.id_of(r), snapshot.revision_of(r)) for r in rows] == sorted(
                ((arm_id, revision) for arm_id, (revision, _) in arms.items()), key=lambda pair: pair[1]
            )
            assert [tuple(row) for row in snapshot.features_of(rows)] == [
                tuple(arms[snapshot.id_of(row)][1]) for row in rows
            ]
        assert len(self.index) == len(self.arms)
        assert all(self.index.snapshot().table.row_of(arm_id) >= 0 for arm_id in self.arms)
        status = self.index.status()
        assert 0.0 <= status.recall_at_1 <= 1.0
        assert status.size == len(self.arms)
        assert status.state == ("building" if self.job else "ready")


class ExactMachine(LiveIndexMachine):
    options, exact = IndexOptions(kind="exact"), True


class NormPrunedMachine(LiveIndexMachine):
    options, exact = IndexOptions(), True


class HnswMachine(LiveIndexMachine):
    options, exact = IndexOptions(kind="hnsw", m=4, ef_construction=10, shortlist=4), False


@pytest.fixture
def pruned(monkeypatch):
    def always_pruned(view, *_, **__):
        plan = planner.Plan("norm_pruned", view.live, scan_us=1e9, expected_us=1e3)
        return plan, planner.NormBlocks(view)

    monkeypatch.setattr("app.indexes.maintenance.plan", always_pruned)


EXAMPLES = pytest.mark.parametrize("examples", [20, pytest.param(300, marks=pytest.mark.slow)])


def run(machine, examples):
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=40))


@EXAMPLES
def test_exact_against_a_dict(examples):
    run(ExactMachine, examples)


@EXAMPLES
def test_norm_pruned_against_a_dict(pruned, examples):
    run(NormPrunedMachine, examples)


@pytest.mark.rest
@EXAMPLES
def test_hnsw_against_a_dict(examples):
    run(HnswMachine, examples)


@pytest.mark.rest
def test_revisions_out_of_order_page_in_order():
    index = LiveIndex(1)
    index.upsert(["a", "b", "c"], np.ones((3, 1)), [30, 10, 20])
    snapshot = index.snapshot()
    assert [snapshot.revision_of(row) for row in snapshot.page(-1, 9)] == [10, 20, 30]
    assert [snapshot.revision_of(row) for row in snapshot.page(10, 1)] == [20]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("features", "revisions", "error"),
    [
        (np.ones((1, 2)), [1], DimensionMismatch),
        (np.ones((2, 3)), [1], InvalidShape),
        (np.ones(3), [1], InvalidShape),
        (np.ones((1, 3)), [1, 2], InvalidShape),
        (np.array([[1.0, np.nan, 1.0]]), [1], NonFinite),
    ],
)
def test_a_bad_upsert_changes_nothing(features, revisions, error):
    index = filled(np.ones((1, 3)))
    before = index.snapshot()
    with pytest.raises(error):
        index.upsert(["new"], features, revisions)
    assert index.snapshot() is before


@pytest.mark.rest
@pytest.mark.parametrize(
    "bad",
    [
        {"m": 1},
        {"ef_construction": 0},
        {"ef_search": 0},
        {"shortlist": 0},
        {"target_recall": 0.79},
        {"target_recall": 1.0},
        {"target_recall": float("nan")},
    ],
)
def test_bad_options(bad):
    with pytest.raises(InvalidParameter):
        IndexOptions(**bad)


@pytest.mark.rest
def test_failed_work_changes_nothing_and_is_due_again(monkeypatch):
    features = np.random.default_rng(0).standard_normal((100, 4))
    index = filled(features, IndexOptions(kind="hnsw"), limits=EAGER)
    before = index.snapshot()
    job = index.begin_maintenance()
    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "plan", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.run()
    index.finish(job)
    assert index.snapshot().structure is before.structure is None
    assert maintain(index) == ["plan"]
    assert index.status().kind == "hnsw"


def test_a_snapshot_names_what_is_wrong_with_a_search():
    snapshot = filled(np.ones((2, 3))).snapshot()
    with pytest.raises(InvalidShape):
        snapshot.search(np.ones(4), 1)
    with pytest.raises(InvalidParameter):
        snapshot.search(np.ones(3), 0)
    with pytest.raises(NonFinite):
        snapshot.search_exact(np.array([1.0, np.inf, 0.0]), 1)


def test_how_long_a_build_takes_is_told_by_its_progress():
    features = np.random.default_rng(3).standard_normal((300, 4))
    index = filled(features, IndexOptions(kind="hnsw", ef_construction=40), limits=EAGER)
    assert index.status().build_left_s is None
    job = index.begin_maintenance()
    assert (index.status().state, index.status().build_left_s) == ("building", None)
    job.progress = 0.25, 3.0  # so much of it, and the seconds that it took
    assert index.status().build_left_s == 9.0
    job.run()
    assert (job.progress[0], index.status().build_left_s) == (1.0, None)  # it was measured since
    index.finish(job)
    assert (index.status().state, index.status().build_left_s) == ("ready", None)
