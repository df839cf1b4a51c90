"""Ages of arms: what is new is clicked more, learned from the rewards of everybody."""

# ruff: noqa: F401, F811 - fixtures are imported

import io
import time
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from api_client import Api, Json
from app.fold.arm_sums import ages_of
from app.fold.replay import compare
from app.records.age_sums import AgeSums
from app.records.records import bytes_to_state, unpack
from app.rewards.tokens import decision_of, raw_of
from app.storage.types import OF_REQUEST
from bandit_with_effects import (
    BANDIT,
    FEATURES,
    KEYS,
    PATH,
    REFRESH,
    api,
    check_rebuilt,
    entries_of,
    listed,
    make,
    revisions_of,
    stored_sums,
)
from oracle import arm_sums, judged, key_moments
from shortlist.linear.ages import BINS, FROM_S
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DAY_MS, DAY_BIN = 86_400_000, 7
PAIRS = 210
RNG = np.random.default_rng(104)
KINDS = ("new", "old")
ARMS = {f"{kind}{number}": RNG.normal(size=3) for number in range(PAIRS) for kind in KINDS} | FEATURES
NEW_ADDS = 0.4


def is_old(arm: str) -> bool:
    return not arm.startswith("new")


async def start(api: Api, **more: Any) -> None:
    """Keys that have liked arms, so that there is a prior. Half of the arms came a day ago."""
    await api.put_arms("c", {arm: own.tolist() for arm, own in ARMS.items()})
    await age(api, "c", dict.fromkeys(filter(is_old, ARMS), DAY_MS))
    await make(api, **{"position": None, **more})
    await begin(api)


async def begin(api: Api) -> None:
    rows = [
        {"id": f"{key}-{arm}", "key": f"u{key}", "arm": arm, "value": 0.5}
        for key in range(KEYS)
        for arm in list(FEATURES)[key : key + 5]
    ]
    await api.observe("b", *rows)
    assert (await api.ok("POST", REFRESH, {}))["version"]


async def age(api: Api, name: str, arms: dict[str, int]) -> None:
    """Let arms be older by so many ms."""
    catalogue = api.app.service.catalogues.served(name)
    stored = await api.app.service.store.arms.read(catalogue.uid, list(arms))
    times = {arm.id: arm.came_ms - arms[arm.id] for arm in stored if arm is not None}
    await api.app.service.store.arms.take_times(catalogue.uid, times)
    await api.app.service.catalogues.sync(catalogue)


async def play(api: Api, lists: range) -> None:
    """Lists of three new arms and three old ones, each shown once, and rewarded by its age."""
    rng = np.random.default_rng(lists.start)
    for number in lists:
        arms = [f"{kind}{3 * number + place}" for place in range(3) for kind in KINDS]
        choice = await api.choose("b", key=f"u{number % KEYS}", k=6, candidates=arms, seed=number)
        rewards = [
            {
                "decision": choice["decision"],
                "arm": arm["id"],
                "value": 0.5 + (not is_old(arm["id"])) * NEW_ADDS + 0.1 * rng.normal(),
            }
            for arm in choice["arms"]
        ]
        await api.reward(*rewards)


async def sums_of_ages(api: Api) -> np.ndarray:
    """What the store has of each bin, n and R, of all partitions."""
    service, found = api.app.service, np.zeros((2, BINS))
    of = ages_of(service.bandits.by_name("b").uid)
    for partition in range(service.store.partitions):
        (data,) = await service.store.effects.sums(partition, [of])
        if data is not None:
            own = unpack(data, AgeSums)
            found += np.array([own.n, np.subtract(own.R, own.R_error)])
    return found


async def wanted_sums(api: Api) -> np.ndarray:
    """The same, from the exported reward log."""
    found = np.zeros((2, BINS))
    for each in judged(await entries_of(api)):
        entry = each.entry
        if entry["age"] is not None:
            beyond = entry["expected"][0] + entry["effect"][0] - entry["age"]
            p, w = entry["examined"] or 1.0, entry["weight"] or 1.0
            own = w * p**2, w * p * (each.values[0] - p * beyond)
            found[:, DAY_BIN if is_old(entry["arm"]) else 0] += own
    return found


