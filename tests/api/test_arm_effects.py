"""Arm effects over HTTP: what one arm has beyond its features, learned from all keys together."""

# ruff: noqa: F401, F811 - fixtures are imported

from collections.abc import Sequence

import numpy as np
import pytest

from api_client import Api, Json
from app.fold.replay import compare
from app.rewards.tokens import decision_of, raw_of
from app.storage import redis_keys
from bandit_with_effects import (
    ARMS,
    EFFECTS,
    FEATURES,
    KEYS,
    PATH,
    REFRESH,
    SIGNALS,
    D,
    all_sums,
    api,
    begin,
    check,
    entries_of,
    findings,
    listed,
    make,
    play,
    revisions_of,
    stored_sums,
)
from shortlist.linear import arm_effects, ridge_sums
from shortlist.linear.arm_effects import EffectSums
from waiting import wait_until

pytestmark = pytest.mark.anyio


async def test_effects_are_those_of_the_sums_of_all_surprises(api: Api):
    await make(api)
    await begin(api)
    await play(api, 10)
    await api.ok("POST", REFRESH, {})
    sums = await check(api)
    arms = sorted(sums)
    n, F, R, Q = np.array([sums[arm] for arm in arms]).T
    fitted = arm_effects.fit(EffectSums(n, R, Q, F))
    found = await api.ok("GET", PATH, params={"limit": 100})
    assert found["spread"] == pytest.approx(fitted.variance**0.5, rel=1e-9)
    assert found["noise"] == pytest.approx(fitted.noise**0.5, rel=1e-9)
    assert found["rewards"] == n.sum()
    assert found["arms"] == len(arms)
    effects, deviations = arm_effects.estimates(n, R, fitted)
    by_arm = {item["arm"]: item for item in found["items"]}
    for arm, effect, sd, count in zip(arms, effects, deviations, n, strict=True):
        assert by_arm[arm]["effect"] == pytest.approx(effect, abs=1e-6)
        assert by_arm[arm]["sd"] == pytest.approx(sd, rel=1e-9)
        assert by_arm[arm]["weight"] == count
        assert await api.ok("GET", f"{PATH}/{arm}") == {"version": found["version"], **by_arm[arm]}
    assert np.corrcoef(effects, [EFFECTS[arm] for arm in arms])[0, 1] > 0.8
    # the order of each list, page by page
    for order, sign in (("largest", -1.0), ("smallest", 1.0)):
        items = await listed(api, PATH, order=order, limit=5)
        assert [item["effect"] for item in items] == sorted(
            (item["effect"] for item in items), key=lambda effect, sign=sign: sign * effect
        )
        assert {item["arm"] for item in items} == set(arms)
    surest = await listed(api, PATH, order="surest")
    assert [item["sd"] for item in surest] == sorted(item["sd"] for item in surest)
    revisions = await revisions_of(api)
    newest = [revisions[item["arm"]] for item in await listed(api, PATH, order="newest")]
    assert newest == sorted(newest, reverse=True)


@pytest.mark.rest
async def test_what_is_expected_of_history_knows_the_other_rewards_of_its_call(api: Api):
    """Else an arm that is liked by those who were shown it would seem better than its features."""
    await make(api)
    await begin(api)
    service, rng = api.app.service, np.random.default_rng(3)
    version = await service.priors.newest(service.bandits.by_name("b").uid)
    values = dict(zip(FEATURES, rng.normal(size=5), strict=False))
    rows = [{"id": arm, "key": "new", "arm": arm, "value": float(value)} for arm, value in values.items()]
    await api.observe("b", *rows, rows[0])  # one is sent twice
    entries = {entry["arm"]: entry for entry in await entries_of(api) if entry["key"] == "new"}
    assert entries.keys() == values.keys()
    for arm, entry in entries.items():
        others = [each for each in entries.values() if each["arm"] != arm]
        sums = ridge_sums.of(
            np.array([FEATURES[each["arm"]] for each in others]),
            np.array([each["value"] - each["effect"][0] for each in others]),
            np.ones(len(others), dtype=bool),
        )
        expected = FEATURES[arm] @ version.learned.posterior(sums).theta
        assert entry["expected"] == pytest.approx([expected], abs=1e-6)


