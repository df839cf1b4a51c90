"""What every engine of arms does, whichever it is: collections, writes, searches and filters."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import numpy as np
import pytest

from app.engines.engine_contract import ArmEngine, CollectionGone, EngineArm
from app.filters.filter import parse

ARMS, DIM, LIMIT, EF = 200, 8, 32, 128
FEATURES = np.random.default_rng(1).standard_normal((ARMS, DIM)).astype(np.float32)
QUERIES = np.random.default_rng(2).standard_normal((20, DIM)).astype(np.float32)
FILTERS = (
    {"color": "red"},
    {"color": {"$ne": "red"}},
    {"price": {"$gte": 100}},
    {"$or": [{"price": {"$lt": 20}}, {"color": {"$in": ["blue"]}}]},
    {"$not": {"size": {"$exists": True}}},
    {"tags": "even"},
)


def engine_arm(number: int, revision: int = 1) -> EngineArm:
    """One of the arms: red, blue or without a colour, of the price of its number, half of them tagged."""
    metadata: dict[str, object] = {"price": number}
    if number % 3:
        metadata["color"] = "red" if number % 3 == 1 else "blue"
    if number % 5:
        metadata["size"] = "m"
    tags = ["even"] if number % 2 == 0 else []
    return EngineArm(f"a{number}", revision, FEATURES[number], (tags, metadata))


class ArmEngineContract:
    """Give it an async fixture ``engine``: an ``ArmEngine`` that was opened, and is closed by the fixture.

    ``recall``: of the best arms of random queries at least this share is found.
    """

    recall = 0.9

    @pytest.fixture
    async def name(self, engine: ArmEngine) -> AsyncIterator[str]:
        """A collection that has all the arms."""
        name = f"contract_{secrets.token_hex(8)}"
        await engine.create(name, DIM, m=16, ef_construction=100)
        await engine.write(name, [engine_arm(number) for number in range(ARMS)], [])
        await asyncio.sleep(engine.settled_s)
        yield name
        await engine.drop(name)

    async def share(self, engine: ArmEngine, name: str, eligible: np.ndarray) -> float:
        """The share of the queries whose best arm is found. No arm is found that is not eligible."""
        ids, hits = {f"a{number}" for number in eligible.tolist()}, 0
        for query in QUERIES:
            found = await engine.search(name, query, LIMIT, ef=EF)
            assert len(found) == len(set(found)) == min(LIMIT, len(ids))
            assert set(found) <= ids
            hits += f"a{eligible[np.argmax(FEATURES[eligible] @ query)]}" in found
        return hits / len(QUERIES)

    @pytest.mark.anyio
    async def test_a_collection_is_made_named_and_dropped(self, engine: ArmEngine) -> None:
        name = f"contract_{secrets.token_hex(8)}"
        engine.check()
        assert await engine.dim(name) is None
        await engine.create(name, DIM, m=16, ef_construction=100)
        assert await engine.dim(name) == DIM
        assert name in await engine.collections()
        assert await engine.search(name, QUERIES[0], LIMIT, ef=EF) == []
        await engine.drop(name)
        await engine.drop(name)
        assert name not in await engine.collections()
        with pytest.raises(CollectionGone):
            await engine.search(name, QUERIES[0], LIMIT, ef=EF)

    @pytest.mark.anyio
    async def test_the_best_arms_are_found_as_they_are_now(self, engine: ArmEngine, name: str) -> None:
        assert await self.share(engine, name, np.arange(ARMS)) >= self.recall
        again, gone = [engine_arm(number, 2) for number in range(50)], np.arange(50, 190)
        for _ in range(2):  # a call whose reply was lost is repeated
            await engine.write(name, again, [*(f"a{number}" for number in gone.tolist()), "unknown"])
        await engine.seal(name)
        await asyncio.sleep(engine.settled_s)
        assert await self.share(engine, name, np.setdiff1d(np.arange(ARMS), gone)) >= self.recall

    @pytest.mark.anyio
    @pytest.mark.parametrize("document", FILTERS, ids=str)
    async def test_no_arm_that_a_filter_matches_is_missing(
        self, engine: ArmEngine, name: str, document: dict[str, object]
    ) -> None:
        arm_filter = parse(document)
        arms = [engine_arm(number) for number in range(ARMS)]
        matching = {arm.id for arm in arms if arm_filter.matches(*arm.document)}
        assert 0 < len(matching) < ARMS
        found = await engine.search(name, QUERIES[0], 256, arm_filter=arm_filter, ef=256)
        assert matching <= set(found)
