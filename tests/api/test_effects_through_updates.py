"""Effects of arms whose features change: by a nightly update, as another product, or deleted and put back.

In the shops 120 keys reward arms, of 40 (or 1,000) a tenth are good, which their features do not say. By
chance a new key sees a good arm first in a tenth of cases.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.catalogues.catalogues import MERGED_WITHIN_MS
from app.fold.replay import compare
from app.storage import redis_keys
from app.storage.arm_effects import MERGED
from bandit_with_effects import FEATURES, SIGNALS, begin, entries_of, make, play, revisions_of, stored_sums
from oracle import arm_sums, judged

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

KEYS, GROUPS, NOISE = 120, 5, 0.3
REFRESH = "/v1/bandits/b/prior/refresh"
PATH = "/v1/bandits/b/arm-effects"
FIELDS = [
    {"name": "group", "kind": "category", "values": [f"g{number}" for number in range(GROUPS)]},
    {"name": "sold", "kind": "number", "mean": 5, "scale": 2, "log": True},
]


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path) as api:
        yield api


class Shop:
    """``sold``: how often each arm was. An arm is good or it is not, whatever its features say."""

    def __init__(self, arms: int, seed: int = 3) -> None:
        self.rng = np.random.default_rng(seed)
        self.arms = [f"a{number}" for number in range(arms)]
        self.good = set(self.rng.choice(self.arms, arms // 10, replace=False).tolist())
        self.groups = self.rng.integers(GROUPS, size=arms)
        self.sold = self.rng.integers(1, 400, size=arms)
        self.likes = self.rng.normal(size=(KEYS, GROUPS)) * 0.5
        self.observed = 0

    def rows(self, arms: Iterable[int]) -> list[Json]:
        return [
            {
                "id": self.arms[number],
                "metadata": {"group": f"g{self.groups[number]}", "sold": int(self.sold[number])},
            }
            for number in arms
        ]

    async def put(self, api: Api, arms: Iterable[int] | None = None) -> None:
        numbers = list(range(len(self.arms)) if arms is None else arms)
        await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": self.rows(numbers)})

    async def begin(self, api: Api, **settings: Any) -> None:
        await api.ok("PUT", "/v1/catalogues/c", {"features": {"fields": FIELDS}}, 201)
        await self.put(api)
        body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", **settings}
        await api.ok("PUT", "/v1/bandits/b", body, 201)

    async def observe(self, api: Api, each: int) -> None:
        """Each key rewards so many arms at random."""
        rows = list[Json]()
        for key in range(KEYS):
            for arm in self.rng.choice(len(self.arms), each, replace=False).tolist():
                value = self.likes[key, self.groups[arm]] + 2.0 * (self.arms[arm] in self.good)
                value += NOISE * self.rng.normal()
                self.observed += 1
                row = {"id": f"{self.observed}", "key": f"u{key}", "arm": self.arms[arm], "value": value}
                rows.append(row)
        await api.observe("b", *rows)

    async def first_arms(self, api: Api, name: str, count: int = 100) -> float:
        """Of how many new keys the first arm is a good one."""
        choices = [await api.choose("b", key=f"{name}-{number}", seed=number) for number in range(count)]
        return float(np.mean([choice["arms"][0]["id"] in self.good for choice in choices]))


async def test_a_nightly_update_of_all_arms_leaves_their_effects(api: Api):
    """At .95 the world of 40 arms; where effects begin anew it is below .4."""
    shop = Shop(40)
    await shop.begin(api)
    await shop.observe(api, 4)
    await api.ok("POST", REFRESH, {})
    await shop.observe(api, 16)
    await api.ok("POST", REFRESH, {})
    assert await shop.first_arms(api, "before") >= 0.95
    before = {item["arm"]: item for item in (await api.ok("GET", PATH))["items"]}
    for night in range(3):
        shop.sold += 1
        await shop.put(api)
        assert await shop.first_arms(api, f"at-once-{night}") >= 0.95
        await api.ok("POST", REFRESH, {})
        assert await shop.first_arms(api, f"after-{night}") >= 0.95
    after = {item["arm"]: item for item in (await api.ok("GET", PATH))["items"]}
    assert after.keys() == before.keys()


async def test_a_fifth_of_a_thousand_arms_changes_each_night(api: Api):
    shop = Shop(1_000)
    await shop.begin(api)
    await shop.observe(api, 4)
    await api.ok("POST", REFRESH, {})
    for night in range(4):
        await shop.observe(api, 15)
        changed = shop.rng.choice(1_000, 200, replace=False)
        shop.sold[changed] += shop.rng.integers(1, 20, size=200)
        await shop.put(api, changed.tolist())
        await api.ok("POST", REFRESH, {})
        if night >= 1:
            assert await shop.first_arms(api, f"n{night}") >= 0.9


class Changing:
    """A bandit over arms whose features change, and all features that they had, by revision."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.features: dict[int, np.ndarray] = {}

    async def put(self, arms: Mapping[str, np.ndarray]) -> None:
        await self.api.put_arms("c", {arm: row.tolist() for arm, row in arms.items()})
        await self.note()

    async def note(self) -> None:
        for item in await self.api.listed("/v1/bandits/b/log/arms"):
            self.features[item["revision"]] = np.array(item["features"])

    async def delete(self, *arms: str) -> None:
        await self.api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": list(arms)})

    async def check(self, signals: int = 1) -> None:
        """The effects that are shown, of the newest versions of prior and effects, are those of the log."""
        (*_, prior) = (await self.api.ok("GET", "/v1/bandits/b/log/priors", params={"limit": 1_000}))["items"]
        dim = len(prior["mean"][0])
        precision = np.zeros((dim, dim))
        precision[np.tril_indices(dim)] = prior["precision"]
        covariance = np.linalg.inv(precision + np.tril(precision, -1).T)
        shown = await self.api.ok("GET", PATH, params={"limit": 1_000})
        entries = judged(await entries_of(self.api))
        now = await revisions_of(self.api)
        own = {
            (each.entry["arm"], each.entry["revision"])
            for each in entries
            if each.entry["expected"] is not None
        }
        sums = {
            (arm, revision): arm_sums(entries, {arm: revision}, signals=signals)[arm] for arm, revision in own
        }
        per_signal = shown.get("signals") or {"": shown}
        numbers = list(per_signal.values())
        found = dict[str, list[tuple[float, float, float]]]()
        for arm in {arm for arm, _ in own}:
            found[arm] = []
            for signal, each in enumerate(numbers):
                tau2, s2 = each["spread"] ** 2, each["noise"] ** 2
                n = R = 0.0
                revisions = sorted(revision for named, revision in own if named == arm)
                if now.get(arm, 0) > revisions[-1]:
                    revisions.append(now[arm])
                for place, revision in enumerate(revisions):
                    if place:
                        change = self.features[revision] - self.features[revisions[place - 1]]
                        v = (change @ np.array(prior["mean"][signal])) ** 2
                        v += prior["residuals"][signal][signal] * change @ covariance @ change
                        variance = min(s2 / (n + s2 / tau2) + v, tau2)
                        f = (s2 / variance - s2 / tau2) / n if n else 1.0
                        n, R = f * n, f * R
                    of_it = sums.get((arm, revision))
                    if of_it is not None:
                        n, R = n + of_it[0], R + of_it[2 + signal]
                found[arm].append((R / (n + s2 / tau2), np.sqrt(s2 / (n + s2 / tau2)), n))
        assert shown["arms"] == len(found)
        assert {item["arm"] for item in shown["items"]} == found.keys() & now.keys()
        for item in shown["items"]:
            parts = list(item["signals"].values()) if signals > 1 else [item]
            for part, (effect, deviation, _) in zip(parts, found[item["arm"]], strict=True):
                assert part["effect"] == pytest.approx(np.float32(effect), rel=2e-7, abs=1e-9)
                assert part["sd"] == pytest.approx(deviation, rel=1e-9)
            assert item["weight"] == pytest.approx(max(n for *_, n in found[item["arm"]]), rel=1e-9)


