"""Clocks that jump beyond the life of a token and back: nothing counts twice, who was deleted stays so."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from clock_shim import Clocks
from deployment import Town, town
from waiting import wait_until

pytestmark = [
    pytest.mark.rest,
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="a library put before the system's: Linux only"),
]

LIFE_S = 3_600
OBSERVATION_S = 7_200


@pytest.fixture
def town_with_clocks(tmp_path: Path, clocks: Clocks) -> Iterator[Town]:
    settings = {"SHORTLIST_TOKEN_TTL_S": str(LIFE_S), "SHORTLIST_OBSERVATION_TTL_S": str(OBSERVATION_S)}
    preload = clocks.store.settings
    with town(tmp_path, preload=preload, **settings, **clocks.services.settings) as town_with_clocks:
        yield town_with_clocks


async def build(http: httpx.AsyncClient) -> None:
    arms = [{"id": f"a{i}", "features": [1.0, float(i)]} for i in range(4)]
    (await http.put("/v1/catalogues/c", json={"dim": 2})).raise_for_status()
    (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
    (await http.put("/v1/bandits/b", json=body)).raise_for_status()


async def choose(http: httpx.AsyncClient) -> str:
    answer = await http.post("/v1/bandits/b/choose", json={"key": "ann"})
    answer.raise_for_status()
    return str(answer.json()["decision"])


async def reward(http: httpx.AsyncClient, token: str) -> str:
    """What became of it: accepted, duplicate, or the code of its rejection."""
    body = {"rewards": [{"decision": token, "value": 1}]}
    answer = await http.post("/v1/rewards?wait=applied", json=body)
    assert answer.status_code in {200, 202}, answer.text
    return outcome(answer.json())


def outcome(receipt: dict[str, Any]) -> str:
    if receipt["rejected"]:
        return str(receipt["rejected"][0]["code"])
    return "accepted" if receipt["accepted"] else "duplicate"


async def observations(http: httpx.AsyncClient) -> int:
    return int((await http.get("/v1/bandits/b/learners/ann")).json()["observations"])


async def dropped(town_with_clocks: Town, pattern: str) -> None:
    """The store has dropped every key of the pattern."""
    with redis.Redis(unix_socket_path=str(town_with_clocks.redis.socket)) as store:

        async def gone() -> bool:
            return not list(store.scan_iter(pattern))

        await wait_until(gone, what=f"{pattern} is dropped")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["store", "all"])
async def test_a_reward_counts_once_after_a_jump_beyond_the_life_of_its_token_and_back(
    town_with_clocks: Town, clocks: Clocks, which: str
):
    jump_to = clocks.store.jump_to if which == "store" else clocks.jump_to
    async with town_with_clocks.replicas[0].client() as http:
        await build(http)
        token, other = await choose(http), await choose(http)
        assert await reward(http, token) == "accepted"
        jump_to(2 * LIFE_S)
        await dropped(town_with_clocks, "shortlist3:{p:*}:seen*")
        jump_to(0)
        assert await reward(http, token) == "expired"
        assert await reward(http, other) == "expired", "what is lost: tokens that the clock had ended"
        assert await observations(http) == 1
        token = await choose(http)
        assert [await reward(http, token) for _ in range(2)] == ["accepted", "duplicate"], "at once"
        assert await observations(http) == 2
    town_with_clocks.check_replay()


@pytest.mark.parametrize(
    "offset_s", [LIFE_S // 2, *(pytest.param(s, marks=pytest.mark.slow) for s in (-2 * LIFE_S, 2 * LIFE_S))]
)
async def test_a_learner_deleted_during_a_jump_takes_nothing_from_before(
    town_with_clocks: Town, clocks: Clocks, offset_s: int
):
    """And learns from what is decided afterwards, at once."""
    async with town_with_clocks.replicas[0].client() as http:
        await build(http)
        token, other = await choose(http), await choose(http)
        assert await reward(http, token) == "accepted"
        clocks.jump_to(offset_s)
        (await http.delete("/v1/bandits/b/learners/ann")).raise_for_status()
        if offset_s > LIFE_S:
            clocks.jump_to(2 * offset_s)
            await dropped(town_with_clocks, "shortlist3:{p:*}:forgotten*")
        clocks.jump_to(0)
        # Once a worker has dropped who was forgotten, all that is as old is refused. What was counted
        # before is a duplicate then.
        assert await reward(http, other) in {"forgotten", "expired"}
        assert await reward(http, token) in {"forgotten", "expired", "duplicate"}
        assert await reward(http, await choose(http)) == "accepted"
        assert await observations(http) == 1
