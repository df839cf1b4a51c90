"""Deleting a visitor of a global bandit: what names them goes, and nothing of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_client import Api, Json, running
from app.api.api_keys import new_key
from app.rewards.tokens import decision_of, raw_of
from shortlist_client import visitor_pass

pytestmark = pytest.mark.anyio

WEB, WEB_ENTRY = new_key("web", ["choose", "reward"], {"visitors": "3600"})
ADMIN, ADMIN_ENTRY = new_key("admin", ["admin"])
DAY = 86_400
PATH = "/v1/bandits/all/visitors"


@pytest.fixture
async def public(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path, api_keys=f"{WEB_ENTRY} {ADMIN_ENTRY}") as api:
        api.http.headers.update({"authorization": f"Bearer {ADMIN}"})
        await api.catalogue("c", {f"a{n}": [1.0 + n / 10, 1.0] for n in range(8)})
        repeats = {"most": 1, "within_s": DAY}
        await api.bandit("all", "c", scope="global", repeats=repeats, log={})
        yield api


def of(visitor: str) -> dict[str, Any]:
    return {"headers": {"authorization": f"Bearer {visitor_pass(WEB, visitor=visitor)}"}}


async def choose(api: Api, visitor: str, event: str, *, with_pass: bool) -> Json:
    body: Json = {"event_id": event} if with_pass else {"event_id": event, "visitor": visitor}
    found: Json = await api.ok("POST", "/v1/bandits/all/choose", body, **(of(visitor) if with_pass else {}))
    return found


async def visitors_of_rows(api: Api) -> list[str | None]:
    rows = (await api.ok("GET", "/v1/bandits/all/log"))["items"]
    return sorted(str(decision_of(raw_of(row["decision"])).visitor) for row in rows)


async def had(api: Api, visitor: str) -> int:
    return len((await api.ok("GET", f"/v1/bandits/all/learners/{visitor}/exposures"))["items"])


async def names_in_store(api: Api, name: str) -> list[str]:
    """Keys that name somebody, and members of the sets that list them."""
    found = []
    for key, value in (await api.stored()).items():
        found += [str(part) for part in (key, value) if name in str(part)]
    return found


@pytest.mark.parametrize("with_pass", [True, False])
async def test_rows_exposures_and_events_of_a_visitor_go_and_no_others(public: Api, with_pass: bool):
    choices = {}
    for visitor in ("c4nary", "bob"):
        for event in ("one", "two"):
            choices[visitor, event] = await choose(public, visitor, f"{visitor}-{event}", with_pass=with_pass)
    rewards = [{"decision": each["decision"], "value": 1.0} for each in choices.values()]
    await public.ok("POST", "/v1/rewards?wait=applied", {"rewards": rewards}, status=200)
    assert await visitors_of_rows(public) == ["bob", "bob", "c4nary", "c4nary"]
    learned = await public.ok("GET", "/v1/bandits/all/learners/_global")
    for _ in range(2):
        await public.ok("DELETE", f"{PATH}/c4nary", status=204)
        assert await visitors_of_rows(public) == ["bob", "bob"]
        assert (await had(public, "c4nary"), await had(public, "bob")) == (0, 2)
    assert await names_in_store(public, "c4nary") == []
    # The event of another visitor is answered as before, theirs is a new choice; what was learned stays.
    again = await choose(public, "bob", "bob-one", with_pass=with_pass)
    assert again["decision"] == choices["bob", "one"]["decision"]
    fresh = await choose(public, "c4nary", "c4nary-one", with_pass=with_pass)
    assert fresh["decision"] != choices["c4nary", "one"]["decision"]
    assert await public.ok("GET", "/v1/bandits/all/learners/_global") == learned


async def test_what_another_process_remembers_of_a_visitor_refuses_nothing(
    store_url: str, public: Api, tmp_path: Path
):
    async with running(store_url, tmp_path / "2", empty=False) as other:
        asked = "POST", "/v1/bandits/all/choose", {"visitor": "ann", "k": 8}
        assert len((await other.ok(*asked))["arms"]) == 8
        await other.refused(*asked, status=409, code="no_arms")
        await public.ok("DELETE", f"{PATH}/ann", status=204)
        assert len((await other.ok(*asked))["arms"]) == 8


async def test_choices_with_a_pass_go_where_no_visitor_is_counted(public: Api):
    """Without caps the pass alone names the visitor of a choice."""
    await public.bandit("plain", "c", scope="global", log={})

    async def choose_again(visitor: str) -> str:
        answer = await public.ok("POST", "/v1/bandits/plain/choose", {"event_id": "e"}, **of(visitor))
        return str(answer["decision"])

    ann, bob = await choose_again("ann"), await choose_again("bob")
    await public.ok("DELETE", "/v1/bandits/plain/visitors/ann", status=204)
    assert await choose_again("ann") != ann
    assert await choose_again("bob") == bob


async def test_who_may_and_of_what(public: Api):
    await public.refused("DELETE", f"{PATH}/ann", status=403, code="forbidden", **of("ann"))
    await public.bandit("own", "c", scope="per_key")
    await public.refused("DELETE", "/v1/bandits/own/visitors/ann", loc=["path", "bandit"])
    await public.refused("DELETE", "/v1/bandits/none/visitors/ann", status=404, code="not_found")