@pytest.mark.rest
async def test_what_everybody_was_shown_because_they_like_it_is_no_effect(api: Api):
    """There are none: then the spread is 0 but for one standard error. By what was known before the call it
    is .57 here. The chance of a false alarm is below 1e-6, and the draws are seeded.
    """
    rng, arms, keys = np.random.default_rng(7), 60, 60
    features = rng.normal(size=(arms, D)) / np.sqrt(D)
    await api.catalogue("liked", {f"l{place}": row.tolist() for place, row in enumerate(features)})
    await make(api, catalogue="liked")
    for part in range(2):  # the first is of other keys, for a prior
        rows = []
        for key in range(keys):
            theta = 1.0 + rng.normal(size=D)
            liked = np.argsort(-(features @ theta + rng.gumbel(size=arms)))[:20]
            values = features[liked] @ theta + 0.5 * rng.normal(size=20)
            rows += [
                {"id": f"{key}-{arm}", "key": f"{part}-{key}", "arm": f"l{arm}", "value": float(value)}
                for arm, value in zip(liked, values, strict=True)
            ]
        await api.observe("b", *rows)
        await api.ok("POST", REFRESH, {})
    assert await stored_sums(api)
    assert (await api.ok("GET", PATH))["spread"] < 0.2


async def test_what_is_expected_and_served_is_in_the_token_and_in_the_row(api: Api):
    await make(api)
    await begin(api)
    await play(api, 6)
    await api.ok("POST", REFRESH, {})
    learner = await api.learner("b", "u1")
    choice = await api.choose("b", key="u1", k=3)
    decision = decision_of(raw_of(choice["decision"]))
    assert len(decision.effects or b"") == 3 * (8 + 3)  # two float32 an arm, and its age
    await api.app.service.rows.flush()
    row = (await api.ok("GET", "/v1/bandits/b/log?order=desc&limit=1"))["items"][0]
    for arm in row["arms"]:
        assert arm["expected"] == pytest.approx(FEATURES[arm["id"]] @ learner["theta"], abs=1e-5)
        assert arm["effect"] == pytest.approx((await api.ok("GET", f"{PATH}/{arm['id']}"))["effect"])
    assert any(arm["effect"] for arm in row["arms"])


@pytest.mark.rest
@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"position": {"examination": [1.0, 0.4]}}, {}),
        ({"reward": {"aggregate": "last", "wait_s": 3_600, "default": 0.25}}, {"at": 1_700_000_000_000}),
        ({"reward": {"aggregate": "sum"}}, {"reward_id": "one"}),
        ({"reward": {"wait_s": 3_600, "default": -0.5}}, {}),
    ],
    ids=["position", "last", "sum", "default"],
)
async def test_rewards_of_every_kind_count_once(api: Api, fields: Json, more: Json):
    """Sent twice, revised, added up, and after the default was counted."""
    await make(api, **fields)
    await begin(api)
    await play(api, 3, **more)
    await api.ok("POST", REFRESH, {})
    choices = await play(api, 2, **more)
    late = await api.choose("b", key="u0", k=2)
    await api.count_defaults()
    for choice in choices[-3:]:
        first = {"decision": choice["decision"], "arm": choice["arms"][0]["id"]}
        await api.reward({**first, "value": 1e3, **more})
        for again in ({"at": more["at"] + 5} if "at" in more else {"reward_id": "two"},) * bool(more):
            await api.reward({**first, "value": -3.0, **again})
    await api.reward({"decision": late["decision"], "arm": late["arms"][1]["id"], "value": 7.0, **more})

    async def is_settled() -> bool:
        waiting = [await api.store.zcard(redis_keys.due(partition)) for partition in range(16)]
        return not any(waiting) and (await api.ok("GET", "/readyz"))["backlog"] == 0

    await wait_until(is_settled, what="defaults are counted")
    await check(api)


async def test_a_choice_is_of_features_and_effects_together(api: Api):
    await make(api, policy="linear_ts")
    await begin(api)
    await play(api, 8)
    await api.ok("POST", REFRESH, {})
    version = (await api.ok("GET", PATH))["version"]
    dry = await api.ok("POST", "/v1/bandits/b/choose", {"key": "u1", "k": ARMS, "seed": 5, "dry_run": True})
    learner = await api.learner("b", "u1")
    assert dry["effects_version"] == version
    for arm in dry["arms"]:
        effect = (await api.ok("GET", f"{PATH}/{arm['id']}"))["effect"]
        assert arm["effect"] == pytest.approx(effect)
        assert arm["estimate"] == pytest.approx(FEATURES[arm["id"]] @ learner["theta"] + effect)
    choice = await api.choose("b", key="u1", k=ARMS, seed=5)
    assert choice["exact"]
    assert choice["effects_version"] == version
    assert [arm["score"] for arm in choice["arms"]] == [arm["draw"] for arm in dry["arms"]]
    # of many draws the mean is the estimate: theta and the noise of effects have mean 0
    draws = np.zeros(ARMS)
    for seed in range(200):
        drawn = await api.choose("b", key="u1", k=ARMS, seed=seed, activate=False)
        draws += [
            next(arm["score"] for arm in drawn["arms"] if arm["id"] == f"a{place}") for place in range(ARMS)
        ]
    estimates = {arm["id"]: arm for arm in dry["arms"]}
    for place, total in enumerate(draws):
        own = estimates[f"a{place}"]
        assert abs(total / 200 - own["estimate"]) < 5 * (own["width"] + 1.0) / 200**0.5


