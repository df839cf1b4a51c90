"""Changes of a bandit, field by field, and what is refused."""

# ruff: noqa: F401, F811 - fixtures are imported

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_changing_bandits import CHANGEABLE, OTHER, PATH, api, etag, patched

from api_client import Api, Json, running
from app.bandits.record_settings import FIXED
from app.bandits.settings import BanditSettings

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.mark.parametrize("field", OTHER)
async def test_what_learners_depend_on_cannot_be_changed(api: Api, field: str):
    value, needs = OTHER[field]
    await api.bandit("b", "c", **needs)
    made, before = await api.ok("GET", PATH), await api.stored()
    assert await patched(api, {field: made[field]}) == made, "what it is, it may be"
    problem = await api.refused(
        "PATCH", PATH, {field: value, "ridge": 2}, status=409, code="not_changeable", loc=["body", field]
    )
    assert [error["loc"] for error in problem["errors"]] == [["body", field]]
    assert await api.stored() == before
    assert await api.ok("GET", PATH) == made


BAD_PATCHES: list[Any] = [
        ({"other": 1}, ["other"]), ({"ridge": "1"}, ["ridge"]), ({"ridge": 0}, ["ridge"]),
        ({"ridge": True}, ["ridge"]), ({"policy": "elim"}, ["policy"]), ({"policy": None}, ["policy"]),
        ({"exploration": "no"}, ["exploration"]), ({"reward": 1}, ["reward"]),
        ({"reward": {"x": 1}}, ["reward", "x"]), ({"reward": {"min": "0"}}, ["reward", "min"]),
        ({"reward": {"default": 1}}, ["reward"]), ({"reward": {"wait_s": 1e6}}, ["reward", "wait_s"]),
        ({"reward": {"min": 1, "max": 0}}, ["reward"]), ({"temperature": 1}, ["temperature"]),
        ({"log": {"share": 0}}, ["log", "share"]),
        ({"filter": {"$no": 1}}, ["filter", "?"]), ({"filter": []}, ["filter"]),
        ({"policy": "sub_elim", "exploration": 0}, ["exploration"]), ({"id": "b"}, ["id"]),
        ({"policy": "softmax", "solver": "adaptive"}, ["solver"]), ({"version": 1}, ["version"]),
        ([], []), ("a", []), (1, []), ([{"ridge": 2}], []),
    ]  # fmt: skip


async def test_a_bad_patch_names_the_field_and_changes_nothing(api: Api):
    await api.bandit("b", "c")
    before = await api.stored()
    for patch, loc in BAD_PATCHES:
        await api.refused("PATCH", PATH, patch, loc=["body", *loc])
        assert await api.stored() == before


async def test_a_policy_that_the_learners_do_not_allow_is_refused(api: Api):
    await api.bandit("b", "c", half_life_s=60)
    await api.refused("PATCH", PATH, {"policy": "sub_elim"}, loc=["body", "half_life_s"])
    await api.catalogue("wide", {}, dim=300)
    await api.ok("PUT", "/v1/bandits/w", {"catalogue": "wide", "policy": "sub_ts", "intercept": False}, 201)
    await api.refused("PATCH", "/v1/bandits/w", {"policy": "linear_elim"}, loc=["body", "policy"])
    await api.refused("PATCH", "/v1/bandits/none", {}, status=404, code="not_found")


async def test_an_option_goes_with_its_policy_unless_learners_depend_on_it(api: Api):
    await api.bandit("b", "c", policy="softmax", temperature=0.5)
    assert (await patched(api, {"policy": "sub_ts"}))["temperature"] is None
    await patched(api, {"solver": "adaptive"})
    changed = await patched(api, {"policy": "softmax"})
    assert (changed["solver"], changed["temperature"]) == ("shortlist", 1.0)
    await api.refused("PATCH", PATH, {"policy": "igw", "temperature": 2}, loc=["body", "temperature"])
    assert (await patched(api, {"policy": "igw", "gamma": 5}))["gamma"] == 5
    assert (await patched(api, {"policy": "sub_elim"}))["gamma"] is None


