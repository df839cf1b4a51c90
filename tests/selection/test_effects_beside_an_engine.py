"""The head of arm effects beside an engine, and its search beside a comparison of all arms."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.bandits.effect_version import EffectVersion, version_of_fit
from app.catalogues.learner_snapshot import ConstantSnapshot
from app.engines.engine_contract import EngineArm, EngineName
from app.engines.engine_index import EngineIndex
from app.filters.filter import parse
from app.indexes.live import IndexOptions
from app.policies.base import Policy
from app.records.records import ArmDocument, pack, vector_to_bytes
from app.selection.arm_effects import EffectSolver, directions_of
from app.selection.effect_tables import EffectTables, most_promising
from app.selection.selection import Candidates, Ranking, SelectionRequest
from app.storage.types import LearnerId, StoredArm
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


class Search(Policy):
    """Searches for ``query``, with the noise of effects that is drawn."""

    name = "search"
    summary = "a search"

    def __init__(self, query: np.ndarray) -> None:
        self.query = query

    def rank(
        self, posterior: Any, candidates: Candidates, k: int, rng: np.random.Generator, prepared: Any
    ) -> Ranking:
        assert candidates.effects is not None
        solver = EffectSolver(candidates.arms, candidates.arms, candidates.effects, rng)
        return Ranking(solver.search(self.query, k, candidates.exclude))


class Choices:
    """Choices of a bandit with effects over an engine."""

    def __init__(self, index: EngineIndex, *, constant: float | None = None) -> None:
        self.tables = EffectTables(capacity_bytes=1 << 30)
        catalogue = SimpleNamespace(index=index, dim=DIM)
        self.bandit: Any = SimpleNamespace(
            uid="b", catalogue=catalogue, exploration=E, weighing=None, learns_effects=False,
            record=SimpleNamespace(shortlist=30, signals=None), snapshot=index.snapshot,
            seen=lambda arms: arms if constant is None else ConstantSnapshot(arms, constant),
        )  # fmt: skip

    def newest_entry(self, _: Any) -> int:
        return 0

    async def current(self, *_: Any) -> tuple[Any, None]:
        return SimpleNamespace(version=0), None

    async def chosen(
        self, found: EffectVersion, query: np.ndarray, k: int, *, seed: int = 0, **more: Any
    ) -> tuple[list[str], TopK]:
        self.bandit.effects = found
        fields = {"exclude": (), "time_ms": 0} | more
        request = SelectionRequest(
            self.bandit, LearnerId("b", ""), k, rng=np.random.default_rng(seed), **fields
        )
        dependencies: Any = SimpleNamespace(learners=self, effects=self.tables)
        selection = await Search(query).choose(dependencies, request)
        rows = selection.hits.rows.tolist()
        return [selection.snapshot.arms.id_of(row) for row in rows], selection.hits

    async def read(self, found: EffectVersion) -> None:
        """Wait until the arms of largest effect of this version are at hand."""
        self.bandit.effects = found

        async def is_read() -> bool:
            await self.tables.at_hand(self.bandit, self.bandit.catalogue.index, None)
            return not self.tables.is_reading

        await wait_until(is_read, what="the head is read")


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(4)


def by_comparison(
    store: Store, found: EffectVersion, query: np.ndarray, w: np.ndarray, arms: Sequence[str], *, k: int
) -> list[str]:
    revisions = np.array([store.revisions[arm] for arm in arms])
    (own,), (noises,) = found.of_arms(arms)
    scores = np.array([store.features[arm] for arm in arms]) @ query + own
    scores += E * noises * (w @ directions_of(revisions))
    return [arms[place] for place in np.argsort(-scores)[:k].tolist()]


@pytest.mark.parametrize("tau", [0.1, 1.0, 3.0])
async def test_the_best_arms_are_found_and_no_list_is_exact(tau: float):
    rng = np.random.default_rng(int(10 * tau))
    store = Store(rng)
    choices, found = Choices(await index_over(store)), version(rng, tau * DIM**0.5)
    await choices.read(found)
    arms, best = list(store.features), 0
    for seed in range(100):
        query = rng.normal(size=DIM)
        ids, hits = await choices.chosen(found, query, 5, seed=seed)
        wanted = by_comparison(store, found, query, noise(seed), arms, k=5)
        assert not hits.exact
        assert len(set(ids)) == 5
        best += ids[0] == wanted[0]
    assert best >= 97


async def test_constants_exclusions_and_filters_hold_for_the_head_too():
    rng = np.random.default_rng(1)
    store = Store(rng)
    index, found = await index_over(store), version(rng, DIM**0.5)
    choices, joint = Choices(index), Choices(index, constant=1.0)
    await choices.read(found)
    await joint.read(found)
    even = parse({"even": True})
    evens = [arm for arm in store.features if int(arm[1:]) % 2 == 0]
    same = 0
    for seed in range(20):
        query = rng.normal(size=DIM)
        ids, hits = await choices.chosen(found, query, 4, seed=seed)
        joint_ids, joint_hits = await joint.chosen(found, np.append(query, 2.0), 4, seed=seed)
        assert joint_ids == ids
        np.testing.assert_allclose(joint_hits.scores, hits.scores + 2.0)
        excluded, _ = await choices.chosen(found, query, 4, seed=seed, exclude=ids[:2])
        assert not set(excluded) & set(ids[:2])
        assert excluded[:2] == ids[2:]
        filtered, _ = await choices.chosen(found, query, 4, seed=seed, arm_filter=even)
        same += filtered == by_comparison(store, found, query, noise(seed), evens, k=4)
    assert same >= 18


async def test_without_a_head_what_the_engine_finds_is_ranked_with_effects():
    rng = np.random.default_rng(2)
    store = Store(rng)
    index, found = await index_over(store), version(rng, 0.01)
    query = rng.normal(size=DIM)
    ids, _ = await Choices(index).chosen(found, query, 5)
    assert ids == by_comparison(store, found, query, noise(0), list(store.features), k=5)


async def test_a_head_is_read_once_a_version_and_arms_are_as_the_store_has_them():
    rng = np.random.default_rng(3)
    store = Store(rng)
    choices, first = Choices(await index_over(store)), version(rng, 1.0, arms=HEAD)
    await choices.read(first)
    assert sorted(arm for read in store.reads for arm in read) == sorted(first.names)
    second = version(rng, 10.0, number=2, arms=HEAD + 3)
    store.reads.clear()
    await choices.read(second)
    assert sorted(arm for read in store.reads for arm in read) == sorted(second.names)
    store.reads.clear()
    await choices.read(first)  # a decision of before is explained
    assert not store.reads
    # An arm that is gone is not shown, and one that changed has its own features and the effect of its id.
    query = rng.normal(size=DIM)
    (gone, changed), _ = await choices.chosen(second, query, 2)
    del store.features[gone]
    store.revisions[changed], store.features[changed] = 9_000, store.features[changed] + 1e-3
    arms = list(store.features)
    ids, _ = await choices.chosen(second, query, 1)
    assert ids == by_comparison(store, second, query, noise(0), arms, k=1)


def test_the_most_promising_arms_are_those_of_largest_effect_and_uncertainty():
    found = version(np.random.default_rng(6), 1.0, arms=50)
    effects, deviations = found.effects[0], found.deviations[0]
    wanted = np.argsort(-(effects + 2.5 * E * deviations))[:10]
    assert sorted(most_promising(found, ONE, E, 10)) == sorted(f"{found.names[place]}" for place in wanted)
    assert len(most_promising(found, ONE, E, 60)) == 50