async def shown(api: Api) -> Json:
    await api.ok("POST", REFRESH, {})
    found: Json = await api.ok("GET", PATH, params={"limit": 100})
    return found


async def test_what_is_new_is_learned_to_be_better_and_chosen_by_that(api: Api):
    await start(api)
    assert (await api.ok("GET", PATH))["ages"] == []
    await play(api, range(40))
    found = await shown(api)
    assert [each["from_s"] for each in found["ages"]] == list(FROM_S[: DAY_BIN + 1])
    effects = [each["effect"] for each in found["ages"]]
    assert 0.02 < effects[0] < NEW_ADDS / 2.0
    assert effects == sorted(effects, reverse=True), "an age that nobody had is like those beside it"
    assert all(0.0 < each["sd"] < NEW_ADDS for each in found["ages"])
    # All that shows an arm says the same of its age.
    own = dict.fromkeys(ARMS, 0.0) | {item["arm"]: item["effect"] for item in await listed(api, PATH)}
    dry = (await api.choose("b", key="u1", k=6, seed=1, dry_run=True))["arms"]
    for arm in dry:
        assert arm["age"] == effects[DAY_BIN if is_old(arm["id"]) else 0]
        assert arm["effect"] == pytest.approx(own[arm["id"]] + arm["age"], abs=1e-6)
    choice = await api.choose("b", key="u1", k=3, seed=2)
    decision = decision_of(raw_of(choice["decision"]))
    assert len(decision.effects or b"") == 3 * (8 + 3)
    await api.app.service.rows.flush()
    row = (await api.ok("GET", f"{BANDIT}/log?order=desc&limit=1"))["items"][0]
    explained = await api.ok("POST", f"{BANDIT}/log/explain", {"decision": choice["decision"]})
    assert explained["repeated"]
    by_id = {candidate["id"]: candidate for candidate in explained["candidates"]}
    for place, arm in enumerate(row["arms"]):
        at_age = decision.age_at(place)
        assert at_age is not None
        age_bin = DAY_BIN if is_old(arm["id"]) else 0
        assert (at_age.bin, at_age.effect) == (age_bin, effects[age_bin])
        assert arm["age"] == at_age.effect == by_id[arm["id"]]["age"]
        assert arm["effect"] == pytest.approx(own[arm["id"]] + arm["age"], abs=1e-6)
        assert by_id[arm["id"]]["effect"] == pytest.approx(arm["effect"], abs=1e-6)
    data = (await api.call("GET", f"{BANDIT}/log/export?format=parquet")).content
    exported = pq.read_table(io.BytesIO(data)).to_pylist()[-1]
    assert [arm["age"] for arm in exported["arms"]] == [arm["age"] for arm in row["arms"]]
    # A new arm is served as one, before the next fit.
    await api.put_arms("c", {"fresh": FEATURES["a7"].tolist()})
    (arm,) = (await api.choose("b", key="u1", candidates=["fresh"], dry_run=True))["arms"]
    assert (arm["age"], arm["effect"]) == (effects[0], pytest.approx(effects[0]))


async def test_ages_keys_and_arms_learn_what_the_log_says(api: Api):
    await start(api, position="auto")
    await play(api, range(50))
    await shown(api)
    await play(api, range(50, 70))
    entries = await entries_of(api)
    ages = {entry["age"] for entry in entries if entry["kind"] == "reward"}
    assert len(ages) >= 3, "none, of new arms, of old ones"
    np.testing.assert_allclose(await sums_of_ages(api), await wanted_sums(api), rtol=1e-9, atol=1e-6)
    decisions = judged(entries)
    wanted, found = arm_sums(decisions, await revisions_of(api)), await stored_sums(api)
    assert found.keys() == wanted.keys()
    for arm, own in wanted.items():
        np.testing.assert_allclose(found[arm], own, rtol=1e-6, atol=1e-6, err_msg=arm)
    await check_rebuilt(api, found)
    for key in ("u0", "u3"):
        answer = await api.call(
            "GET", f"{BANDIT}/learners/{key}", headers={"accept": "application/octet-stream"}
        )
        moments = bytes_to_state(answer.content).sums.moments
        np.testing.assert_allclose(moments, key_moments(decisions, ARMS, key), rtol=1e-6, atol=1e-6)
    await api.ok("DELETE", f"{BANDIT}/learners/u2", status=204)
    np.testing.assert_allclose(await sums_of_ages(api), await wanted_sums(api), rtol=1e-9, atol=1e-6)
    assert not (await compare(api.app.service.store)).different


