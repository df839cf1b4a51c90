"""Arm effects through SIGKILL, of two services over one store: late, sent twice, revised, each counts once.

So they do while the bandit moves, by a service that is killed meanwhile. In the end the sums of arms and the
learners of keys are recomputed from the exported reward log.
"""

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from traffic import LOST

from app.fold.replay import compare
from app.records.arm_sums import ArmSums
from app.records.records import bytes_to_state, unpack
from app.storage.store import Store
from oracle import arm_sums, judged, key_moments
from service_process import serving
from store_server import store_server
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

RNG = np.random.default_rng(3)
FEATURES = {f"a{place}": row for place, row in enumerate(RNG.normal(size=(20, 3)).round(3))}
# Linear in the features of c, so that a move loses nothing.
TURN = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 1.0], [-1.0, 0.0, 1.0]])
CATALOGUES = {"c": FEATURES, "d": {arm: TURN @ row for arm, row in FEATURES.items()}}
EFFECTS = {arm: float(effect) for arm, effect in zip(FEATURES, RNG.normal(size=20), strict=True)}
KEYS = [f"u{place}" for place in range(12)]
BANDIT = {
    "catalogue": "c", "policy": "sub_ts", "scope": "per_key", "intercept": False, "arm_effects": "auto",
    "reward": {"aggregate": "last"}, "position": {"examination": [1.0, 0.5]},
}  # fmt: skip
NOW = 1_700_000_000_000
PARTITIONS = 2


async def build(http: httpx.AsyncClient) -> None:
    for name, features in CATALOGUES.items():
        arms = [{"id": arm, "features": row.tolist()} for arm, row in features.items()]
        (await http.put(f"/v1/catalogues/{name}", json={"dim": 3})).raise_for_status()
        (await http.put(f"/v1/catalogues/{name}/arms", json={"arms": arms})).raise_for_status()
    (await http.put("/v1/bandits/b", json=BANDIT)).raise_for_status()
    rows = [
        {"id": f"{key}-{arm}", "key": key, "arm": arm, "value": EFFECTS[arm]}
        for place, key in enumerate(KEYS)
        for arm in (f"a{place}", f"a{place + 5}")
    ]
    answer = await http.post("/v1/bandits/b/observations?wait=applied", json={"observations": rows})
    answer.raise_for_status()
    (await http.post("/v1/bandits/b/prior/refresh", json={})).raise_for_status()


async def return_some_arms(http: httpx.AsyncClient, catalogue: str) -> None:
    """Delete arms, and put them back as they were: their features have other revisions then."""
    gone, path = list(FEATURES)[:18], f"/v1/catalogues/{catalogue}/arms"
    (await http.post(f"{path}/delete", json={"ids": gone})).raise_for_status()
    arms = [{"id": arm, "features": CATALOGUES[catalogue][arm].tolist()} for arm in gone]
    (await http.put(path, json={"arms": arms})).raise_for_status()


async def moved(http: httpx.AsyncClient, catalogue: str) -> bool:
    """Whether the bandit has the catalogue, and all learners are carried."""
    try:
        await http.post("/v1/bandits/b/move", json={"catalogue": catalogue})
        bandit = (await http.get("/v1/bandits/b")).json()
        return bandit["catalogue"] == catalogue and "move" not in bandit
    except LOST:
        return False


async def client(http: httpx.AsyncClient, seed: int, steps: int, late: list[dict[str, Any]]) -> None:
    """Choose lists, and reward them: at once, twice, revised or later, until its service is killed."""
    rng = random.Random(seed)
    try:
        for _ in range(steps):
            answer = await http.post("/v1/bandits/b/choose", json={"key": rng.choice(KEYS), "k": 2})
            if answer.status_code != 200:
                continue
            choice, rewards = answer.json(), list[dict[str, Any]]()
            for arm in choice["arms"]:
                for _ in range(rng.randint(0, 3)):
                    rewards.append({
                        "decision": choice["decision"], "arm": arm["id"], "at": NOW + rng.randrange(5),
                        "value": EFFECTS[arm["id"]] + rng.gauss(0.0, 0.3),
                    })  # fmt: skip
            kept = [each for each in rewards if rng.random() < 0.3]
            late += kept
            for reward in rewards + rewards[:1]:
                if reward not in kept:
                    await http.post("/v1/rewards", json={"rewards": [reward]})
    except LOST:
        return


async def has_come(late: list[dict[str, Any]], count: int, running: list[asyncio.Task[Any]]) -> bool:
    """Whether that many rewards were kept for later: a clock of the traffic."""
    return len(late) >= count or all(task.done() for task in running)


