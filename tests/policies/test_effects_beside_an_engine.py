"""The head of arm effects beside an engine, and its search beside a comparison of all arms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.bandits.effect_version import EffectVersion, version_of_fit
from app.catalogues.learner_snapshot import ConstantSnapshot
from app.engines.contract import EngineArm, EngineName
from app.engines.engine_index import EngineIndex
from app.filters.filter import parse
from app.indexes.live import IndexOptions
from app.platform.pools import SEARCHES
from app.policies.arm_effects import directions_of
from app.policies.engine_effects import EngineEffects, EngineEffectSolver, HeadFollower, most_promising
from app.records.records import ArmDocument, pack, vector_to_bytes
from app.storage.types import StoredArm
from memory_engine import MemoryEngine
from shortlist.linear.arm_effects import EffectFit
from shortlist.types import TopK
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS, DIM, HEAD, E = 2_000, 6, 200, 0.6
ONE = np.ones(1)


class Store:
    """The arms of one catalogue. ``reads``: the ids that were asked for, call by call."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.features = {f"a{n}": row for n, row in enumerate(rng.normal(size=(ARMS, DIM)))}
        self.revisions = {arm: n + 1 for n, arm in enumerate(self.features)}
        self.reads: list[Sequence[str]] = []

    def document(self, arm: str) -> Any:
        return (), {"even": int(arm[1:]) % 2 == 0}

    async def read(self, uid: str, ids: Sequence[str]) -> Sequence[StoredArm | None]:
        self.reads.append(list(ids))
        return [
            StoredArm(
                arm,
                self.revisions[arm],
                0,
                vector_to_bytes(self.features[arm]),
                pack(ArmDocument(tags=[], metadata=self.document(arm)[1])),
            )
            if arm in self.features
            else None
            for arm in ids
        ]


async def index_over(store: Store) -> EngineIndex:
    """An engine that has all arms, and finds the best ones by features."""
    engine = MemoryEngine()
    await engine.create("c", DIM, m=16, ef_construction=100)
    arms = [
        EngineArm(arm, store.revisions[arm], row.astype(np.float32), store.document(arm))
        for arm, row in store.features.items()
    ]
    await engine.write("c", arms, [])
    options, name = IndexOptions(kind="exact"), EngineName("memory", "Memory", "")
    index = EngineIndex("c", DIM, options, engine=engine, store=store, engine_name=name)  # type: ignore[arg-type]
    index.followed = index.followed.__class__(1, ARMS, 0, index.followed.position, "c", b"", is_ours=False)
    return index