@pytest.mark.rest
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scope": "global"}, "scope"),
        ({"prior": "plain"}, "prior: learned"),
        ({"policy": "linear_elim"}, "elimination"),
        ({"arm_effects": "on"}, "auto"),
    ],
)
async def test_what_does_not_go_with_effects_is_refused(api: Api, fields: Json, said: str):
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "arm_effects": "auto", **fields}
    problem = await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "arm_effects"])
    assert said in str(problem)


@pytest.mark.rest
async def test_a_finding_says_that_one_key_gives_most_rewards_of_an_arm(api: Api):
    await make(api)
    await begin(api)

    async def reward(number: int, key: str, arms: Sequence[str]) -> None:
        rows = [{"id": f"{number}-{key}-{arm}", "key": key, "arm": arm, "value": 1.0} for arm in arms]
        await api.observe("b", *rows)

    for number in range(25):
        for key in range(KEYS):
            await reward(number, f"u{key}", list(FEATURES)[key : key + 3])
    assert await findings(api) == []  # six keys of three arms each
    for number in range(99):
        await reward(number, "visitor-9", ["a11"])
    assert await findings(api) == []  # too few to tell
    await reward(99, "visitor-9", ["a11"])
    (text,) = await findings(api)
    assert "last 100 rewards of the arm a11 of the bandit b" in text
    assert "visitor" not in text
    metrics = (await api.call("GET", "/metrics")).text
    assert 'shortlist_findings{name="one_key_teaches"} 1.0' in metrics


async def test_an_arm_keeps_its_effect_when_its_features_change_and_one_that_is_another_begins_anew(api: Api):
    """More of it: ``test_effects_through_updates``."""
    await make(api)
    await begin(api)
    await play(api, 4, k=6)
    await api.ok("POST", REFRESH, {})
    before = {item["arm"]: item for item in (await api.ok("GET", PATH))["items"]}
    other, *same = before
    await api.put_arms("c", {arm: (FEATURES[arm] + 0.001).tolist() for arm in same})
    await api.put_arms("c", {other: (FEATURES[other] + 9.0).tolist()})
    assert [(await api.ok("GET", f"{PATH}/{arm}"))["effect"] for arm in before] == [
        item["effect"] for item in before.values()
    ]
    await api.ok("POST", REFRESH, {})
    after = {item["arm"]: item for item in (await api.ok("GET", PATH))["items"]}
    for arm in same:
        assert after[arm]["effect"] == pytest.approx(before[arm]["effect"], rel=0.1, abs=0.05)
        assert 0.5 * before[arm]["weight"] < after[arm]["weight"] < before[arm]["weight"]
    assert after[other]["weight"] < 0.1


@pytest.mark.rest
async def test_sums_of_a_deleted_arm_go_with_the_last_token_that_can_name_it(api: Api):
    await make(api)
    await begin(api)
    before = (await play(api, 6))[-1]
    gone, service = before["arms"][0]["id"], api.app.service
    bandit, revision = service.bandits.by_name("b"), (await revisions_of(api))[gone]
    late = await api.choose("b", key="u0", k=ARMS)
    await api.ok("POST", "/v1/catalogues/c/arms/delete", {"ids": [gone]})
    await service.effect_fits.fit(bandit, merges=True)
    assert gone in await all_sums(api)  # tokens name it still, and can be rewarded
    counts = {arm: own[0] for arm, own in (await all_sums(api)).items()}
    await api.reward({"decision": late["decision"], "arm": gone, "value": 1.0})
    assert (await all_sums(api))[gone][0] == counts[gone] + 1
    # as if the time of the last token were over
    assert await api.store.delete(redis_keys.retired(bandit.catalogue.uid, revision)) == 1
    await service.effect_fits.fit(bandit, merges=True)
    assert (await all_sums(api)).keys() == counts.keys() - {gone}
    await api.ok("POST", REFRESH, {})
    assert gone not in {item["arm"] for item in await listed(api, PATH)}
    late_reward = {"decision": late["decision"], "arm": gone, "value": 1.0}
    assert (await api.reward({**late_reward, "reward_id": "again"}, wait=False))["rejected"]
    assert not (await compare(service.store)).different


