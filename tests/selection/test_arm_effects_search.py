"""The search for arms that are worth most with their effects, beside a comparison of all arms."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from app.bandits.effect_version import AgeFit, EffectVersion, version_of_fit
from app.catalogues.learner_snapshot import ConstantSnapshot
from app.filtering.filtered_snapshot import without_rows
from app.filters.coded_values import Small
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.snapshot import Snapshot
from app.records.age_sums import as_in_tokens
from app.selection.arm_effects import (
    LEAST_ASKED,
    ArmEffects,
    Directions,
    EffectSolver,
    Numbers,
    directions_of,
)
from app.selection.effect_tables import EffectTables
from app.selection.list_limits import LimitedSolver, Limits
from shortlist.index.hnsw import HnswGraph
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.table import TableSnapshot, longest_first
from shortlist.linear.ages import BINS, bin_of
from shortlist.linear.arm_effects import EffectFit, estimates
from shortlist.types import NO_ROWS, Rows, TopK, Vector

ARMS, DIM, HEAD, E = 600, 6, 60, 0.6


def index_of(rng: np.random.Generator) -> LiveIndex:
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert([f"a{n}" for n in range(ARMS)], rng.normal(size=(ARMS, DIM)) / 2, range(1, ARMS + 1))
    index.remove(["a11", "a12"])
    return index


def version(rng: np.random.Generator, taus: list[float], arms: int = ARMS // 2) -> EffectVersion:
    """Effects of half of the arms, those of ``a0`` with features that have changed since."""
    n = rng.integers(1, 30, arms).astype(float)
    R = np.array([n * tau * rng.normal(size=arms) for tau in taus])
    fits = [EffectFit(tau**2, 0.5) for tau in taus]
    return version_of_fit(
        1, 1, space=0, decisions=arms, fits=fits, arms=[f"a{n}" for n in range(arms)],
        revisions=[99, *range(2, arms + 1)], n=np.tile(n, (len(taus), 1)), R=R,
    )  # fmt: skip


def worth_of(found: EffectVersion, ids: list[str], weights: np.ndarray, w: np.ndarray) -> np.ndarray:
    """What each arm has beyond its features, one after the other."""
    worth = []
    for arm in ids:
        effect, variance = 0.0, weights**2 @ np.array(found.record.variances)
        (place,) = found.names.places_of([arm])
        if place >= 0:
            effect, variance = weights @ found.effects[:, place], weights**2 @ found.deviations[:, place] ** 2
        worth.append(effect + E * np.sqrt(variance) * (directions_of(np.array([1 + int(arm[1:])]))[:, 0] @ w))
    return np.array(worth)


def in_blocks(snapshot: Snapshot) -> Snapshot:
    """The same arms, searched by an exact index that is no scan."""
    blocks = NormBlocks(snapshot.table)
    return Snapshot(snapshot.table, blocks, 1.0, snapshot.recent, snapshot.attributes)


def in_graph(snapshot: Snapshot) -> Snapshot:
    """The same arms in blocks that say that they are approximate, as a graph does."""
    found = in_blocks(snapshot)
    assert found.structure is not None
    found.structure.search = Approximate(found.structure).search  # type: ignore[method-assign]
    return found


class Approximate:
    """Finds what ``blocks`` find, and does not promise it."""

    def __init__(self, blocks: NormBlocks) -> None:
        self.exactly = blocks.search

    def search(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows) -> TopK:
        hits = self.exactly(table, query, k, exclude)
        return TopK(hits.rows, hits.scores, exact=False)


@pytest.mark.parametrize("searched", [lambda arms: arms, in_blocks, in_graph])
@pytest.mark.parametrize("taus", [[0.0, 0.05], [1.0], [4.0], [0.3, 1.0]])
def test_the_list_is_that_of_a_comparison_of_all_arms(
    searched: Callable[[Snapshot], Snapshot], taus: list[float]
):
    rng = np.random.default_rng(len(taus) + int(10 * taus[0]))
    index = index_of(rng)
    whole, weights = searched(index.snapshot()), np.array([1.0, -2.0])[: len(taus)]
    found = version(rng, taus)
    effects = ArmEffects.of(found, Directions(), whole.table, weights, E, most_head=HEAD)
    best = 0
    for size in (0, 100, 590):  # of what a filter leaves out
        gone = np.zeros(whole.table.rows, dtype=np.bool_)
        gone[rng.choice(ARMS, size, replace=False)] = True
        snapshot = without_rows(whole, gone) if size else whole
        rows = np.sort(snapshot.eligible())
        ids = [snapshot.id_of(row) for row in rows.tolist()]
        for k in (1, 5, 30, ARMS):
            query, exclude = rng.normal(size=DIM), rng.choice(rows, 5, replace=False)
            if k == 5:
                query *= 1e12  # beyond float32, where effects are as nothing
            solver = EffectSolver(snapshot, snapshot, effects, rng)
            hits = solver.search(query, k, exclude)
            worth = snapshot.features_of(rows) @ query + worth_of(found, ids, weights, solver.w)
            worth[np.isin(rows, exclude)] = -np.inf
            wanted = rows[np.argsort(-worth)][: min(k, len(rows) - 5)]
            assert len(hits.rows) == len(wanted)
            assert hits.exact or searched is in_graph
            if hits.exact:
                assert hits.rows.tolist() == wanted.tolist()
            best += hits.rows[0] == wanted[0]
            own = worth[np.searchsorted(rows, hits.rows)]
            np.testing.assert_allclose(hits.scores, own, rtol=1e-6, atol=1e-6)
    assert best >= 10  # of 12, also where the list is not certain


class TwoOfEachTen:
    """At most two arms of those whose rows end in the same digit."""

    field = None

    def pairs(self, arms: Snapshot, rows: Rows) -> tuple[Small, Small, Rows]:
        return np.arange(len(rows), dtype=np.int32), (rows % 10).astype(np.int32), np.full(10, 2)


def test_a_search_within_limits_ranks_all_arms_by_what_they_are_worth():
    rng = np.random.default_rng(6)
    snapshot, found = index_of(rng).snapshot(), version(rng, [1.0])
    effects = ArmEffects.of(found, Directions(), snapshot.table, np.ones(1), E)
    solver, query = EffectSolver(snapshot, snapshot, effects, w=rng.normal(size=4)), rng.normal(size=DIM)
    hits = LimitedSolver(snapshot, solver, Limits([TwoOfEachTen()], snapshot, NO_ROWS)).search(query, 60)
    counts, wanted = Counter[int](), list[int]()
    for row in solver.search(query, ARMS).rows.tolist():
        counts[row % 10] += 1
        if counts[row % 10] <= 2:
            wanted.append(row)
    assert hits.rows.tolist() == wanted
    assert len(wanted) == 20


@pytest.mark.rest
@pytest.mark.parametrize("has_head", [False, True])
def test_arms_that_changed_have_their_effects_at_once_and_new_ones_have_none(has_head: bool):
    rng = np.random.default_rng(2)
    index, found, directions = index_of(rng), version(rng, [1.0]), Directions()
    first = ArmEffects.of(found, directions, index.snapshot().table, np.ones(1), E, most_head=HEAD)
    if has_head:
        assert first.bound(np.ones(4)) < np.inf
        assert len(first.head(index.snapshot().table).rows) == HEAD
    index.upsert(["new"], np.full((1, DIM), 9.0), [5_000])
    effects = first.with_rows(index.snapshot().table)
    assert effects is first
    best = found.names[int(found.effects[0].argmax())]
    index.remove(["a5"])
    for number, arms in enumerate([[best, "a5"], ["a7", best]]):
        index.upsert(arms, rng.normal(size=(2, DIM)), [5_001 + 2 * number, 5_002 + 2 * number])
        effects = effects.with_rows(index.snapshot().table)
    snapshot, w = index.snapshot(), rng.normal(size=4)
    again = ArmEffects.of(found, directions, snapshot.table, np.ones(1), E, most_head=HEAD)
    eligible = snapshot.eligible()
    assert effects.worth(snapshot, eligible, w).tolist() == again.worth(snapshot, eligible, w).tolist()
    row = snapshot.rows_of(["a5"])
    assert effects.worth(snapshot, row)[0] == pytest.approx(found.of_arms(["a5"])[0][0, 0])
    assert effects.worth(snapshot, snapshot.rows_of(["new"])).tolist() == [0.0]
    others = np.setdiff1d(eligible, effects.head(snapshot.table).rows)
    assert effects.worth(snapshot, others, w).max() <= effects.bound(w)
    searched = in_blocks(snapshot)
    for _ in range(20):
        query, w = rng.normal(size=DIM) / 4, rng.normal(size=4)
        hits, wanted = (
            EffectSolver(searched, searched, own, w=w).search(query, 3) for own in (effects, again)
        )
        assert hits.rows.tolist() == wanted.rows.tolist()


@pytest.mark.parametrize("last", [-100.0, 100.0])
@pytest.mark.parametrize("searched", [lambda arms: arms, in_blocks, in_graph])
def test_a_large_constant_of_an_intercept_is_in_the_scores_and_the_same_arms_are_best(
    searched: Callable[[Snapshot], Snapshot], last: float
):
    rng = np.random.default_rng(3)
    plain, found = searched(index_of(rng).snapshot()), version(rng, [4.0])
    arms = ConstantSnapshot(plain, 0.5)
    effects = ArmEffects.of(found, Directions(), plain.table, np.ones(1), E, most_head=HEAD)
    query = rng.normal(size=DIM)
    hits = EffectSolver(arms, arms, effects).search(np.append(query, last), 4)
    wanted = EffectSolver(plain, plain, effects).search(query, 4)
    assert hits.rows.tolist() == wanted.rows.tolist()
    np.testing.assert_allclose(hits.scores, wanted.scores + 0.5 * last)
    nearest = plain.search(query, max(LEAST_ASKED, 8)).rows
    assert not np.isin(hits.rows, nearest).all()  # of large effect alone


def test_the_bound_is_above_all_that_is_outside_of_the_head():
    rng = np.random.default_rng(4)
    snapshot, found = index_of(rng).snapshot(), version(rng, [0.7])
    effects = ArmEffects.of(found, Directions(), snapshot.table, np.ones(1), E, most_head=HEAD)
    others = np.setdiff1d(snapshot.eligible(), effects.head(snapshot.table).rows)
    for w in rng.normal(size=(50, 4)) * rng.uniform(0.1, 3.0, (50, 1)):
        assert effects.worth(snapshot, others, w).max() <= effects.bound(w)
    assert effects.bound(np.full(4, 100.0)) == np.inf
    assert effects.bound(None) >= effects.effects[others].max()


@pytest.mark.rest
def test_directions_follow_from_the_id_alone_and_are_spread_evenly():
    found = directions_of(np.arange(1, 4_001)).T.astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-6)
    # of 4,000 the mean has a length of about 1 / sqrt(4,000) = .016, and each square a mean of 1 / 4
    assert np.linalg.norm(found.mean(0)) < 0.08
    np.testing.assert_allclose((found**2).mean(0), 0.25, atol=0.03)
    # those of numbers that follow each other have nothing in common: cosines have a deviation of 1/2
    assert abs(np.mean(found[1:] @ found[:-1].T)) < 0.01
    np.testing.assert_allclose(np.std(np.sum(found[1:] * found[:-1], axis=1)), 0.5, atol=0.03)
    assert (directions_of(np.array([2])) == directions_of(np.array([1, 2]))[:, 1:]).all()


@pytest.mark.rest
def test_estimates_are_those_of_the_version():
    rng = np.random.default_rng(5)
    found = version(rng, [0.8])
    effects, deviations = estimates(found.n[0], found.R[0], EffectFit(0.8**2, 0.5))
    np.testing.assert_allclose(found.effects[0], effects, atol=1e-6)
    np.testing.assert_allclose(found.deviations[0], deviations)
    assert found.of_arms(["a0", "a3", "nobody"])[0][0].tolist() == [
        found.effects[0, 0],
        found.effects[0, 3],
        0.0,
    ]


@pytest.mark.anyio
async def test_effects_of_many_arms_are_laid_out_once_for_all_choices_that_wait():
    rng = np.random.default_rng(8)
    index, found = index_of(rng), version(rng, [1.0])
    bandit = SimpleNamespace(effects=found, weighing=None, uid="b", exploration=E)
    tables = EffectTables(capacity_bytes=1 << 20)
    threads = EffectTables(capacity_bytes=1 << 20, inline_arms=0)
    inline = await tables.of(bandit, index.snapshot())
    assert inline is await tables.of(bandit, index.snapshot())
    bandit.exploration = 2 * E
    made = await asyncio.gather(*(threads.of(bandit, index.snapshot()) for _ in range(3)))
    assert made[0] is made[1] is made[2]
    assert inline is not None
    assert made[0] is not None
    np.testing.assert_allclose(made[0].noises, 2.0 * inline.noises)
    # arms that came since, more than there was room for
    index.upsert([f"new{n}" for n in range(ARMS)], np.ones((ARMS, DIM)), range(9_000, 9_000 + ARMS))
    later = await threads.of(bandit, index.snapshot())
    assert later is not None
    assert len(later.effects) >= 2 * ARMS
    np.testing.assert_array_equal(later.effects[:ARMS], inline.effects[:ARMS])


@pytest.mark.rest
def test_directions_of_all_arms_are_those_of_each_also_of_arms_that_came_since():
    index, directions = index_of(np.random.default_rng(12)), Directions()
    directions.of(index.snapshot().table, np.array([3, 1]))
    for came in (0, 1, ARMS):  # none, within the room that there is, and more
        index.upsert([f"new{n}" for n in range(came)], np.ones((came, DIM)), range(9_000, 9_000 + came))
        table = index.snapshot().table
        rows = np.arange(table.rows)
        np.testing.assert_array_equal(directions.of_all(table), directions_of(table.revisions[rows]))
        np.testing.assert_array_equal(directions.of(table, rows[::-1]), directions.of_all(table)[:, ::-1])


@pytest.mark.rest
@pytest.mark.anyio
async def test_directions_of_a_table_are_computed_before_choices_need_them(monkeypatch: pytest.MonkeyPatch):
    computed, of_all, loop = asyncio.Event(), Directions.of_all, asyncio.get_running_loop()

    def noted(directions: Directions, table: TableSnapshot) -> Numbers:
        result = of_all(directions, table)
        loop.call_soon_threadsafe(computed.set)
        return result

    monkeypatch.setattr(Directions, "of_all", noted)
    rng = np.random.default_rng(13)
    bandit = SimpleNamespace(effects=version(rng, [1.0]), weighing=None, uid="b", exploration=E)
    await EffectTables(capacity_bytes=1 << 20).of(bandit, index_of(rng).snapshot())  # type: ignore[arg-type]
    async with asyncio.timeout(30.0):
        assert await computed.wait()


def test_rows_of_many_ids_are_those_of_each():
    index = index_of(np.random.default_rng(9))
    empty, before = LiveIndex(DIM).snapshot().table, index.snapshot().table
    index.upsert(["a3", "new"], np.ones((2, DIM)), [7_000, 7_001])
    index.remove(["a4"])
    ids = [*(f"a{n}" for n in range(ARMS)), "new", "nobody"]
    for table in (empty, before, index.snapshot().table):
        assert table.row_of_each(ids).tolist() == [table.row_of(arm) for arm in ids]


def in_small_graph(index: LiveIndex, *, most: int) -> Snapshot:
    """The arms in a graph that proposes at most so many; one came since, and is compared beside it."""
    snapshot = index.snapshot()
    rows = longest_first(snapshot.table, snapshot.table.live_rows)
    graph = HnswGraph.build(
        snapshot.table, rows, m=8, ef_construction=60, seed=1, threads=1, check=lambda: None
    )
    graph.tuned(64, shortlist=20, most=most)
    index.upsert(["new"], 5.0 * np.ones((1, DIM)), [ARMS + 1])
    later = index.snapshot()
    return Snapshot(later.table, graph, 1.0, snapshot.recent, later.attributes)


@pytest.mark.rest
def test_where_a_graph_would_leave_a_search_to_a_scan_all_arms_are_compared_at_once():
    rng = np.random.default_rng(10)
    whole = in_small_graph(index_of(rng), most=100)
    assert whole.structure is not None
    effects = ArmEffects.of(version(rng, [1.0]), Directions(), whole.table, np.ones(1), E, most_head=HEAD)
    for k in (1, 5):
        solver = EffectSolver(whole, whole, effects, w=rng.normal(size=4))
        query = rng.normal(size=DIM)
        hits, wanted = solver.search(query, k), solver.search_exact(query, k)
        assert hits.exact
        assert hits.rows.tolist() == wanted.rows.tolist()
    assert not whole.recent  # neither the graph nor a plain scan was asked
    assert whole.structure.search(whole.table, query, 50) is not None
    assert whole.structure.search(whole.table, query, 51) is None


@pytest.mark.rest
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_the_best_arms_are_among_those_that_a_graph_has_looked_at_or_of_large_effect(tau: float):
    rng = np.random.default_rng(9)
    whole = in_small_graph(index_of(rng), most=ARMS)
    table = whole.table
    effects = ArmEffects.of(version(rng, [tau]), Directions(), table, np.ones(1), E, most_head=HEAD)
    best = 0
    for _ in range(100):
        query, w = rng.normal(size=DIM), rng.normal(size=4)
        solver = EffectSolver(whole, whole, effects, w=w)
        exclude = rng.choice(whole.eligible(), 5, replace=False)
        hits, wanted = solver.search(query, 5, exclude), solver.search_exact(query, 5, exclude)
        assert not hits.exact
        assert not np.isin(hits.rows, exclude).any()
        assert len(set(hits.rows.tolist())) == 5
        best += hits.rows[0] == wanted.rows[0]
        seen = ConstantSnapshot(whole, 2.0)  # all score 6 less, and the same are best
        joint = EffectSolver(seen, seen, effects, w=w).search(np.append(query, -3.0), 5, exclude)
        assert joint.rows.tolist() == hits.rows.tolist()
        np.testing.assert_allclose(joint.scores, hits.scores - 6.0)
        if hits.rows.tolist() == wanted.rows.tolist():
            np.testing.assert_allclose(hits.scores, wanted.scores)
    assert best >= 97
    # Of a graph that is scanned for such lists without effects, more arms are asked.
    graph = whole.structure
    assert isinstance(graph, HnswGraph)
    graph.scan_lists()
    assert (graph.leaves_to_scan(1), graph.leaves_to_scan(5)) == (False, True)
    hits, wanted = solver.search(query, 5), solver.search_exact(query, 5)
    assert hits.rows.tolist() == wanted.rows.tolist()
    assert not hits.exact


@pytest.mark.rest
@pytest.mark.parametrize("searched", [lambda arms: arms, in_blocks])
def test_ages_are_a_part_of_what_arms_have_also_of_arms_that_come_later(
    searched: Callable[[Snapshot], Snapshot],
):
    """Rows that come after the version: new arms, old ones with other features, and some of unknown age."""
    rng, since_ms = np.random.default_rng(7), 10**12
    effects_of_ages = as_in_tokens(np.linspace(2.0, -2.0, BINS))
    fit = AgeFit(effects_of_ages, [0.1] * BINS, [], [], [], [])
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    features = rng.normal(size=(ARMS, DIM)) / 2
    came = dict(
        zip(map("a{}".format, range(ARMS)), (since_ms - rng.integers(1, 10**9, ARMS)).tolist(), strict=True)
    )
    came |= {f"a{n}": 0 for n in range(0, ARMS, 7)}
    index.upsert(list(came), features, range(1, ARMS + 1), list(came.values()))
    version = version_of_fit(
        1, since_ms, space=0, decisions=3, fits=[EffectFit(0.25, 0.5)], arms=["a1", "a2"], revisions=[2, 3],
        n=np.ones((1, 2)), R=np.array([[3.0, -3.0]]), ages=fit,
    )  # fmt: skip
    weights = np.ones(1)
    effects = ArmEffects.of(version, Directions(), index.snapshot().table, weights, E, most_head=HEAD)
    for turn in range(4):
        if turn:  # a search has looked at the head before
            ids = [f"new{turn}", f"a{turn}", f"a{100 + turn}", f"a{7 * turn}"]
            came[ids[0]] = since_ms + turn
            revisions = range(ARMS + 10 * turn, ARMS + 10 * turn + 4)
            index.upsert(ids, rng.normal(size=(4, DIM)) / 2, revisions, [came[arm] for arm in ids])
            effects = effects.with_rows(index.snapshot().table)
        snapshot = searched(index.snapshot())
        rows = np.sort(snapshot.eligible())
        ids = [snapshot.id_of(row) for row in rows.tolist()]
        own = dict(zip(version.names, version.effects[0].tolist(), strict=True))
        aged = [0.0 if not came[arm] else effects_of_ages[bin_of(since_ms - came[arm])] for arm in ids]
        wanted = np.array(aged) + np.array([own.get(arm, 0.0) for arm in ids])
        np.testing.assert_allclose(effects.worth(snapshot, rows), wanted, atol=1e-6)
        for k in (1, 5, 30):
            query = rng.normal(size=DIM)
            hits = EffectSolver(snapshot, snapshot, effects).search(query, k)
            scores = snapshot.features_of(rows) @ query + wanted
            assert hits.exact
            assert hits.rows.tolist() == rows[np.argsort(-scores)][:k].tolist()
