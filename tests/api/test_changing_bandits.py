"""PATCH of a bandit: what changes, what stays, versions and entity tags."""

from typing import Any

import pytest

from api_client import Api, Json
from app.bandits import versions
from app.bandits.record_settings import FIXED
from app.bandits.settings import BanditSettings

pytestmark = pytest.mark.anyio

PATH = "/v1/bandits/b"
# For each field that can be changed: a change, and what the bandit must have for it.
CHANGEABLE: dict[str, tuple[Any, Json]] = {
    "policy": ("linear_ts", {}), "ridge": (2.0, {}), "exploration": ("theory", {}), "delta": (0.1, {}),
    "horizon": (9, {}), "shortlist": (31, {}), "eta": (0.5, {"solver": "adaptive"}),
    "reward": ({"min": 0.0}, {}),
    "idle_ttl_s": (60.0, {}), "temperature": (0.5, {"policy": "softmax"}),
    "gamma": (7.0, {"policy": "igw"}), "epsilon": (0.5, {"policy": "epsilon_greedy"}),
    "alpha": (2.0, {"policy": "linucb"}),
    "holdout": ({"share": 0.5, "serve": {"arms": ["a1"]}, "else": "random"}, {}),
    "solver": ("adaptive", {}), "filter": ({"no": {"$exists": False}}, {}),
    "log": ({"keep_s": 60.0, "share": 0.5}, {}),
    "repeats": ({"most": 2, "within_s": 60.0, "counts": "shown", "by": "arm"}, {}),
    "position": ({"examination": [1.0, 0.5]}, {}),
}  # fmt: skip
OTHER: dict[str, tuple[Any, Json]] = {
    "catalogue": ("d", {}), "scope": ("per_key", {}),
    "half_life_s": (60.0, {}), "context": ({"dim": 3}, {"context": {"dim": 2}}),
    "interactions": (1, {"context": {"dim": 2}, "interactions": 2}), "intercept": (True, {}),
    "match": ({"fields": [{"name": "km", "kind": "number"}]}, {}),
}  # fmt: skip


@pytest.fixture
async def api(api: Api) -> Api:
    await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(4)})
    await api.catalogue("d", {"a": [1.0, 0.0]})
    return api


@pytest.mark.rest
async def test_how_much_is_explored_does_not_depend_on_a_ridge_that_is_given(api: Api):
    """Also without an intercept, where the arms alone say how many numbers of a decision are not 0."""
    await api.catalogue("e", {f"a{i}": [0.0] * 5 + [float(i)] for i in range(3)})
    settings = {"catalogue": "e", "policy": "linear_ts", "intercept": False, "context": {"dim": 8}}
    made = await api.ok("PUT", "/v1/bandits/made", settings, 201)
    given = await api.ok("PUT", PATH, {**settings, "ridge": 1.0}, 201)
    assert given["used"]["exploration"] == made["used"]["exploration"] == 0.5


@pytest.mark.rest
async def test_a_ridge_that_becomes_auto_is_in_the_unit_of_the_features(api: Api):
    """As that of a bandit that is made with it."""
    await api.catalogue("e", {f"a{i}": [10.0, 20.0 * i] for i in range(3)})
    settings = {"catalogue": "e", "policy": "linear_ts", "intercept": False}
    made = await api.ok("PUT", "/v1/bandits/made", settings, 201)
    await api.ok("PUT", PATH, {**settings, "ridge": 1.0}, 201)
    changed = await patched(api, {"ridge": "auto"})
    assert changed["used"] == made["used"]


async def patched(api: Api, patch: Json, **headers: str) -> Json:
    answer: Json = await api.ok("PATCH", PATH, patch, headers=headers)
    return answer


async def etag(api: Api) -> str:
    return (await api.call("GET", PATH)).headers["etag"]


def test_every_field_says_whether_it_can_be_changed():
    assert set(FIXED) == set(OTHER)
    apart = {
        "prior",
        "signals",
        "guardrails",
        "arm_effects",
        "options",
        "constraints",
    }  # they have their own tests
    assert set(BanditSettings.__struct_fields__) - set(FIXED) - apart == set(CHANGEABLE)


