"""Arm effects through changes of bandits, catalogues and keys."""

# ruff: noqa: F401, F811 - fixtures are imported

import time
from pathlib import Path

import numpy as np
import pytest

from api_client import Api, Json, running
from app.fold.replay import compare
from app.records.arm_sums import numbers_of, taken_off
from app.rewards.tokens import decision_of, raw_of, text_of
from app.storage.embedded.server import EmbeddedServer
from bandit_with_effects import (
    ARMS,
    EFFECTS,
    FEATURES,
    KEYS,
    PATH,
    REFRESH,
    SIGNALS,
    all_sums,
    api,
    begin,
    check,
    check_rebuilt,
    entries_of,
    findings,
    make,
    play,
    revisions_of,
    stored_sums,
)
from oracle import arm_sums, judged

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_each_signal_has_effects_of_its_own(api: Api):
    await make(api, signals=SIGNALS)
    await begin(api, signals=True)
    await play(api, 6, signal="click")
    await api.ok("POST", REFRESH, {})
    for choice in await play(api, 4, signal="click"):
        for name in ("one", "two"):
            buy = {"signal": "buy", "value": 0.25, "reward_id": name}
            await api.reward({"decision": choice["decision"], "arm": choice["arms"][0]["id"], **buy})
    await api.ok("POST", REFRESH, {})
    await check(api, signals=2)
    found = await api.ok("GET", PATH)
    assert found["signals"]["click"]["spread"] > 0.3
    for item in found["items"]:
        own = item["signals"]
        assert item["effect"] == pytest.approx(own["click"]["effect"] + 2.0 * own["buy"]["effect"])
        assert item["sd"] ** 2 == pytest.approx(own["click"]["sd"] ** 2 + 4.0 * own["buy"]["sd"] ** 2)
    await api.refused("POST", "/v1/bandits/b/choose", {"key": "u0", "k": 1_001}, loc=["body", "k"])


async def test_half_lives_fade_the_sums_of_arms(api: Api):
    await make(api, half_life_s=3_600)
    await begin(api)
    await play(api, 4)
    rows = [
        {"id": f"old-{key}", "key": f"u{key}", "arm": "a1", "value": 5.0, "at": 1_700_000_000_000}
        for key in range(KEYS)
    ]
    await api.observe("b", *rows)  # long faded
    found, decisions = await stored_sums(api, 3_600.0), judged(await entries_of(api))
    wanted = arm_sums(decisions, await revisions_of(api), half_life_s=3_600.0)
    for arm, own in wanted.items():
        np.testing.assert_allclose(found[arm], own, rtol=1e-9, atol=1e-9)
    await check_rebuilt(api, found)
    await api.ok("POST", REFRESH, {})
    version = await api.app.service.effects.newest(api.app.service.bandits.by_name("b").uid)
    weights = dict[str, float]()
    for each in decisions:
        if each.entry["expected"] is not None:
            age_s = (version.record.since_ms - each.entry["decided"]) / 1_000
            arm = each.entry["arm"]
            weights[arm] = weights.get(arm, 0.0) + 0.5 ** (max(age_s, 0.0) / 3_600)
    for item in (await api.ok("GET", PATH, params={"limit": 100}))["items"]:
        assert item["weight"] == pytest.approx(weights[item["arm"]], rel=1e-6)
    assert not (await compare(api.app.service.store)).different


async def test_an_arm_that_nobody_rewards_any_more_is_as_uncertain_as_a_new_one(api: Api):
    """Of half-lives ago: it may be another one by now, and is tried again."""
    await make(api, half_life_s=86_400)
    await begin(api)
    now_ms = time.time_ns() // 1_000_000
    rows = [
        {
            "id": f"{arm}-{key}-{number}",
            "key": f"u{key}",
            "arm": arm,
            "value": -5.0 if arm == "a0" else EFFECTS[arm] + 0.1 * number,
            "at": now_ms - (30 * 86_400_000 if arm == "a0" else 0),
        }
        for arm in FEATURES
        for key in range(KEYS)
        for number in range(2)
    ]
    await api.observe("b", *rows)
    await api.ok("POST", REFRESH, {})
    found = await api.ok("GET", PATH, params={"limit": 100})
    shown = {item["arm"]: item for item in found["items"]}
    assert abs(shown["a0"]["effect"]) < 1e-3
    assert shown["a0"]["sd"] == pytest.approx(found["spread"], rel=1e-3)
    assert all(item["sd"] < 0.5 * found["spread"] for arm, item in shown.items() if arm != "a0")


