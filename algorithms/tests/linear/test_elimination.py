"""The state of elimination against a mirror that knows when each arm was placed, after every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.errors import InvalidParameter, NonFinite
from shortlist.linear import elimination, ridge, ridge_sums
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


@pytest.mark.rest
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


@pytest.mark.rest
def test_the_stage_as_printed_breaks_the_invariant():
    """ceil(-log2 w) puts 2^-s below the width, for every width that is not a power of two."""
    spans = np.random.default_rng(0).lognormal(0, 3, 1000)
    printed = np.ceil(-np.log2(spans))
    assert (spans > 2.0**-printed).all()
    ours = elimination.stage_of(spans, 10**6)
    assert (spans <= 2.0**-ours).all()
    assert (spans > 2.0 ** -(ours + 1)).all()


@pytest.mark.rest
@pytest.mark.parametrize(("span", "stage"), [(1.0, 0), (0.5, 1), (2.0, -1), (0.75, 0), (3.0, -2), (0.0, 7)])
def test_stages_of_powers_of_two_are_exact(span, stage):
    assert elimination.stage_of(np.array([span]), 7).tolist() == [stage]


@pytest.mark.rest
def test_stages_are_capped_and_may_be_negative():
    assert elimination.stage_of(np.array([1e-9, 100.0]), 4).tolist() == [4, -7]
    assert rules(radius=1.0, eta=0.02).last_stage == 3
    assert rules(radius=1.0, eta=1 / 64).last_stage == 3
    assert rules(radius=1.0, eta=0.9).last_stage == -2


@pytest.mark.rest
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


@pytest.mark.rest
def test_a_state_without_arms_watches_none():
    state = start(ridge.prior(DIM, ridge=1.0), np.arange(0), np.zeros, rules(radius=1.0, eta=0.01))
    assert (len(state.watched), len(state.watched_spans), state.sizes(), state.setter < 0) == (0, 0, [], True)


@pytest.mark.rest
def test_a_state_shrinks_with_its_arms():
    """K / 8 bytes and at most 32 for each living arm: what was eliminated is not held by a slice."""
    arms = 100_000
    rng = np.random.default_rng(0)
    features = rng.standard_normal((arms, DIM))
    sums = ridge_sums.add(
        ridge_sums.empty(DIM), features[:400], 3 * features[:400, 0], np.ones(400, dtype=bool)
    )
    known = ridge.posterior(sums, ridge=1.0)
    everything = np.arange(arms)
    state = start(known, everything, lambda rows: features[rows], rules(radius=0.5, eta=0.001))
    assert state.living.count < arms / 4
    assert state.nbytes <= arms / 8 + 32 * state.living.count + 24 * 128 + 8


@pytest.mark.rest
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


@pytest.mark.rest
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_finite_are_named(bad):
    with pytest.raises(NonFinite, match="features"):
        start(
            ridge.prior(1, ridge=1.0),
            np.arange(1),
            lambda rows: np.array([[bad]]),
            rules(radius=1.0, eta=0.01),
        )


@pytest.mark.rest
@pytest.mark.parametrize(
    ("radius", "eta"), [(0.0, 0.1), (-1.0, 0.1), (np.nan, 0.1), (1.0, 0.0), (1.0, np.inf)]
)
def test_bad_rules_are_named(radius, eta):
    with pytest.raises(InvalidParameter):
        rules(radius=radius, eta=eta)


@pytest.mark.rest
@pytest.mark.parametrize("share", [0.0, 0.6, np.nan])
def test_a_share_with_which_a_pass_might_not_help_is_refused(share):
    with pytest.raises(InvalidParameter, match="share"):
        rules(radius=1.0, eta=0.1, share=share)


@pytest.mark.rest
@pytest.mark.parametrize(("arms", "few"), [(256, 256), (257, 0)])
def test_without_a_number_up_to_256_arms_are_few(arms, few):
    features = np.ones((arms, 1))
    limits = rules(radius=1.0, eta=0.01)
    state = start(ridge.prior(1, ridge=1.0), np.arange(arms), lambda rows: features[rows], limits)
    assert len(state.few) == few
    assert limits.share == 0.5


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


@pytest.mark.rest
def test_an_arm_without_hope_changes_nothing_but_the_count():
    posterior, state = known_well()
    after = add(state, posterior, np.arange(20, 23), lambda rows: np.tile([0.1, 4.0], (len(rows), 1)))
    assert after.present == state.present + 3
    for name in ("stages", "living", "threshold", "watched", "few"):
        assert getattr(after, name) is getattr(state, name)


@pytest.mark.rest
def test_of_new_arms_only_those_with_hope_are_placed_and_watched():
    posterior, state = known_well()
    features = np.array([[0.1, 4.0], [1.0, 0.5], [0.1, 5.0]])
    after = add(state, posterior, np.arange(20, 23), lambda rows: features[rows - 20])
    placed = set(np.concatenate([heap.rows for heap in after.stages]).tolist())
    assert placed & {20, 21, 22} == {21}
    assert set(after.watched.tolist()) & {20, 21, 22} == {21}
    assert after.present == 23


@pytest.mark.rest
def test_arms_that_come_when_r_cannot_be_trusted_all_live():
    posterior, state = known_well()
    stale = delete(state, np.array([state.setter]))
    assert stale.stale
    after = add(stale, posterior, np.array([20]), lambda rows: np.array([[0.1, 4.0]]))
    assert 20 in after.watched
    assert after.stale


@pytest.mark.rest
def test_what_is_deleted_of_a_state_that_cannot_be_trusted_makes_it_no_better():
    _, state = known_well()
    stale = delete(state, np.array([state.setter]))
    assert delete(stale, np.setdiff1d(stale.living.rows(), [state.setter])[:1]).stale


@pytest.mark.rest
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


@pytest.mark.rest
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
