"""Bandits are moved to a catalogue in Milvus, within it, and back to one in memory."""

from collections.abc import AsyncIterator

import numpy as np
import pytest

from milvus_engines import MilvusApi, running_on_milvus
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

D, ARMS = 4, 60
RNG = np.random.default_rng(4)
FIRST = RNG.normal(size=(ARMS, D)).astype(np.float32).astype(np.float64)
TURN = np.linalg.qr(RNG.normal(size=(D, D)))[0]


@pytest.fixture
async def api(store_url, tmp_path, milvus_uri) -> AsyncIterator[MilvusApi]:
    async with running_on_milvus(store_url, tmp_path, milvus_uri) as api:
        yield api


def by_id(features: np.ndarray) -> dict[str, list[float]]:
    return {f"a{place}": row.tolist() for place, row in enumerate(features)}


async def test_learners_move_to_milvus_and_on_from_its_sample_of_arms(api: MilvusApi):
    """Every time the map is exact, so what learners expect of arms stays. The last move goes back."""
    spaces = {"one": FIRST, "two": FIRST @ TURN, "three": FIRST @ TURN @ TURN}
    for name, features in spaces.items():
        await api.catalogue(name, by_id(features))
        await api.followed(name)
    await api.bandit("b", "one", scope="per_key", log={})
    told = [
        {"id": f"o{n}", "key": f"u{n % 3}", "arm": f"a{(7 * n) % ARMS}", "value": float(np.sin(n))}
        for n in range(30)
    ]
    await api.observe("b", *told)
    expected = {key: FIRST @ (await api.learner("b", key))["theta"] for key in ("u0", "u1", "u2")}
    for target in ("two", "three", "two"):
        answer = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": target, "carry": "map"})
        assert answer["arms"]["common"] == ARMS
        assert answer["map"]["r2"] == pytest.approx(1.0, abs=1e-4)
        assert answer["agreement"] == pytest.approx(1.0, abs=1e-3)
        for key, estimates in expected.items():
            theta = (await api.learner("b", key))["theta"]
            np.testing.assert_allclose(spaces[target] @ theta, estimates, atol=1e-3)
        choice = await api.choose("b", key="u0", k=2)
        assert (
            await api.reward({"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": 0.5})
        )["accepted"] == 1
        for key in expected:
            expected[key] = spaces[target] @ (await api.learner("b", key))["theta"]

        async def is_done() -> bool:
            return "move" not in await api.ok("GET", "/v1/bandits/b")

        await wait_until(is_done, what="all learners are carried")