async def test_a_forgotten_key_is_taken_out_of_its_arms(api: Api):
    await make(api)
    await begin(api)
    await play(api, 4)
    await api.ok("DELETE", "/v1/bandits/b/learners/u2", status=204)
    decisions = [each for each in judged(await entries_of(api)) if each.entry["key"] != "u2"]
    wanted, found = arm_sums(decisions, await revisions_of(api)), await stored_sums(api)
    assert found.keys() == wanted.keys()
    for arm, own in wanted.items():
        np.testing.assert_allclose(found[arm], own, atol=1e-9)
    await check_rebuilt(api, found)
    assert not (await compare(api.app.service.store)).different


async def test_sums_are_of_each_revision_of_an_arm(api: Api):
    await make(api)
    await begin(api)
    before = (await play(api, 3))[-1]
    arm = before["arms"][0]["id"]
    await api.put_arms("c", {arm: [9.0, 0.0, 0.0]})
    choice = await api.choose("b", key="u0", k=ARMS)
    shown = next(each for each in choice["arms"] if each["id"] == arm)
    await api.reward({"decision": choice["decision"], "arm": shown["id"], "value": 1.0})
    # late, of the features of then: it teaches the arm as it was then
    await api.reward({"decision": before["decision"], "arm": before["arms"][1]["id"], "value": 1.0})
    assert (await stored_sums(api))[arm][0] == 1.0
    decisions = judged(await entries_of(api))
    wanted, found = arm_sums(decisions, await revisions_of(api)), await stored_sums(api)
    np.testing.assert_allclose(found[arm], wanted[arm], atol=1e-9)
    await check_rebuilt(api, found)
    assert not (await compare(api.app.service.store)).different


async def test_a_move_begins_anew(api: Api):
    await make(api)
    await begin(api)
    old = (await play(api, 4))[-1]
    late = await api.choose("b", key="u1", k=2)
    await api.catalogue("d", {arm: (2.0 * row).tolist() for arm, row in FEATURES.items()})
    await api.ok("POST", REFRESH, {})
    assert (await api.ok("GET", PATH))["items"]
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "d", "carry": "map"})
    assert (await api.ok("GET", PATH))["items"] == []
    await api.reward({"decision": late["decision"], "arm": late["arms"][0]["id"], "value": 1.0})
    assert old["arms"]
    await api.ok("POST", REFRESH, {})
    choice = await api.choose("b", key="u0", k=1)
    await api.reward({"decision": choice["decision"], "value": 1.0})
    sums = await stored_sums(api)
    assert {arm: own[0] for arm, own in sums.items()} == {choice["arms"][0]["id"]: 1.0}
    await check_rebuilt(api, sums)
    assert not (await compare(api.app.service.store)).different


async def test_a_choice_is_explained_by_the_effects_of_then(api: Api):
    await make(api)
    await begin(api)
    await play(api, 8)
    await api.ok("POST", REFRESH, {})
    choice = await api.choose("b", key="u0", k=2)
    await api.app.service.rows.flush()
    row = (await api.ok("GET", "/v1/bandits/b/log?order=desc&limit=1"))["items"][0]
    assert row["effects_version"] == choice["effects_version"] > 0
    for key in range(1, KEYS):  # of other keys: a new version, and the learner stays as it was
        for number in range(6):
            other = await api.choose("b", key=f"u{key}", k=2, seed=number)
            await api.reward(
                *({"decision": other["decision"], "arm": arm["id"], "value": 5.0} for arm in other["arms"])
            )
    await api.ok("POST", REFRESH, {})
    assert (await api.ok("GET", PATH))["version"] > choice["effects_version"]
    found = await api.ok("POST", "/v1/bandits/b/log/explain", {"decision": choice["decision"]})
    assert found["changed"] == []
    assert found["repeated"]
    shown = {arm["id"]: arm["effect"] for arm in row["arms"]}
    effects = {each["id"]: each["effect"] for each in found["candidates"]}
    assert {arm: effects[arm] for arm in shown} == pytest.approx(shown)


