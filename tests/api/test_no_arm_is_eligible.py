"""A choice for which no arm is left says which constraint left none."""

from __future__ import annotations

from typing import Any

import pytest

from api_client import Api, Json

pytestmark = pytest.mark.anyio

ARMS = ["a0", "a1", "a2"]
CHOOSE = "/v1/bandits/b/choose"


async def build(api: Api, **bandit: Any) -> None:
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    rows = [{"id": arm, "features": [1.0, n], "metadata": {"price": n}} for n, arm in enumerate(ARMS)]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    await api.bandit("b", "c", **bandit)


async def reason(api: Api, body: Json) -> str:
    document = await api.refused("POST", CHOOSE, body, status=409, code="no_arms")
    (in_batch,) = {
        (await api.refused("POST", f"{CHOOSE}/batch", batch, status=409, code="no_arms"))["detail"]
        for batch in ({"requests": [body]}, {"requests": [body, body]})
    }
    dry_run = await api.refused("POST", CHOOSE, {**body, "dry_run": True}, status=409, code="no_arms")
    detail = str(document["detail"])
    assert in_batch.endswith(detail)
    assert dry_run["detail"] == detail
    return detail.removeprefix("no arm of the catalogue is eligible: ")


async def test_the_first_constraint_that_left_no_arm_is_named(api: Api):
    await build(api, filter={"price": {"$lt": 2}})
    assert await reason(api, {"filter": {"price": {"$gt": 1}}}) == "none matches the filter"
    assert await reason(api, {"exclude": ["a0", "a1"]}) == "exclude names all that are left"
    for price in (0, 1):
        await api.ok("PUT", f"/v1/bandits/b/quotas/q{price}", {"filter": {"price": price}, "most": 1}, 201)
    assert len((await api.choose("b", k=2))["arms"]) == 2
    used_up = "all that are left have a quota that is used up, or held back by its pace"
    assert await reason(api, {}) == used_up
    assert await reason(api, {"exclude": ["a0"]}) == used_up
    assert await reason(api, {"filter": {"price": 7}}) == "none matches the filter"


@pytest.mark.rest
@pytest.mark.parametrize("by", ["arm", "price"])
async def test_a_key_that_had_all_arms_is_told_of_repeats(api: Api, by: str):
    await build(api, scope="per_key", repeats={"most": 1, "within_s": 86_400, "by": by})
    assert len((await api.choose("b", key="ann", k=3))["arms"]) == 3
    had = "all that are left were shown as often as repeats allows"
    assert await reason(api, {"key": "ann"}) == had
    assert await reason(api, {"key": "bob", "exclude": ARMS}) == "exclude names all that are left"


@pytest.mark.rest
async def test_a_catalogue_without_arms_is_told_of(api: Api):
    await api.catalogue("c", {}, dim=2)
    await api.bandit("b", "c")
    await api.ok("PUT", "/v1/bandits/as_asked", {"catalogue": "c", "policy": "sub_ts"}, 201)
    for name in ("b", "as_asked"):
        document = await api.refused("POST", f"/v1/bandits/{name}/choose", {}, status=409, code="no_arms")
        assert document["detail"] == "the catalogue has no arms"
    assert await reason(api, {"filter": {"price": 7}}) == "the catalogue has no arms"
