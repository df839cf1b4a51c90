"""The state of elimination against a mirror that knows when each arm was placed, after every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.linear import ridge, ridge_sums
from shortlist.linear.elimination import add, advance, delete, rules, start

DIM = 3


class EliminationRun:
    """A growing catalogue, a growing posterior, and the state under test with its mirror."""

    def __init__(self, seed, radius, arms):
        self.rng = np.random.default_rng(seed)
        self.features = self.rng.standard_normal((500, DIM)) * self.rng.lognormal(0, 1, (500, 1))
        self.features[::17] = 0.0
        self.theta = self.rng.standard_normal(DIM)
        self.rules = rules(radius=radius, eta=0.02, few=8)
        self.sums = ridge_sums.empty(DIM)
        self.present = set(range(arms))
        self.used = arms
        self.placed = {}
        self.lower = {}
        self.state = None
        self.restart()

    def posterior(self):
        return ridge.posterior(self.sums, ridge=1.0)

    def features_of(self, rows):
        return self.features[rows]

    def learn(self, times):
        rows = self.rng.integers(0, max(self.used, 1), times)
        values = self.features[rows] @ self.theta + self.rng.standard_normal(times)
        self.sums = ridge_sums.add(self.sums, self.features[rows], values, np.ones(times, dtype=bool))

    def restart(self):
        rows = np.array(sorted(self.present), dtype=np.int64)
        self.placed, self.lower, before = {}, {}, set(self.present)
        self.state = start(self.posterior(), rows, self.features_of, self.rules)
        self.check(before)

    def grow(self, count):
        rows = np.arange(self.used, self.used + count)
        before = self.living() | set(rows.tolist())
        self.used += count
        self.present |= set(rows.tolist())
        self.state = add(self.state, self.posterior(), rows, self.features_of)
        self.check(before)

    def shrink(self, rows):
        before = self.living() - set(rows)
        self.present -= set(rows)
        for row in rows:
            self.placed.pop(row, None)
        setter = self.state.setter
        self.state = delete(self.state, np.array(rows, dtype=np.int64))
        assert setter not in rows or self.state.stale
        if self.state.stale:
            self.restart()
        else:
            self.check(before)

    def move_up(self):
        before, lowest = self.living(), self.state.stages[0].stage if self.state.stages else None
        self.state = advance(self.state, self.posterior(), self.features_of)
        if self.state.stages and lowest is not None:
            assert self.state.stages[0].stage >= lowest
        self.check(before)
        if self.state.stale:
            self.restart()

    def living(self):
        return set(self.state.living.rows().tolist())

    def entries(self):
        """Return row -> (stage, bound) over the entries of living arms."""
        found = {}
        for heap in self.state.stages:
            for run in (heap.settled, heap.pushed):
                assert run.least == run.bounds.min(initial=np.inf)
                assert not run.is_sorted or (np.diff(run.bounds) >= 0).all()
                for row, bound in zip(run.rows.tolist(), run.bounds.tolist(), strict=True):
                    if row in self.living():
                        assert row not in found
                        found[row] = (heap.stage, bound)
        return found

    def check(self, before):
        """The invariants; ``before`` are the arms that lived, or came, before this step."""
        state, entries, posterior = self.state, self.entries(), self.posterior()
        spans = self.rules.radius * ridge.widths(posterior, self.features)
        estimates = self.features @ posterior.theta
        assert set(entries) == self.living() <= self.present
        assert state.few.tolist() == (sorted(entries) if len(entries) <= state.rules.few else [])
        assert state.present == len(self.present)
        assert state.living.count == len(entries) == sum(size for _, size in state.sizes())
        held = sum(len(run.rows) for heap in state.stages for run in (heap.settled, heap.pushed))
        tombstoned = held - len(entries)  # entries of deleted arms
        assert 0 <= tombstoned <= state.tombstoned
        assert tombstoned**2 <= len(entries)
        assert not entries or self.living() & set(state.stages[0].rows.tolist())
        assert len(set(state.watched.tolist())) == len(state.watched)
        for row, entry in entries.items():
            stage, bound = entry
            if self.placed.get(row) != entry:  # placed in this very step
                assert spans[row] <= 2.0**-stage
                assert stage == self.rules.last_stage or spans[row] > 2.0 ** -(stage + 1)
                assert bound == pytest.approx(estimates[row] + spans[row], rel=1e-9, abs=1e-9)
            assert spans[row] <= 2.0**-stage * (1 + 1e-9)
            assert bound >= state.threshold or state.stale
        for row in before - set(entries):  # eliminated in this very step
            fresh = estimates[row] + spans[row]
            assert min(fresh, self.placed.get(row, (0, np.inf))[1]) < state.threshold
        for row in self.present:
            if row in entries and self.placed.get(row) != entries[row]:
                self.lower[row] = max(self.lower.get(row, -np.inf), estimates[row] - spans[row])
        known = [value for row, value in self.lower.items() if row in self.present]
        if known and not state.stale:
            assert state.threshold == pytest.approx(max(known), abs=1e-9)
        assert state.stale or state.setter in self.present or not self.present
        self.placed = dict(entries)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(1, 6)),
        st.tuples(st.just("shrink"), st.integers(1, 6)),
        st.tuples(st.just("setter"), st.just(1)),
        st.tuples(st.just("learn"), st.integers(1, 40)),
        st.tuples(st.just("move_up"), st.just(1)),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    radius=st.sampled_from([0.05, 0.5, 1.0, 4.0, 40.0]),
    arms=st.integers(0, 60),
    script=steps,
)
def test_the_invariants_hold_after_every_step(seed, radius, arms, script):
    run = EliminationRun(seed, radius, arms)
    for what, count in script:
        if what == "grow":
            run.grow(count)
        elif what == "learn":
            run.learn(count)
        elif what == "move_up":
            run.move_up()
        elif what == "setter" and run.present:
            run.shrink([run.state.setter])
        elif what == "shrink":
            rows = run.rng.permutation(sorted(run.present))[:count].tolist()
            run.shrink(rows)
    if run.present:
        assert run.living()


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32), radius=st.sampled_from([0.1, 1.0, 4.0]), script=steps)
def test_adds_and_deletes_at_one_posterior_end_where_a_rebuild_does(seed, radius, script):
    """Readmission follows every deletion of the arm that set r, so not even the old r's arms are missing."""
    run = EliminationRun(seed, radius, 40)
    run.learn(30)
    run.restart()
    for what, count in script:
        if what == "grow":
            run.grow(count)
        elif what == "setter" and run.present:
            run.shrink([run.state.setter])
        elif what == "shrink":
            run.shrink(run.rng.permutation(sorted(run.present))[:count].tolist())
    grown, entries = run.state, run.entries()
    run.restart()
    rebuilt = run.entries()
    assert {row: stage for row, (stage, _) in rebuilt.items()} == {row: e[0] for row, e in entries.items()}
    assert all(rebuilt[row][1] == pytest.approx(bound, abs=1e-12) for row, (_, bound) in entries.items())
    assert run.state.sizes() == grown.sizes()
    assert run.state.threshold == pytest.approx(grown.threshold, abs=1e-12)


