"""A batch with ``partial``: each request is answered by itself, and what is refused leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest

from api_client import Api, Json

pytestmark = pytest.mark.anyio

PATH = "/v1/bandits/b/choose/batch"
REFUSED: list[tuple[Json, str, list[Any]]] = [
    ({"key": "ann", "filter": {"kind": "z"}}, "no_arms", []),
    ({}, "invalid", ["key"]),
    ({"key": "ann", "context": [1.0]}, "invalid", ["context"]),
    ({"key": "ann", "visitor": "bob"}, "invalid", ["visitor"]),
    ({"key": "ann", "baseline": "none"}, "not_found", ["baseline"]),
    ({"key": "ann", "filter": {"kind": {"$what": 1}}}, "invalid", ["filter", "kind", "?"]),
    ({"key": "ann", "rules": {"pin": [{"arm": "gone", "place": 1}]}}, "invalid", ["rules", "pin", 0, "arm"]),
]


async def build(api: Api, **bandit: Any) -> None:
    await api.catalogue("c", {}, dim=2)
    arms = [{"id": name, "features": [1.0, n], "metadata": {"kind": name}} for n, name in enumerate("abc")]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms})
    await api.bandit("b", "c", scope="per_key", **bandit)


async def test_each_request_has_a_choice_or_its_problem(api: Api):
    await build(api, log={})
    requests: list[Json] = [{"key": "eve", "k": 2}]
    for request, _, _ in REFUSED:
        requests += [request, {"key": "eve", "include": ["metadata"]}]
    results = (await api.ok("POST", PATH, {"requests": requests, "partial": True}))["results"]
    assert len(results) == len(requests)
    for place, (request, code, loc) in enumerate(REFUSED):
        problem = results[1 + 2 * place]["error"]
        assert list(results[1 + 2 * place]) == ["error"]
        assert (problem["code"], problem["type"]) == (code, f"/problems/{code}"), request
        assert ["body", "requests", 1 + 2 * place, *loc] in [each["loc"] for each in problem["errors"]]
        single = await api.call("POST", "/v1/bandits/b/choose", request)
        alone = single.json()
        assert (problem["status"], problem["title"]) == (single.status_code, alone["title"])
        chosen = results[2 + 2 * place]
        assert chosen["arms"][0]["metadata"] == {"kind": chosen["arms"][0]["id"]}
    rewards = [{"decision": each["decision"], "arm": each["arms"][0]["id"], "value": 1.0}
               for each in results if "error" not in each]  # fmt: skip
    receipt = await api.ok("POST", "/v1/rewards?wait=applied", {"rewards": rewards}, status=200)
    assert receipt["accepted"] == len(REFUSED) + 1
    assert len((await api.ok("GET", "/v1/bandits/b/log"))["items"]) == len(REFUSED) + 1
    # Without it an error of one is that of all, as before; and all may be refused.
    await api.refused("POST", PATH, {"requests": requests[:2]}, status=409, code="no_arms")
    none = {"requests": [request for request, _, _ in REFUSED], "partial": True}
    assert all("error" in each for each in (await api.ok("POST", PATH, none))["results"])


async def test_a_page_of_two_bandits_shows_no_arm_twice_and_refuses_a_row_alone(api: Api):
    await build(api)
    await api.bandit("all", "c")
    rows = [{"bandit": name} for name in ("all", "none", "all", "all", "all")]
    body = {"requests": [{"bandit": "b", "key": "ann"}, *rows], "partial": True, "distinct": True}
    results = (await api.ok("POST", "/v1/choose/batch", body))["results"]
    codes = [each.get("error", {}).get("code") for each in results]
    assert codes == [None, None, "not_found", None, "no_arms", "no_arms"]
    assert sorted(arm["id"] for each in results for arm in each.get("arms", ())) == ["a", "b", "c"]


async def test_what_concerns_the_whole_batch_is_refused_as_a_whole(api: Api):
    await build(api)
    good = [{"key": "ann"}]
    await api.refused("POST", PATH, {"requests": [], "partial": True}, loc=["body", "requests"])
    await api.refused("POST", PATH, {"requests": good, "partial": 1}, loc=["body", "partial"])
    for requests in (None, {}, "ann", 3):
        await api.refused("POST", PATH, {"requests": requests, "partial": True}, loc=["body", "requests"])
    await api.refused(
        "POST", PATH, {"requests": [{"k": 0}], "partial": True, "more": 1}, loc=["body", "more"]
    )
    await api.refused(
        "POST", PATH, {"requests": [*good, {"k": 0}], "partial": False}, loc=["body", "requests", 1, "k"]
    )
    broken = await api.http.post(PATH, content=b'{"requests": [{"key": "ann"}, {"key":}], "partial": true}')
    assert broken.status_code == 422
    await api.refused(
        "POST", "/v1/bandits/none/choose/batch", {"requests": good, "partial": True},
        status=404, code="not_found",
    )  # fmt: skip


@pytest.mark.parametrize("padding", [0, 2**17], ids=["small", "large"])
async def test_a_wrong_field_is_the_error_of_its_own_request(api: Api, padding: int):
    """Also in a body that is so large that its requests are read one by one."""
    await build(api)
    wrong: list[tuple[Any, list[str]]] = [
        ({"k": 0}, ["k"]),
        ({"key": "ann", "colour": 1}, ["colour"]),
        ({"key": 7}, ["key"]),
        ({"key": "a b"}, ["key"]),
        ("ann", []),
        (None, []),
        ([], []),
        ({"key": "ann", "exclude": "a"}, ["exclude"]),
        ({"key": "ann", "filter": {"kind": {"$near": 1}}}, ["filter"]),
    ]
    good = {"key": "ann", "exclude": ["x"] * (padding // 1000)}
    requests = [request for bad, _ in wrong for request in (bad, good)] + [good] * (padding // 1000)
    results = (await api.ok("POST", PATH, {"requests": requests, "partial": True}))["results"]
    assert len(results) == len(requests)
    for place, (_, loc) in enumerate(wrong):
        problem = results[2 * place]["error"]
        assert (problem["status"], problem["code"]) == (422, "invalid")
        named = problem["errors"][0]["loc"]
        assert named[: 3 + len(loc)] == ["body", "requests", 2 * place, *loc], named
        assert results[2 * place + 1]["arms"]
    assert all(result["arms"] for result in results[2 * len(wrong) :])
    alone = (await api.ok("POST", PATH, {"requests": [{"k": 0}], "partial": True}))["results"]
    assert alone[0]["error"]["errors"][0]["loc"] == ["body", "requests", 0, "k"]


@pytest.mark.rest
async def test_what_is_refused_counts_for_nothing_and_events_are_kept(api: Api):
    await build(api)
    await api.ok("PUT", "/v1/bandits/b/quotas/q", {"arm": "a", "most": 2, "per_s": 86_400}, status=201)
    only_a = {"key": "ann", "filter": {"kind": "a"}}
    requests = [{**only_a, "event_id": f"e{number}"} for number in range(4)]
    results = (await api.ok("POST", PATH, {"requests": requests, "partial": True}))["results"]
    assert ["error" in each for each in results] == [False, False, True, True]
    quota = await api.ok("GET", "/v1/bandits/b/quotas/q")
    assert (quota["used"], quota["left"]) == (2, 0)
    again = (await api.ok("POST", PATH, {"requests": requests, "partial": True}))["results"]
    assert again[:2] == results[:2]
    assert ["error" in each for each in again] == [False, False, True, True]