async def test_a_change_is_made_only_to_what_if_match_names(api: Api):
    await api.bandit("b", "c")
    made = await api.call("PUT", PATH, {"catalogue": "c", "policy": "sub_ts"})
    first = made.headers["etag"]
    assert first == await etag(api)
    assert first.startswith('"')
    answer = await api.call("PATCH", PATH, {"ridge": 2}, headers={"if-match": first})
    assert answer.headers["etag"] == await etag(api) != first
    before = await api.stored()
    for stale in (first, f"W/{first}", '"x"', '"", "y"', f'{(await etag(api))[:-1]}-other"'):
        options = {"headers": {"if-match": stale}}
        await api.refused("PATCH", PATH, {"ridge": 3}, status=412, code="precondition_failed", **options)
    for bad in ("x", "", '"', '"a" "b"', "1", f"{first},", '"' + "a" * 9_000 + '"'):
        await api.refused("PATCH", PATH, {"ridge": 3}, loc=["header", "if-match"], headers={"if-match": bad})
    assert await api.stored() == before
    assert (await patched(api, {"ridge": 3}, **{"if-match": f'"old", {await etag(api)}'}))["ridge"] == 3
    assert (await patched(api, {"ridge": 4}, **{"if-match": "*"}))["ridge"] == 4
    for ridge, (weak, suffix) in enumerate((("W/", ""), ("", "-gzip"), ("", "--gzip"), ("W/", ";br")), 5):
        behind_proxy = f'{weak}{(await etag(api))[:-1]}{suffix}"'
        assert (await patched(api, {"ridge": ridge}, **{"if-match": behind_proxy}))["ridge"] == ridge
    await api.ok("DELETE", PATH, status=204)
    await api.bandit("b", "c")
    await api.refused(
        "PATCH", PATH, {"ridge": 2}, status=412, code="precondition_failed", headers={"if-match": first}
    )