def test_a_threshold_outlives_the_arm_that_set_it_only_until_that_is_deleted():
    """An arm set r and was eliminated by its own next place: once deleted, it takes r with it."""

    def posterior(of_first, of_second):
        sums = ridge_sums.add(
            ridge_sums.empty(2),
            np.repeat(np.eye(2), 100, axis=0),
            np.repeat([of_first, of_second], 100),
            np.ones(200, dtype=bool),
        )
        return ridge.posterior(sums, ridge=1.0)

    features = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5]])
    limits = rules(radius=0.5, eta=1e-6, few=8)
    state = start(posterior(1.0, 1.5), np.array([0, 2]), lambda rows: features[rows], limits)
    assert (state.setter, set(state.living.rows().tolist())) == (0, {0})
    state = add(state, posterior(1.0, 0.93), np.array([1]), lambda rows: features[rows])
    assert (state.setter, set(state.living.rows().tolist())) == (0, {0, 1})
    state = advance(state, posterior(0.2, 0.93), lambda rows: features[rows])
    assert (state.setter, state.stale, set(state.living.rows().tolist())) == (0, False, {1})
    assert not delete(state, np.array([2])).stale, "an eliminated arm that did not set r"
    assert delete(state, np.array([0])).stale


def test_a_state_is_a_value_and_small():
    arms = 100_000
    features = np.random.default_rng(0).standard_normal((arms, DIM))
    state = start(
        ridge.prior(DIM, ridge=1.0), np.arange(arms), lambda rows: features[rows], rules(radius=1.0, eta=0.01)
    )
    sizes = state.sizes()
    add(state, ridge.prior(DIM, ridge=1.0), np.arange(arms, arms + 5), lambda rows: features[:5])
    delete(state, np.arange(10))
    advance(state, ridge.prior(DIM, ridge=1.0), lambda rows: features[rows])
    assert state.sizes() == sizes
    assert state.living.count == arms
    runs = [run for heap in state.stages for run in (heap.settled, heap.pushed)]
    arrays = [*(run.rows for run in runs), *(run.bounds for run in runs), state.living.bits]
    arrays += [state.watched, state.watched_spans]
    assert len(state.watched) == len(state.watched_spans) > 0
    assert state.nbytes == sum(array.nbytes for array in arrays)
    assert state.nbytes <= arms / 8 + 16 * arms + 24 * 128 + 8