def version(rng: np.random.Generator, tau: float, number: int = 1, arms: int = ARMS // 4) -> EffectVersion:
    n = rng.integers(1, 30, arms).astype(float)
    return version_of_fit(
        number, 1, space=0, decisions=arms, fits=[EffectFit(tau**2, 0.5)],
        arms=[f"a{k}" for k in range(arms)], revisions=list(range(1, arms + 1)),
        n=n[None], R=(n * tau * rng.normal(size=arms))[None],
    )  # fmt: skip


async def follower_of(index: EngineIndex, found: EffectVersion) -> HeadFollower:
    follower = HeadFollower(SimpleNamespace(index=index, dim=DIM))  # type: ignore[arg-type]
    follower.follow(found, ONE, E)

    async def is_read() -> bool:
        return follower.head is not None and not follower.is_reading

    await wait_until(is_read, what="the head is read")
    return follower


def by_comparison(
    store: Store, found: EffectVersion, query: np.ndarray, w: np.ndarray, arms: Sequence[str], *, k: int
) -> list[str]:
    revisions = np.array([store.revisions[arm] for arm in arms])
    (own,), (noises,) = found.of_arms(arms)
    scores = np.array([store.features[arm] for arm in arms]) @ query + own
    scores += E * noises * (w @ directions_of(revisions))
    return [arms[place] for place in np.argsort(-scores)[:k].tolist()]


async def searched(
    index: EngineIndex, effects: EngineEffects, query: np.ndarray, w: np.ndarray, k: int, **more: Any
) -> tuple[list[str], TopK]:
    arm_filter, exclude = more.get("arm_filter"), more.get("exclude", ())
    plain = index.snapshot() if arm_filter is None else index.snapshot().filtered(arm_filter)
    arms = ConstantSnapshot(plain, 1.0) if more.get("constant") else plain
    solver = EngineEffectSolver(arms, arms, effects, w=w)
    rows = plain.rows_of(exclude)
    hits = await SEARCHES.run(partial(solver.search, query, k, rows))
    return [plain.id_of(row) for row in hits.rows.tolist()], hits


@pytest.mark.parametrize("tau", [0.1, 1.0, 3.0])
async def test_the_best_arms_are_found_and_no_list_is_exact(tau: float):
    rng = np.random.default_rng(int(10 * tau))
    store = Store(rng)
    index, found = await index_over(store), version(rng, tau * DIM**0.5)
    follower, arms = await follower_of(index, found), list(store.features)
    effects, best = EngineEffects(found, ONE, E, follower.head), 0
    for _ in range(100):
        query, w = rng.normal(size=DIM), rng.normal(size=4)
        ids, hits = await searched(index, effects, query, w, 5)
        wanted = by_comparison(store, found, query, w, arms, k=5)
        assert not hits.exact
        assert len(set(ids)) == 5
        best += ids[0] == wanted[0]
    assert best >= 97


async def test_constants_exclusions_and_filters_hold_for_the_head_too():
    rng = np.random.default_rng(1)
    store = Store(rng)
    index, found = await index_over(store), version(rng, DIM**0.5)
    follower, arms = await follower_of(index, found), list(store.features)
    effects = EngineEffects(found, ONE, E, follower.head)
    even = parse({"even": True})
    evens = [arm for arm in arms if int(arm[1:]) % 2 == 0]
    same = 0
    for _ in range(20):
        query, w = rng.normal(size=DIM), rng.normal(size=4)
        ids, hits = await searched(index, effects, query, w, 4)
        joint, joint_hits = await searched(index, effects, np.append(query, 2.0), w, 4, constant=True)
        assert joint == ids
        np.testing.assert_allclose(joint_hits.scores, hits.scores + 2.0)
        excluded, _ = await searched(index, effects, query, w, 4, exclude=ids[:2])
        assert not set(excluded) & set(ids[:2])
        assert excluded[:2] == ids[2:]
        filtered, _ = await searched(index, effects, query, w, 4, arm_filter=even)
        same += filtered == by_comparison(store, found, query, w, evens, k=4)
    assert same >= 18


async def test_without_a_head_what_the_engine_finds_is_ranked_with_effects():
    rng = np.random.default_rng(2)
    store = Store(rng)
    index, found = await index_over(store), version(rng, 0.01)
    query, w = rng.normal(size=DIM), rng.normal(size=4)
    ids, _ = await searched(index, EngineEffects(found, ONE, E, None), query, w, 5)
    assert ids == by_comparison(store, found, query, w, list(store.features), k=5)


async def test_a_head_follows_the_effects_and_the_arms_and_reads_what_is_new():
    rng = np.random.default_rng(3)
    store = Store(rng)
    index, first = await index_over(store), version(rng, 1.0, arms=HEAD)
    follower = await follower_of(index, first)
    assert sorted(arm for read in store.reads for arm in read) == sorted(first.names)

    async def follows(found: EffectVersion) -> list[str]:
        """What is read for a version, once it has been."""
        store.reads.clear()
        before = follower.head
        follower.follow(found, ONE, E)

        async def is_read() -> bool:
            return follower.head is not before and not follower.is_reading

        await wait_until(is_read, what="the head is read")
        return sorted(arm for read in store.reads for arm in read)

    second = version(rng, 1.0, number=2, arms=HEAD + 3)
    assert await follows(second) == sorted(f"a{n}" for n in range(HEAD, HEAD + 3))
    follower.follow(first, ONE, E)  # a decision of before is explained
    assert not follower.is_reading
    # Arms that changed keep their effects, and those that are gone are not in the head.
    del store.features["a5"]
    store.revisions["a6"], store.features["a6"] = 9_000, np.ones(DIM)
    index.note_changes(["a5", "a6", "a1500", "nobody"])
    assert await follows(second) == ["a5", "a6"]
    head = follower.head
    assert head is not None
    ids = [head.arms.id_of(row) for row in head.rows.tolist()]
    assert "a5" not in ids
    assert head.effects[0, ids.index("a6")] == second.of_arms(["a6"])[0][0, 0] != 0.0
    assert len(ids) == HEAD + 2
    follower.follow(second, ONE, E)
    assert not follower.is_reading
    index.note_changes(None)
    assert len(await follows(second)) == HEAD + 3


async def test_an_arm_that_changes_while_it_is_read_is_read_again():
    rng = np.random.default_rng(4)
    store = Store(rng)
    index = await index_over(store)
    held, read = index.hold(), store.read

    async def changes(uid: str, ids: Sequence[str]) -> Sequence[StoredArm | None]:
        found = await read(uid, ids)
        store.revisions["a1"], store.features["a1"] = 9_000, np.ones(DIM)
        index.note_changes(["a1"])
        return found

    store.read = changes  # type: ignore[method-assign]
    await held.hold(["a1", "a2"])
    assert not held.is_current
    store.read = read  # type: ignore[method-assign]
    await held.hold(["a1", "a2"])
    assert held.is_current
    arms = held.snapshot()
    np.testing.assert_array_equal(arms.features_of(arms.rows_of(["a1"])), np.ones((1, DIM)))


def test_the_most_promising_arms_are_those_of_largest_effect_and_uncertainty():
    found = version(np.random.default_rng(6), 1.0, arms=50)
    effects, deviations = found.effects[0], found.deviations[0]
    wanted = np.argsort(-(effects + 2.5 * E * deviations))[:10]
    assert sorted(most_promising(found, ONE, E, 10)) == sorted(f"{found.names[place]}" for place in wanted)
    assert len(most_promising(found, ONE, E, 60)) == 50