@pytest.mark.parametrize("signals", [None, SIGNALS])
async def test_effects_of_changed_arms_are_those_that_the_log_and_the_prior_say(
    api: Api, signals: dict[str, Any] | None
):
    count = len(signals or "1")
    more = {"signal": "click"} if signals else {}
    await api.catalogue("c", {arm: row.tolist() for arm, row in FEATURES.items()})
    await make(api, **({"signals": signals} if signals else {}))
    world = Changing(api)
    await world.note()
    await begin(api, signals=signals is not None)
    late = (await play(api, 4, k=6, **more))[-1]
    await api.ok("POST", REFRESH, {})
    await world.check(count)
    small, large = np.array([0.01, 0.0, -0.02]), np.array([2.0, -3.0, 1.0])
    version = (await api.ok("GET", PATH))["version"]
    before = {item["arm"]: item["effect"] for item in (await api.ok("GET", PATH))["items"]}
    await world.put(
        {arm: FEATURES[arm] + change for arm, change in zip(FEATURES, (small, large, small), strict=False)}
    )
    await world.put({"a2": FEATURES["a2"] - small})  # twice before the next fit
    await world.delete("a3", "a4", "a5")
    await world.put({"a3": FEATURES["a3"], "a4": FEATURES["a4"] + small})
    # at once, before the next fit, they are served with the effects of the arms
    dry = await api.ok("POST", "/v1/bandits/b/choose", {"key": "new", "k": 11, "dry_run": True})
    if dry["effects_version"] == version:
        effects = {arm["id"]: arm["effect"] for arm in dry["arms"]}
        assert effects == pytest.approx({arm: before.get(arm, 0.0) for arm in effects})
    await api.ok("POST", REFRESH, {})
    await world.check(count)
    shown = {item["arm"]: item for item in (await api.ok("GET", PATH))["items"]}
    assert shown["a1"]["weight"] < 0.5, "as good as another product"
    await play(api, 3, k=6, **more)
    await api.reward(
        *(
            {"decision": late["decision"], "arm": arm["id"], "value": 0.5, "reward_id": "late", **more}
            for arm in late["arms"]
        )
    )
    await world.put({"a0": FEATURES["a0"]})  # and back, with rewards of both
    await api.ok("POST", REFRESH, {})
    await world.check(count)
    assert not (await compare(api.app.service.store)).different