async def test_arms_that_came_at_once_are_served_as_without_ages(api: Api):
    await api.put_arms("c", {arm: own.tolist() for arm, own in ARMS.items()})
    await make(api, position=None)
    await begin(api)
    await play(api, range(40))
    found = await shown(api)
    assert [each["effect"] for each in found["ages"]] == [0.0]
    assert all("age" not in arm for arm in (await api.choose("b", key="u1", k=3, dry_run=True))["arms"])


async def test_an_arm_of_a_request_and_one_that_nobody_knows_the_time_of_have_no_age(api: Api):
    await start(api)
    await play(api, range(40))
    assert (await shown(api))["ages"][0]["effect"]
    await age(api, "c", {"new9": (await times(api, "c"))["new9"]})
    candidates = ["new9", "new8", {"id": "own", "features": FEATURES["a1"].tolist()}]
    choice = await api.choose("b", key="u1", k=3, candidates=candidates)
    decision = decision_of(raw_of(choice["decision"]))
    ages = {arm: decision.age_at(place) for place, arm in enumerate(decision.arms)}
    assert decision.revisions[decision.arms.index("own")] == OF_REQUEST
    assert (ages["new9"], ages["own"]) == (None, None)
    assert ages["new8"].bin == 0


async def test_signals_learn_nothing_of_ages(api: Api):
    await make(api, signals={"click": {"weight": 1.0}, "buy": {"weight": 2.0}})
    rows = [
        {"id": f"{key}-{arm}", "key": f"u{key}", "arm": arm, "values": {"click": 0.5}}
        for key in range(KEYS)
        for arm in list(FEATURES)[key : key + 5]
    ]
    await api.observe("b", *rows)
    await api.ok("POST", REFRESH, {})
    choice = await api.choose("b", key="u1", k=3)
    assert decision_of(raw_of(choice["decision"])).age_at(0) is None
    await api.reward(
        {"decision": choice["decision"], "arm": choice["arms"][0]["id"], "signal": "click", "value": 1.0}
    )
    assert (await shown(api))["ages"] == []


async def test_ages_stay_when_a_bandit_moves_and_so_do_the_times_of_arms(api: Api):
    await start(api)
    await play(api, range(40))
    before = (await shown(api))["ages"]
    assert before[0]["effect"]
    rng = np.random.default_rng(2)
    moved = {arm: (own @ (np.eye(3) + 0.1 * rng.normal(size=(3, 3)))).tolist() for arm, own in ARMS.items()}
    await api.catalogue("new", {**moved, "more": [0.1, 0.2, 0.3]})
    await api.ok("POST", f"{BANDIT}/move", {"catalogue": "new"})
    old, new = await times(api, "c"), await times(api, "new")
    assert {arm: new[arm] for arm in old} == old
    assert new["more"] > max(old.values())
    found = await api.ok("GET", PATH)  # of a fit since, or what is served until the next one: nothing
    assert found["version"] or (found["ages"], found["noise"]) == ([], None)
    assert (await shown(api))["ages"] == before
    await play(api, range(40, 44))
    await wait_until(lambda: are_served_by_age(api), what="the times of the arms are read")


async def are_served_by_age(api: Api) -> bool:
    choice = await api.choose("b", key="u1", k=2, candidates=["new1", "old1"])
    ages = map(decision_of(raw_of(choice["decision"])).age_at, range(2))
    return {age and age.bin for age in ages} == {0, DAY_BIN}


