"""A bandit with arm effects: its arms and keys, rewards for it, and whether its sums are those of its log."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.fold.replay import compare
from app.records.arm_sums import ArmSums
from app.records.records import bytes_to_state, unpack
from app.storage.arm_effects import AGES, PLACES
from oracle import arm_sums, judged, key_moments
from shortlist_lake import tables
from shortlist_lake.files import Lake
from shortlist_lake.rebuilt_arms import rebuilt_arms
from shortlist_lake.writing import LakeWriter

ARMS, D, KEYS = 12, 3, 6
RNG = np.random.default_rng(11)
FEATURES = {f"a{place}": row for place, row in enumerate(RNG.normal(size=(ARMS, D)))}
EFFECTS = {f"a{place}": float(effect) for place, effect in enumerate(RNG.normal(size=ARMS))}
BANDIT = "/v1/bandits/b"
PATH = "/v1/bandits/b/arm-effects"
REFRESH = "/v1/bandits/b/prior/refresh"
SIGNALS = {"click": {"weight": 1.0}, "buy": {"weight": 2.0, "default": 0.5, "aggregate": "sum"}}


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """An application with a catalogue that has arms, and no bandit."""
    async with running(store_url, tmp_path) as api:
        await api.catalogue("c", {arm: row.tolist() for arm, row in FEATURES.items()})
        yield api


async def make(api: Api, name: str = "b", **fields: Any) -> Json:
    """A bandit without an intercept, so that what it knows is computed from the features alone."""
    body = {
        "catalogue": "c", "policy": "sub_ts", "scope": "per_key", "intercept": False, "log": {},
        "arm_effects": "auto", **fields,
    }  # fmt: skip
    return await api.ok("PUT", f"/v1/bandits/{name}", body, 201)


async def begin(api: Api, signals: bool = False) -> None:
    """Keys with rewards enough for a prior."""
    rows = []
    for key in range(KEYS):
        for arm in (f"a{key}", f"a{key + 3}"):
            value = {"values": {"click": EFFECTS[arm]}} if signals else {"value": EFFECTS[arm]}
            rows.append({"id": f"{key}-{arm}", "key": f"u{key}", "arm": arm, **value})
    await api.observe("b", *rows)
    assert (await api.ok("POST", REFRESH, {}))["version"]


async def play(api: Api, rounds: int, *, k: int = 2, **more: Any) -> list[Json]:
    """Choices of all keys, each rewarded: the effect of the arm, and noise. ``more``: of each reward."""
    rng, choices = np.random.default_rng(rounds), list[Json]()
    for number in range(rounds):
        for key in range(KEYS):
            choice = await api.choose("b", key=f"u{key}", k=k, seed=1_000 * number + key)
            values = {arm["id"]: EFFECTS[arm["id"]] + 0.3 * rng.normal() for arm in choice["arms"]}
            await api.reward(
                *({"decision": choice["decision"], "arm": arm, "value": value, **more}
                  for arm, value in values.items())
            )  # fmt: skip
            choices.append(choice)
    return choices


async def entries_of(api: Api) -> list[Json]:
    """The exported reward log of all partitions."""
    found = list[Json]()
    for partition in range(api.app.service.store.partitions):
        found += await listed(api, "/v1/bandits/b/log/rewards", partition=partition, limit=1_000)
    return found


async def listed(api: Api, path: str, **params: Any) -> list[Json]:
    """Everything on the pages of a list."""
    page = await api.ok("GET", path, params=params)
    found = page["items"]
    while page["next"] is not None:
        page = await api.ok("GET", path, params={**params, "cursor": page["next"]})
        found += page["items"]
    return found


async def stored_sums(api: Api, half_life_s: float = 0.0) -> dict[str, np.ndarray]:
    """n, F, R and Q of each arm with the features of now, of all partitions; faded to the newest decision."""
    service, parts, revisions = api.app.service, dict[str, list[ArmSums]](), await revisions_of(api)
    bandit = service.bandits.by_name("b")
    for partition in range(service.store.partitions):
        async for some in service.store.effects.all_sums(partition, bandit.uid):
            for (arm, revision), data in some.items():
                if revision in {AGES, PLACES}:
                    continue
                own = unpack(data, ArmSums)
                if (own.space, own.revision) == (bandit.record.space, revisions[arm]):
                    parts.setdefault(arm, []).append(own)
    sums = dict[str, np.ndarray]()
    for arm, owns in parts.items():
        newest = max(own.time_ms for own in owns)
        for own in owns:
            w = 0.5 ** ((newest - own.time_ms) / 1_000.0 / half_life_s) if half_life_s else 1.0
            numbers = [
                w * own.n,
                w**2 * own.F,
                *(w * each for each in own.R),
                *(w**2 * each for each in own.Q),
            ]
            sums[arm] = sums.get(arm, 0.0) + np.array(numbers)
    return sums


async def revisions_of(api: Api) -> dict[str, int]:
    return {item["id"]: item["revision"] for item in await api.listed("/v1/bandits/b/log/arms")}


async def check(api: Api, *, signals: int = 1) -> dict[str, np.ndarray]:
    """Arms and keys have learned what the log says, and a replay of it agrees; the sums of the arms."""
    decisions = judged(await entries_of(api))
    wanted, found = arm_sums(decisions, await revisions_of(api), signals=signals), await stored_sums(api)
    assert found.keys() == wanted.keys()
    for arm, own in wanted.items():
        np.testing.assert_allclose(found[arm], own, rtol=1e-9, atol=1e-9, err_msg=arm)
    for key in range(KEYS):
        answer = await api.call(
            "GET", f"/v1/bandits/b/learners/u{key}", headers={"accept": "application/octet-stream"}
        )
        moments = bytes_to_state(answer.content).sums.with_signals(signals).moments
        own = key_moments(decisions, FEATURES, f"u{key}", signals=signals)
        np.testing.assert_allclose(moments, own, rtol=1e-9, atol=1e-9)
    replayed = await compare(api.app.service.store)
    assert not replayed.different
    await check_rebuilt(api, found)
    return found


async def check_rebuilt(api: Api, sums: dict[str, np.ndarray]) -> None:
    """A lake of the exported reward log has the same sums."""
    terms = await api.ok("GET", "/v1/bandits/b/log/terms")
    with tempfile.TemporaryDirectory() as folder:
        lake = LakeWriter.open(folder, "b", terms)
        for partition in range(api.app.service.store.partitions):
            path = "/v1/bandits/b/log/rewards"
            items = await listed(api, path, partition=partition, limit=1_000)
            rows = [(partition, SimpleNamespace(**item)) for item in items]
            lake.commit({("rewards", day): table for day, table in tables.rewards(rows).items()}, {})
        lake.close()
        found = rebuilt_arms(Lake(folder))
    revisions = await revisions_of(api)
    assert sums.keys() <= found.keys()
    for arm, own in sums.items():
        made = found[arm]
        assert made.revision == revisions[arm]
        np.testing.assert_allclose([made.n, made.F, *made.R, *made.Q], own, rtol=1e-9, atol=1e-9, err_msg=arm)


async def findings(api: Api) -> list[str]:
    await api.app.service.effect_fits.look_at_keys([api.app.service.bandits.by_name("b").uid])
    status = await api.ok("GET", "/v1/status")
    return [each["text"] for each in status["findings"] if each["name"] == "one_key_teaches"]


async def all_sums(api: Api) -> dict[str, np.ndarray]:
    """How many rewards each arm has, of all partitions, also of arms that are deleted."""
    found = dict[str, np.ndarray]()
    service = api.app.service
    for partition in range(service.store.partitions):
        async for some in service.store.effects.all_sums(partition, service.bandits.by_name("b").uid):
            for (arm, _), data in some.items():
                if arm:  # else of places or ages
                    found[arm] = found.get(arm, np.zeros(1)) + unpack(data, ArmSums).n
    return found