async def merge(api: Api, *gone: int) -> bool:
    """As if no token could name these revisions any more, and the hour were over; whether sums wait still."""
    service = api.app.service
    bandit = service.bandits.by_name("b")
    for revision in gone:
        await api.store.pexpire(redis_keys.retired(bandit.catalogue.uid, revision), MERGED_WITHIN_MS - 1)
    return (await service.effect_fits.fit(bandit, merges=True, only_if_moved=False)).waits


async def fields(api: Api) -> dict[tuple[str, int], int]:
    """In how many partitions an arm has sums of a revision."""
    service, found = api.app.service, dict[tuple[str, int], int]()
    for partition in range(service.store.partitions):
        async for some in service.store.effects.all_sums(partition, service.bandits.by_name("b").uid):
            for field in filter(all, some):  # sums of places and ages have no arm
                found[field] = found.get(field, 0) + 1
    return found


@pytest.mark.parametrize("settings", [{}, {"signals": SIGNALS}, {"half_life_s": 3_600}])
async def test_sums_that_no_token_names_are_merged_and_say_the_same(api: Api, settings: dict[str, Any]):
    more = {"signal": "click"} if "signals" in settings else {}
    await api.catalogue("c", {arm: row.tolist() for arm, row in FEATURES.items()})
    await make(api, **settings)
    await begin(api, signals=bool(more))
    await play(api, 4, k=6, **more)
    first = await revisions_of(api)
    steps = [np.array([0.1, 0.0, -0.2]), np.array([0.3, 0.1, 0.0]), np.array([-0.1, 0.2, 0.0])]
    for number in range(2):
        await api.put_arms("c", {arm: (row + steps[number]).tolist() for arm, row in FEATURES.items()})
        await play(api, 2, k=6, **more)
    await api.ok("POST", REFRESH, {})
    revisions = [*first.values()]
    assert await merge(api)
    before, held = (await api.ok("GET", PATH))["items"], await fields(api)
    assert all(revision != MERGED for _, revision in held)
    assert any(revision in revisions for _, revision in held)
    await merge(api, *revisions)
    again = await fields(api)
    assert not any(revision in revisions for _, revision in again)
    assert any(revision == MERGED for _, revision in again)
    fades = 1e-3 if "half_life_s" in settings else 1e-9  # some tenths of a second went by
    for _ in range(2):
        after = (await api.ok("GET", PATH))["items"]
        for one, other in zip(*(sorted(items, key=arm_of) for items in (before, after)), strict=True):
            assert one["arm"] == other["arm"]
            assert one["effect"] == pytest.approx(other["effect"], rel=1e-6 + fades, abs=1e-6)
            assert one["sd"] == pytest.approx(other["sd"], rel=fades)
            assert one["weight"] == pytest.approx(other["weight"], rel=fades)
        await merge(api, *revisions)  # nothing is left to merge
    # the next ones go into what was merged before, and of an arm that is gone everything goes
    await api.put_arms("c", {arm: (row + steps[2]).tolist() for arm, row in FEATURES.items()})
    await api.ok("DELETE", "/v1/catalogues/c/arms/a0", status=204)
    await play(api, 1, k=6, **more)
    await merge(api, *range(1, 40))
    left, now = await fields(api), await revisions_of(api)
    assert not any(arm == "a0" for arm, _ in left)
    assert all(revision in (MERGED, now[arm]) for arm, revision in left)
    assert not (await compare(api.app.service.store)).different
    assert not await merge(api)
    # what the worker has kept in memory does not bring merged sums back
    await play(api, 1, k=6, **more)
    assert all(revision in (MERGED, now[arm]) for arm, revision in await fields(api))


def arm_of(item: Json) -> str:
    return str(item["arm"])


async def test_after_a_move_sums_of_before_are_dropped_and_those_of_equal_revisions_count(api: Api):
    """Revisions are numbers of a catalogue: those of two have nothing in common."""
    await api.catalogue("c", {arm: row.tolist() for arm, row in FEATURES.items()})
    await api.catalogue("d", {arm: (2.0 * row).tolist() for arm, row in FEATURES.items()})
    await make(api)
    await begin(api)
    await play(api, 3, k=6)
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "d", "carry": "map"})
    before = await fields(api)
    await api.ok("POST", REFRESH, {})
    await merge(api)
    assert before
    assert not await fields(api)
    await play(api, 2, k=6)
    decisions = [each for each in judged(await entries_of(api)) if each.entry["space"]]
    own, wanted = await stored_sums(api), arm_sums(decisions, await revisions_of(api))
    assert own.keys() == wanted.keys() != set()
    for arm, numbers in wanted.items():
        np.testing.assert_allclose(own[arm], numbers, rtol=1e-9, atol=1e-9)
    assert not (await compare(api.app.service.store)).different
