"""Explanations: a choice is made again from its seed, or it is said what has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from waiting import wait_until

pytestmark = pytest.mark.anyio

ARMS = {f"a{i}": [1.0, float(i) / 8, float(i % 3)] for i in range(12)}


@pytest.fixture
async def api(api: Api) -> Api:
    await api.catalogue("c", ARMS)
    return api


async def explained(api: Api, choice: Json) -> Json:
    """The explanation, once the row of the decision is written."""

    async def found() -> Json | None:
        answer = await api.call("POST", "/v1/bandits/b/log/explain", {"decision": choice["decision"]})
        return answer.json() if answer.status_code == 200 else None

    return await wait_until(found, what="the row")  # type: ignore[return-value]


async def taught(api: Api, **changes: Any) -> None:
    """The learner of ``b`` gets a reward, which is applied."""
    item = {"id": "o", "arm": "a3", "value": 1.0, **changes}
    await api.ok("POST", "/v1/bandits/b/observations?wait=applied", {"observations": [item]})


AUTO: Json = {"exploration": "auto", "ridge": "auto", "reward": {"min": -1, "max": 3}}


# Settings that are numbers: test_policy_contract.py, of every policy.
@pytest.mark.parametrize("policy", ["sub_ts", "sub_elim", "softmax", "igw"])
async def test_a_policy_whose_settings_are_auto_makes_its_choice_again(api: Api, policy: str):
    unit = {"softmax": {"temperature": "auto"}, "igw": {"gamma": "auto"}}
    await api.bandit("b", "c", policy=policy, log={}, **AUTO, **unit.get(policy, {}))
    await taught(api)
    for _ in range(5):
        choice = await api.choose("b", k=3)
        found = await explained(api, choice)
        assert (found["repeated"], found["changed"], found["seeded"]) == (True, [], False)
        assert [arm["id"] for arm in found["row"]["arms"]] == [arm["id"] for arm in choice["arms"]]
        places = {each["id"]: each["place"] for each in found["candidates"] if each["place"]}
        assert places == {arm["id"]: place for place, arm in enumerate(choice["arms"], 1)}


async def test_a_token_of_any_length_is_explained_and_a_short_one_by_its_path_too(api: Api):
    """One of a thousand arms with long ids has 190,000 characters; a path has room for 65,000."""
    await api.catalogue("long", {f"{number:04}{'x' * 124}": [1.0, number] for number in range(1_000)})
    await api.bandit("b", "long", log={})
    choice = await api.choose("b", k=1_000)
    assert len(choice["decision"]) > 180_000
    found = await explained(api, choice)
    assert (found["repeated"], len(found["row"]["arms"])) == (True, 1_000)
    choice = await api.choose("b")
    found = await explained(api, choice)
    assert await api.ok("GET", f"/v1/bandits/b/log/{choice['decision']}") == found
    for wrong in ("none", "!", choice["decision"][:-1]):
        body = {"decision": wrong}
        await api.refused("POST", "/v1/bandits/b/log/explain", body, status=404, code="not_found")


@pytest.mark.rest
async def test_a_bandit_without_a_log_says_so(api: Api):
    """Not that the row will come: nobody has to wait for it."""
    await api.bandit("b", "c")
    body = {"decision": (await api.choose("b"))["decision"]}
    problem = await api.refused("POST", "/v1/bandits/b/log/explain", body, status=404, code="not_found")
    assert problem["detail"].startswith("this bandit keeps no log")
    report = await api.ok("GET", "/v1/bandits/b/report")
    assert [each.split(":")[0] for each in report["warnings"]] == ["this bandit keeps no log"]


@pytest.mark.rest
async def test_all_that_a_request_may_ask_for_is_asked_again(api: Api):
    await api.bandit(
        "b", "c", policy="softmax", scope="per_key", context={"dim": 2}, log={}, holdout={"share": 0.0},
        filter={"tags": {"$exists": False}},
    )  # fmt: skip
    await taught(api, key="ann", context=[1.0, 0.5])
    wish = {
        "key": "ann", "k": 4, "context": [0.25, 2.0], "exclude": ["a1", "gone"], "seed": 7, "event_id": "e",
        "filter": {"price": {"$exists": False}}, "rules": {"pin": [{"arm": "a5", "place": 2}]},
    }  # fmt: skip
    choice = await api.choose("b", **wish)
    found = await explained(api, choice)
    assert (found["repeated"], found["seed"], found["seeded"]) == (True, 7, True)
    assert found["asked"] == {
        "k": 4, "exclude": ["a1", "gone"], "event_id": "e", "arms": None, "pins": [["a5", 2]], "at_most": [],
        "diverse": None,
        "filter": {"price": {"$exists": False}},
    }  # fmt: skip
    assert found["row"]["context"] == [0.25, 2.0]
    assert not {"a1", "gone"} & {each["id"] for each in found["candidates"]}
    assert [arm["id"] for arm in found["row"]["arms"] if arm["pinned"]] == ["a5"]


@pytest.mark.rest
@pytest.mark.parametrize("serve", ["random", {"arms": ["a4", "a2"]}])
async def test_a_choice_of_the_holdout_is_made_again(api: Api, serve: Any):
    await api.bandit("b", "c", policy="sub_ts", log={}, holdout={"share": 1.0, "serve": serve})
    found = await explained(api, await api.choose("b", k=2))
    assert (found["row"]["group"], found["repeated"]) == ("holdout", True)


@pytest.mark.rest
async def test_estimates_and_widths_are_those_of_the_learner(api: Api):
    await api.bandit("b", "c", policy="linear_ts", log={})
    await taught(api)
    learner = await api.ok("GET", "/v1/bandits/b/learners/_global?include=precision")
    found = await explained(api, await api.choose("b"))
    covariance = np.linalg.inv(np.array(learner["precision"]))
    assert len(found["candidates"]) == len(ARMS)
    for each in found["candidates"]:
        x = np.array(ARMS[each["id"]])
        assert each["estimate"] == pytest.approx(float(x @ learner["theta"]))
        assert each["width"] == pytest.approx(float(np.sqrt(x @ covariance @ x)))
    estimates = [each["estimate"] for each in found["candidates"]]
    assert estimates == sorted(estimates, reverse=True)


async def test_what_has_changed_is_said_and_what_was_logged_is_shown(api: Api):
    await api.bandit("b", "c", policy="sub_ts", log={})
    choice = await api.choose("b")
    assert (await explained(api, choice))["repeated"] is True
    await api.ok("PATCH", "/v1/bandits/b", {"exploration": 9.0})
    assert (await explained(api, choice))["repeated"] is True  # by the terms of that time
    reward = {"decision": choice["decision"], "value": 0.5}
    await api.ok("POST", "/v1/rewards?wait=applied", {"rewards": [reward]})
    found = await explained(api, choice)
    assert (found["changed"], found["repeated"], found["candidates"]) == (["learner"], None, [])
    assert found["row"]["arms"][0]["score"] == choice["arms"][0]["score"]
    assert [each["value"] for each in found["row"]["rewards"]] == [0.5]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": [{"id": "new", "features": [1.0, 9.0, 9.0]}]})
    assert (await explained(api, choice))["changed"] == ["learner", "catalogue"]


@pytest.mark.rest
async def test_a_request_that_was_too_large_to_be_kept_is_not_made_again(api: Api):
    await api.bandit("b", "c", policy="sub_ts", log={})
    rng = np.random.default_rng(1)
    exclude = [rng.bytes(30).hex() for _ in range(300)]
    found = await explained(api, await api.choose("b", exclude=exclude))
    assert (found["asked"], found["changed"], found["repeated"]) == (None, ["request"], None)


@pytest.mark.rest
async def test_an_arm_that_is_gone_is_a_change_of_the_catalogue(api: Api):
    await api.bandit("b", "c", policy="sub_ts", log={})
    choice = await api.choose("b", rules={"pin": [{"arm": "a5", "place": 1}]})
    assert (await explained(api, choice))["repeated"] is True
    await api.ok("DELETE", "/v1/catalogues/c/arms/a5", status=204)
    assert (await explained(api, choice))["changed"] == ["catalogue"]


@pytest.mark.rest
async def test_what_is_not_in_the_log_is_not_found(api: Api):
    await api.bandit("b", "c", policy="sub_ts")
    await api.bandit("other", "c", policy="sub_ts", log={})
    unlogged, others = await api.choose("b"), await api.choose("other")
    for token in (unlogged["decision"], others["decision"], "none", "%C3%A9", "A" * 300):
        await api.refused("GET", f"/v1/bandits/b/log/{token}", status=404, code="not_found")
    await api.refused("GET", "/v1/bandits/nobody/log/none", status=404, code="not_found")


async def test_the_rewards_of_a_key_that_speak_for_an_arm_are_named_with_their_exact_parts(api: Api):
    """By hand, of a learner with a ridge of 1; of rewards that speak against an arm nothing is said."""
    await api.bandit("b", "c", policy="linear_ts", scope="per_key", log={}, prior="plain")
    values = {}
    for seed, value in ((1, 1.0), (2, 0.5), (3, 2.0)):
        choice = await api.choose("b", key="ann", seed=seed, exclude=list(values))
        await explained(api, choice)
        arm = choice["arms"][0]["id"]
        values[arm] = value
        await api.reward({"decision": choice["decision"], "arm": arm, "value": value})
    await api.reward({"decision": (await api.choose("b", key="bob", seed=4))["decision"], "value": 9.0})
    found = await explained(api, await api.choose("b", key="ann", k=2, seed=5))
    assert found["changed"] == []
    shown = [each for each in found["candidates"] if each["place"]]
    assert len(shown) == 2
    features = np.array([ARMS[arm] for arm in values])
    precision = np.eye(3) + features.T @ features
    for each in shown:
        parts = np.linalg.solve(precision, features.T).T @ ARMS[each["id"]] * list(values.values())
        assert parts.sum() == pytest.approx(each["estimate"], rel=1e-6)
        expected = {arm: part for arm, part in zip(values, parts, strict=True) if part > 0.0}
        told = {reason["arm"]: reason["share"] for reason in each["because"]}
        assert told == pytest.approx(expected, rel=1e-6)
        assert list(told.values()) == sorted(told.values(), reverse=True)
        assert all(reason["value"] == values[reason["arm"]] for reason in each["because"])
    others = [each for each in found["candidates"] if not each["place"]]
    assert {each["because"] for each in others} <= {None}


@pytest.mark.rest
async def test_a_bandit_whose_columns_have_names_has_terms_and_one_that_fades_has_no_reasons(api: Api):
    await api.bandit("b", "c", policy="linear_ts", scope="per_key", log={}, half_life_s=60)
    choice = await api.choose("b", key="ann", seed=1)
    await explained(api, choice)
    await api.reward({"decision": choice["decision"], "value": 1.0})
    found = await explained(api, await api.choose("b", key="ann", seed=2))
    assert {each["because"] for each in found["candidates"]} <= {None}