async def test_changes_at_the_same_time_are_all_made_in_some_order(api: Api):
    """Each changes another field; with If-Match exactly one is made."""
    await api.bandit("b", "c")
    fields = [{name: value} for name, (value, needs) in CHANGEABLE.items() if not needs and name != "policy"]
    answers = await asyncio.gather(*(api.call("PATCH", PATH, patch) for patch in fields))
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(a.json()["version"] for a in answers) == list(range(2, len(fields) + 2))
    now = await api.ok("GET", PATH)
    assert all(now[name] == value for patch in fields for name, value in patch.items() if name != "reward")
    headers = {"headers": {"if-match": await etag(api)}}
    answers = await asyncio.gather(
        *(api.call("PATCH", PATH, {"ridge": 10 + i}, **headers) for i in range(20))
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 19


async def test_put_is_of_the_bandit_as_it_is_now(api: Api):
    made_with = {"catalogue": "c", "policy": "sub_ts"}
    await api.ok("PUT", PATH, made_with, 201)
    now = await patched(api, {"ridge": 2, "delta": 0.1})
    assert await api.ok("PUT", PATH, {**made_with, "delta": 0.1}, 200) == now
    problem = await api.refused("PUT", PATH, made_with, status=409, code="conflict")
    assert "PATCH" in problem["detail"]
    assert await api.ok("GET", PATH) == now


async def test_the_versions_are_listed_newest_first(api: Api):
    await api.bandit("b", "c")
    only = await api.listed(f"{PATH}/versions")
    assert [item["version"] for item in only] == [1]
    for number in range(2, 8):
        await patched(api, {"ridge": number})
    for limit in (1, 2, 3, 7, 100):
        items = await api.listed(f"{PATH}/versions", limit=limit)
        assert [(item["version"], item["ridge"]) for item in items] == [(n, n) for n in range(7, 0, -1)]
    times = [item["since_ms"] for item in items]
    assert times == sorted(times, reverse=True)
    now = {k: v for k, v in (await api.ok("GET", PATH)).items() if k != "used"}
    assert {k: v for k, v in items[0].items() if k not in {"since_ms", "by"}} == now
    assert {item["by"] for item in items} == {None}
    await api.refused("GET", f"{PATH}/versions", params={"cursor": "?"}, loc=["query", "cursor"])
    await api.refused("GET", f"{PATH}/versions", params={"limit": 0}, loc=["query", "limit"])
    await api.refused("GET", "/v1/bandits/none/versions", status=404, code="not_found")


async def test_what_was_learned_is_kept_and_seen_by_the_new_ridge(api: Api):
    await api.bandit("b", "c", exploration=0)
    await api.observe("b", *({"id": f"o{i}", "arm": f"a{i % 4}", "value": i % 3} for i in range(20)))
    before = await api.learner("b", precision=True)
    score = (await api.choose("b"))["arms"][0]["score"]
    await patched(api, {"ridge": 100})
    after = await api.learner("b", precision=True)
    assert (after["version"], after["observations"]) == (20, 20)
    for row in range(2):
        assert after["precision"][row][row] == pytest.approx(before["precision"][row][row] + 99)
    await api.bandit("same", "c", exploration=0, ridge=100)
    await api.observe("same", *({"id": f"o{i}", "arm": f"a{i % 4}", "value": i % 3} for i in range(20)))
    chosen = await api.choose("b")
    assert chosen["arms"] == (await api.choose("same"))["arms"], "the posterior in memory was made again"
    assert chosen["arms"][0]["score"] != score
    assert after["theta"] == (await api.learner("same"))["theta"]


async def test_learners_without_rewards_follow_the_ridge(api: Api):
    """The prior that they share in memory is that of the bandit as it is now."""
    fields: Json = {"scope": "per_key", "prior": "plain", "exploration": 0.5}
    for name, more in (("b", {}), ("made", {"ridge": 50})):
        await api.bandit(name, "c", **fields, **more)
        await api.observe(name, {"id": "o", "key": "bob", "arm": "a1", "value": 1.0})
        await api.choose(name, key="new", seed=1)
    await patched(api, {"ridge": 50, "exploration": 0})
    await api.ok("PATCH", "/v1/bandits/made", {"exploration": 0})
    for key in ("new", "bob"):
        arms = [(await api.choose(name, key=key))["arms"] for name in ("b", "made")]
        assert arms[0] == arms[1]


async def test_an_event_asked_again_waits_as_its_version_did(api: Api):
    await api.bandit("b", "c")
    first = await api.choose("b", event_id="e")
    await patched(api, {"reward": {"wait_s": 3600, "default": 0}})
    again = await api.choose("b", event_id="e")
    assert again == first
    assert first["bandit_version"] == 1
    keys = [key async for key in api.store.scan_iter(match="shortlist3:*:decisions")]
    assert keys == []
    await api.choose("b", event_id="other")
    waits = [key async for key in api.store.scan_iter(match="shortlist3:*:decisions")]
    assert len(waits) == 1


async def test_versions_survive_a_restart_and_go_with_the_bandit(store_url: str, tmp_path: Path):
    async with running(store_url, tmp_path / "1") as api:
        await api.catalogue("c", {f"a{i}": [1.0, float(i)] for i in range(4)})
        await api.bandit("b", "c", reward={"max": 1})
        token = (await api.choose("b"))["decision"]
        await patched(api, {"reward": {"max": 0.5}})
        newer = (await api.choose("b"))["decision"]
        listed = await api.listed(f"{PATH}/versions")
    async with running(store_url, tmp_path / "2", empty=False) as api:
        receipt = await api.reward({"decision": token, "value": 1.0}, {"decision": newer, "value": 1.0})
        assert receipt["accepted"] == 1
        assert receipt["rejected"] == [{"index": 1, "code": "out_of_range"}]
        assert await api.listed(f"{PATH}/versions") == listed
        await api.ok("DELETE", PATH, status=204)
        assert not [key async for key in api.store.scan_iter(match="shortlist3:*versions*")]
        assert (await api.reward({"decision": token, "value": 1.0}))["rejected"][0][
            "code"
        ] == "unknown_bandit"