@pytest.mark.parametrize("field", CHANGEABLE)
async def test_a_field_is_changed_and_goes_back_to_its_default(api: Api, field: str):
    value, needs = CHANGEABLE[field]
    defaults = {"ridge": "auto"} if field == "ridge" else {"exploration": "auto"}
    await api.bandit("b", "c", **defaults, **needs)
    made, first = await api.ok("GET", PATH), await etag(api)
    changed = await patched(api, {field: value})
    # No propensities: nothing can be evaluated. No arm has the field of the filter.
    warned = {"warnings": changed["warnings"]} if field in ("log", "filter") else {}
    assert ("warnings" in changed) == bool(warned)
    full = {**made[field], **value} if field == "reward" else value
    assert (changed["used"] != made["used"]) == (field in ("ridge", "exploration", "auto"))
    assert changed == {**made, field: full, "version": 2, "used": changed["used"], **warned}
    assert await api.ok("GET", PATH) == changed
    assert await etag(api) != first
    assert (await api.choose("b"))["bandit_version"] == 2
    back = "sub_ts" if field == "policy" else None
    assert await patched(api, {field: back}) == {**made, "version": 3}


async def test_versions_are_bounded_and_none_goes_that_may_be_needed(api: Api):
    stored = api.app.service.bandits.versions
    stored.most = 3
    await api.bandit("b", "c", reward={"max": 1})
    token = (await api.choose("b"))["decision"]
    for number in (2, 3):
        await patched(api, {"ridge": number, "reward": {"max": 0.5}})
    before = await api.stored()
    await api.refused("PATCH", PATH, {"ridge": 4}, status=429, code="quota_reached")
    assert await api.stored() == before
    assert (await api.reward({"decision": token, "value": 1.0}))["accepted"] == 1
    stored.rewarded_ms = -versions.MARGIN_MS - 1_000
    assert (await patched(api, {"ridge": 4}))["version"] == 4
    items = await api.listed(f"{PATH}/versions")
    assert [item["version"] for item in items] == [4, 3, 2]
    assert (await api.reward({"decision": token, "value": 1.0}))["duplicate"] == 1, "it is still in memory"


async def test_a_decision_is_rewarded_by_the_terms_of_its_version(api: Api):
    await api.bandit("b", "c", reward={"min": 0, "max": 1})
    old = (await api.choose("b"))["decision"]
    deferred = (await api.choose("b", activate=False))["decision"]
    await patched(api, {"reward": {"min": 5, "max": 6, "aggregate": "sum", "wait_s": 60, "default": 5}})
    new = (await api.choose("b"))["decision"]
    receipt = await api.reward(
        {"decision": old, "value": 5.5}, {"decision": new, "value": 0.5}, {"decision": old, "value": 0.5},
        {"decision": old, "value": 0.7, "reward_id": "again"}, {"decision": new, "value": 5.5},
        {"decision": new, "value": 5.5, "reward_id": "again"},
    )  # fmt: skip
    assert receipt["rejected"] == [{"index": i, "code": "out_of_range"} for i in (0, 1)]
    assert (receipt["accepted"], receipt["duplicate"]) == (3, 1)
    waiting = await api.store.hlen("shortlist3:{p:0}:decisions")
    outcome = await api.ok("POST", "/v1/decisions/activate", {"decisions": [deferred]})
    assert outcome["activated"] == 1
    assert await api.store.hlen("shortlist3:{p:0}:decisions") == waiting, "its version did not wait"


async def test_a_patch_without_a_difference_changes_nothing_though_arms_have_come(api: Api):
    await api.catalogue("empty", {}, dim=2)
    fields = {"context": {"dim": 2}, "ridge": 1.0, "intercept": False}
    await api.bandit("b", "empty", **fields)
    await api.ok("PUT", "/v1/catalogues/empty/arms", {"arms": [{"id": "a", "features": [1.0, 0.0]}]})
    assert (await patched(api, {"ridge": 1.0}))["version"] == 1