async def kill_services(folder: Path, catalogues: list[str]) -> None:
    """Each time the bandit moves to the catalogue, unless it has it, by a service that is killed then."""
    late, now = list[dict[str, Any]](), "c"
    with store_server(folder / "store") as url:
        shared = {"SHORTLIST_REDIS_URL": url, "SHORTLIST_PARTITIONS": str(PARTITIONS)}
        with serving(folder / "last", **shared) as last:
            async with last.client() as http:
                await build(http)
                for number, catalogue in enumerate(catalogues):
                    with serving(folder / f"s{number}", **shared) as other:
                        async with other.client() as theirs:
                            running = [
                                asyncio.create_task(client(each, 10 * number + place, 25, late))
                                for place, each in enumerate((http, theirs, theirs))
                            ]
                            if catalogue == now:
                                await running[0]
                                await return_some_arms(http, catalogue)
                                # the others may be done by now: somebody has to meet the other revisions
                                running.append(asyncio.create_task(client(http, 10 * number + 9, 25, late)))
                            else:
                                running.append(asyncio.create_task(moved(theirs, catalogue)))
                                come = partial(has_come, late, len(late) + number % 10, running)
                                await wait_until(come, what="rewards come while it moves")
                            other.kill()
                            await asyncio.gather(*running)
                    await wait_until(partial(moved, http, catalogue), what="the move is done")
                    now = catalogue
                for reward in late:
                    (await http.post("/v1/rewards", json={"rewards": [reward]})).raise_for_status()
                gone = KEYS[3]
                (await http.delete(f"/v1/bandits/b/learners/{gone}")).raise_for_status()

                async def applied() -> bool:
                    return bool((await http.get("/readyz")).json().get("backlog") == 0)

                await wait_until(applied, what="the backlog is applied")
                await compared(http, url, now)


async def test_arms_and_keys_learn_what_the_log_says(tmp_path: Path):
    await kill_services(tmp_path, ["d", "d", "d"])


@pytest.mark.slow
async def test_they_do_through_twenty_kills_of_whoever_moves_the_bandit(tmp_path: Path):
    await kill_services(tmp_path, [*["d", "c"] * 9, "d", "d"])


async def compared(http: httpx.AsyncClient, url: str, catalogue: str) -> None:
    """What is stored is what the exported log says, to 1e-9; a replay of it agrees."""
    entries = list[dict[str, Any]]()
    for partition in range(PARTITIONS):
        query: dict[str, Any] = {"partition": partition, "limit": 1_000}
        while True:
            page = (await http.get("/v1/bandits/b/log/rewards", params=query)).json()
            entries += page["items"]
            if page["next"] is None:
                break
            query["cursor"] = page["next"]
    decisions, space = judged(entries), max(entry["space"] for entry in entries)
    of_now = [each for each in decisions if each.entry["space"] == space]
    taught = {(each.entry["arm"], each.entry["revision"]) for each in of_now if each.entry["expected"]}
    wanted = {(arm, revision): arm_sums(of_now, {arm: revision})[arm] for arm, revision in sorted(taught)}
    assert len(wanted) > len({arm for arm, _ in wanted}), "some arms were rewarded with two revisions"
    assert sum(own[0] for own in wanted.values()) > 20.0
    store = Store(url, partitions=PARTITIONS)
    await store.open()
    try:
        found = dict[tuple[str, int], np.ndarray]()
        (data,) = (await store.registry.read()).bandits.values()
        for partition in range(PARTITIONS):
            async for some in store.effects.all_sums(partition, data[:16].decode()):
                for arm, sums in some.items():
                    if not arm[0]:  # of places or ages
                        continue
                    own = unpack(sums, ArmSums)
                    if own.space != space:  # of an earlier catalogue
                        continue
                    found[arm] = found.get(arm, 0.0) + np.array([own.n, own.F, *own.R, *own.Q])
        assert found.keys() == wanted.keys()
        for arm, own in wanted.items():
            np.testing.assert_allclose(found[arm], own, rtol=1e-9, atol=1e-9)
        replayed = await compare(store)
        assert not replayed.different
    finally:
        await store.close()
    for key in KEYS:
        answer = await http.get(
            f"/v1/bandits/b/learners/{key}", headers={"accept": "application/octet-stream"}
        )
        if answer.status_code == 404:
            continue
        moments = bytes_to_state(answer.content).sums.moments
        wanted_moments = key_moments(decisions, CATALOGUES[catalogue], key)
        np.testing.assert_allclose(moments, wanted_moments, rtol=1e-6, atol=1e-6)