@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts", "softmax", "linucb", "epsilon_greedy", "igw"])
async def test_every_policy_that_takes_effects_prefers_the_arms_that_have_them(api: Api, policy: str):
    options = {
        "softmax": {"temperature": 0.05},
        "epsilon_greedy": {"epsilon": 0.0},
        "igw": {"gamma": 1e9},
    }.get(policy, {})
    await make(api, policy=policy, exploration=0.001, **options)
    await begin(api)
    await play(api, 6, k=ARMS)
    await api.ok("POST", REFRESH, {})
    asked = {"key": "new", "k": ARMS, "seed": 1}
    dry = await api.ok("POST", "/v1/bandits/b/choose", {**asked, "dry_run": True})
    estimates = [arm["estimate"] for arm in dry["arms"]]
    order = [arm["id"] for arm in dry["arms"]]
    assert np.corrcoef([EFFECTS[arm] for arm in order], estimates)[0, 1] > 0.9
    assert np.corrcoef(estimates, range(ARMS))[0, 1] < -0.7  # the best come first
    again = await api.choose("b", **asked)
    assert [arm["id"] for arm in again["arms"]] == order
    if policy == "softmax":
        left = np.exp(np.array(estimates) / 0.05 - max(estimates) / 0.05)
        for place, arm in enumerate(dry["arms"]):
            assert arm["propensity"] == pytest.approx(left[place] / left[place:].sum(), rel=1e-6)


async def test_they_are_switched_on_and_off(api: Api):
    await make(api, arm_effects="off")
    await begin(api)
    await api.refused("GET", PATH, status=404, code="not_found")
    assert decision_of(raw_of((await play(api, 1))[-1]["decision"])).effects is None
    assert not await stored_sums(api)
    await api.ok("PATCH", "/v1/bandits/b", {"arm_effects": "auto"})
    await play(api, 3)
    await api.ok("POST", REFRESH, {})
    weights = [item["weight"] for item in (await api.ok("GET", PATH))["items"]]
    assert weights
    await api.ok("PATCH", "/v1/bandits/b", {"arm_effects": "off"})
    await play(api, 1)
    await api.ok("PATCH", "/v1/bandits/b", {"arm_effects": "auto"})
    assert [item["weight"] for item in (await api.ok("GET", PATH))["items"]] == weights
    await check(api)
    # a patch that takes the prior away switches them off
    assert (await api.ok("PATCH", "/v1/bandits/b", {"prior": "plain"}))["arm_effects"] == "off"
    await api.refused("PATCH", "/v1/bandits/b", {"arm_effects": "auto"}, loc=["body", "arm_effects"])
    await api.ok("PATCH", "/v1/bandits/b", {"arm_effects": "auto", "prior": "learned"})
    assert (await api.ok("PATCH", "/v1/bandits/b", {"policy": "igw"}))["arm_effects"] == "auto"
    assert (await api.ok("PATCH", "/v1/bandits/b", {"policy": "sub_elim"}))["arm_effects"] == "off"