async def times(api: Api, name: str) -> dict[str, int]:
    """When each arm of a catalogue came."""
    uid = api.app.service.catalogues.served(name).uid
    return {arm.id: arm.came_ms async for page in api.app.service.store.arms.scan(uid) for arm in page}


LIVES_H, HALVES_H, ARTICLES, READERS, AT_ONCE, PLACES = 48.0, 12.0, 400, 120, 60, 3
HOURS = range(0, 128, 2)


async def share_of_news(api: Api, name: str, draw: int, *, halves: bool, ages: bool) -> float:
    """The part of what can be had beyond random lists, of articles that their reader has not seen.

    ``halves``: appeal halves with age. ``ages``: the service knows how old articles are, else all came now.
    """
    rng = np.random.default_rng((104, draw))
    came_h = rng.uniform(-LIVES_H, HOURS.stop, ARTICLES)
    features, appeal = rng.normal(size=(ARTICLES, 3)), 0.25 + 0.1 * rng.normal(size=ARTICLES)
    tastes, seen = 0.04 * rng.normal(size=(READERS, 3)), np.zeros((READERS, ARTICLES), dtype=bool)
    await api.catalogue(name, {f"n{article}": own.tolist() for article, own in enumerate(features)})
    await make(api, name, catalogue=name, position=None, intercept=True)
    served, earned = api.app.service.catalogues.served(name), np.zeros(2)
    for hour in HOURS:
        old_h, now_ms = hour - came_h, time.time_ns() // 1_000_000
        if ages:
            came = {
                f"n{one}": now_ms - int(DAY_MS / 24 * age_h) for one, age_h in enumerate(old_h) if age_h >= 0
            }
            await api.app.service.store.arms.take_times(served.uid, came)
            await api.app.service.catalogues.sync(served)
        await api.ok("POST", f"/v1/bandits/{name}/prior/refresh", {})
        worth = 0.15 + tastes @ features.T + appeal * 0.5 ** (halves * old_h / HALVES_H)
        readers, rewards = rng.choice(READERS, AT_ONCE, replace=False).tolist(), list[Json]()
        alive = (old_h >= 0) & (old_h < LIVES_H)
        left = {reader: np.flatnonzero(alive & ~seen[reader]) for reader in readers}
        asked = [
            {
                "key": f"r{reader}",
                "k": PLACES,
                "candidates": [f"n{one}" for one in own],
                "seed": 60 * hour + reader,
            }
            for reader, own in left.items()
        ]
        answer = await api.ok("POST", f"/v1/bandits/{name}/choose/batch", {"requests": asked})
        for reader, choice in zip(readers, answer["results"], strict=True):
            likes = worth[reader].clip(0.0, 1.0)
            shown = [int(arm["id"][1:]) for arm in choice["arms"]]
            best, random = np.sort(likes[left[reader]])[-PLACES:].sum(), PLACES * likes[left[reader]].mean()
            earned += likes[shown].sum() - random, best - random
            seen[reader, shown] = True
            rewards += [
                {"decision": choice["decision"], "arm": f"n{one}", "value": float(rng.random() < likes[one])}
                for one in shown
            ]
        await api.reward(*rewards)
    return float(earned[0] / earned[1])


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_news_that_fade_are_chosen_by_their_age_and_what_does_not_fade_as_without(api: Api):
    """In five draws the ratio was 1.35, deviation .09: the mean of two is below 1.08 once in 50,000 runs."""
    ratios = []
    for draw in range(2):
        shares = [await share_of_news(api, f"{n}{draw}", draw, halves=True, ages=n > 0) for n in range(2)]
        ratios.append(shares[1] / shares[0])
    assert sum(ratios) / len(ratios) > 1.08
    await share_of_news(api, "same", 0, halves=False, ages=True)
    effects = [each["effect"] for each in (await api.ok("GET", "/v1/bandits/same/arm-effects"))["ages"]]
    assert len(effects) > DAY_BIN
    # A list earns .2 beyond a random one: less than a hundredth can be lost by what is added.
    assert PLACES * (max(effects) - min(effects)) < 0.002