@pytest.mark.rest
async def test_a_list_has_the_arms_whose_effects_choices_use(api: Api):
    """None that was deleted, on no page; the others once each."""
    await make(api)
    await begin(api)
    await play(api, 6)
    await api.ok("POST", REFRESH, {})
    deleted, changed, *rest = [item["arm"] for item in await listed(api, PATH)]
    await api.ok("DELETE", f"/v1/catalogues/c/arms/{deleted}", status=204)
    await api.put_arms("c", {changed: [1.0, 2.0, 3.0]})
    for limit in (1, 50):
        shown = [item["arm"] for item in await listed(api, PATH, limit=limit)]
        assert sorted(shown) == sorted([changed, *rest])


@pytest.mark.rest
async def test_reasons_are_of_rewards_less_effects(api: Api):
    await make(api, policy="linear_ts")
    await begin(api)
    await play(api, 6)
    await api.ok("POST", REFRESH, {})
    learned = dict[str, tuple[float, float]]()
    for number in range(3):
        choice = await api.choose("b", key="late", k=1, seed=number, exclude=list(learned))
        (arm,) = choice["arms"]
        effect = (await api.ok("GET", f"{PATH}/{arm['id']}"))["effect"]
        value = 0.0 if number == 1 else 1.5
        await api.reward({"decision": choice["decision"], "value": value})
        learned[arm["id"]] = value, value - effect
    await api.ok("POST", REFRESH, {})
    choice = await api.choose("b", key="late", k=2)
    await api.app.service.rows.flush()
    found = await api.ok("POST", "/v1/bandits/b/log/explain", {"decision": choice["decision"]})
    assert found["changed"] == []
    precision = np.array((await api.learner("b", "late", precision=True))["precision"])
    features = np.array([FEATURES[arm] for arm in learned])
    parts = np.linalg.solve(precision, features.T) * [part for _, part in learned.values()]
    shown = [each for each in found["candidates"] if each["place"]]
    assert len(shown) == 2
    for each in shown:
        shares = FEATURES[each["id"]] @ parts
        expected = {arm: share for arm, share in zip(learned, shares, strict=True) if share > 0.0}
        assert {one["arm"]: one["share"] for one in each["because"]} == pytest.approx(expected, rel=1e-5)
        assert all(one["value"] == learned[one["arm"]][0] for one in each["because"])


@pytest.mark.rest
@pytest.mark.parametrize("policy", ["softmax", "igw", "epsilon_greedy"])
async def test_who_may_stand_first_of_a_ranking_is_said_with_the_effects(api: Api, policy: str):
    await make(api, policy=policy)
    await begin(api)
    await play(api, 5)
    await api.ok("POST", REFRESH, {})
    asked: Json = {"key": "u0", "candidates": [*FEATURES], "include": ["ranking"]}
    for seed in range(5):
        choice = await api.choose("b", **asked, seed=seed)
        (shown,), first = choice["arms"], {each["id"]: each["first"] for each in choice["ranking"]}
        assert shown["propensity"] == pytest.approx(first[shown["id"]], rel=1e-9)
    assert choice["effects_version"]


@pytest.mark.rest
async def test_a_new_bandit_has_them_where_it_can(api: Api):
    """By default: with a learned prior. One that exists stays as it is, whatever is asked for again."""
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
    for number, (fields, setting) in enumerate(
        [
            ({}, "auto"),
            ({"policy": "igw", "signals": SIGNALS}, "auto"),
            ({"scope": "global"}, "off"),
            ({"prior": "plain"}, "off"),
            ({"policy": "linear_elim"}, "off"),
            ({"exploration": "theory"}, "off"),
            ({"arm_effects": "off"}, "off"),
        ]
    ):
        made = await api.ok("PUT", f"/v1/bandits/b{number}", {**body, **fields}, 201)
        assert made["arm_effects"] == setting, fields
    await api.ok("PATCH", "/v1/bandits/b0", {"arm_effects": "off"})
    assert (await api.ok("PUT", "/v1/bandits/b0", body))["arm_effects"] == "off"
    await api.refused("PUT", "/v1/bandits/b0", {**body, "arm_effects": "auto"}, status=409, code="conflict")
    assert (await api.ok("PATCH", "/v1/bandits/b0", {"arm_effects": None}))["arm_effects"] == "auto"