async def test_without_effects_in_the_data_choices_are_as_without(api: Api):
    """The same arms and scores, to the bit. Of learners: ``test_arm_sums``."""
    await make(api, arm_effects="off")
    rng, rows = np.random.default_rng(0), list[Json]()
    for round_ in range(2):
        for key in range(KEYS):
            for arm, row in FEATURES.items():
                # at first without noise, so that learners know what the features say
                value = float(row @ [1.0, -0.5, 0.25]) + round_ * float(rng.normal())
                rows.append({"id": f"{round_}-{key}-{arm}", "key": f"u{key}", "arm": arm, "value": value})
    await api.observe("b", *rows[: len(rows) // 2])
    await api.ok("POST", REFRESH, {})
    await api.ok("PATCH", "/v1/bandits/b", {"arm_effects": "auto"})
    await api.observe("b", *rows[len(rows) // 2 :])
    await api.ok("POST", REFRESH, {})
    assert (await stored_sums(api)).keys() == FEATURES.keys()
    assert (await api.ok("GET", PATH))["spread"] == 0.0
    answers = []
    for setting in ("auto", "off"):
        await api.ok("PATCH", "/v1/bandits/b", {"arm_effects": setting})
        answers.append([(await api.choose("b", key=f"u{n % KEYS}", k=3, seed=n))["arms"] for n in range(20)])
    assert answers[0] == answers[1]


async def test_an_altered_token_and_a_reward_of_1e9(api: Api):
    await make(api)
    await begin(api)
    choice = (await play(api, 3))[-1]
    raw = bytearray(raw_of(choice["decision"]))
    raw[-20] ^= 1  # the last number of an effect
    receipt = await api.reward({"decision": text_of(bytes(raw)), "arm": "a1", "value": 1.0}, wait=False)
    assert receipt["rejected"][0]["code"] == "invalid_token"
    last = await api.choose("b", key="u1")
    await api.reward({"decision": last["decision"], "value": 1e9})
    await api.ok("POST", REFRESH, {})
    found = await api.ok("GET", PATH, params={"limit": 100})
    assert all(np.isfinite([item["effect"], item["sd"]]).all() for item in found["items"])
    assert not (await compare(api.app.service.store)).different


async def test_a_finding_says_that_one_key_gives_most_rewards_of_all(api: Api):
    await make(api)
    await begin(api)
    for number in range(120 // ARMS + 1):
        await api.observe(
            "b", *({"id": f"{number}-{arm}", "key": "u0", "arm": arm, "value": 1.0} for arm in FEATURES)
        )
    (text,) = await findings(api)
    assert "rewards of all arms of the bandit b" in text


async def test_in_a_store_that_is_nearly_full_keys_learn_alone(tmp_path: Path):
    with EmbeddedServer(tmp_path / "store") as server:
        async with running(server.url, tmp_path) as api:
            await api.catalogue("c", {arm: row.tolist() for arm, row in FEATURES.items()})
            await make(api)
            await begin(api)
            memory = await api.store.info("memory")
            used = memory["used_memory"] - memory["mem_clients_normal"] - memory["mem_aof_buffer"]
            await api.store.config_set("maxmemory", round(used / 0.7 / 0.88))
            await api.ok("GET", "/readyz")  # which reads how full it is
            before, without = await all_sums(api), await decisions_without(api)
            choice = await api.choose("b", key="u0", k=3)
            terms = decision_of(raw_of(choice["decision"]))
            assert not any(taken_off(terms.effect_at(place))[1] for place in range(3))
            await api.reward({"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": 1.0})
            assert await all_sums(api) == before
            assert (await api.learner("b", "u0"))["observations"] == 3
            assert await decisions_without(api) == without + 1
            (text,) = [
                each["text"]
                for each in (await api.ok("GET", "/v1/status"))["findings"]
                if each["name"] == "space"
            ]
            assert "what arms learn" in text


async def decisions_without(api: Api) -> float:
    """How many decisions and observations no arm learned from, by the metrics."""
    lines = (await api.call("GET", "/metrics")).text.splitlines()
    name = "shortlist_decisions_without_effects_total "
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


async def test_every_version_that_is_kept_is_what_decisions_were_made_with(api: Api):
    await make(api)
    await begin(api)
    shown = dict[int, dict[str, float]]()
    for number in range(12):
        await play(api, 1)
        if number % 3 == 0:
            await api.ok("POST", REFRESH, {})
        else:  # as the worker does it: what has moved far enough
            await api.app.service.effect_fits.fit(api.app.service.bandits.by_name("b"))
        choice = await api.choose("b", key="u0", k=ARMS, activate=False)
        decision = decision_of(raw_of(choice["decision"]))
        pairs = [decision.effect_at(place) for place in range(ARMS)]
        shown[choice["effects_version"]] = {
            arm: numbers_of(pair.served)[0] for arm, pair in zip(decision.arms, pairs, strict=True) if pair
        }
    bandit, effects = api.app.service.bandits.by_name("b"), api.app.service.effects
    assert len(shown.keys() - {0}) > 5
    for number, own in shown.items():
        if number:
            version = await effects.version(bandit.uid, number)
            assert version is not None
            found = version.of_arms(list(own))[0][0]
            assert found.tolist() == list(own.values())
