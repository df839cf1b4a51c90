"""Rewards and activations that name the event of a choice, in place of its token."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_client import Api, Json, running
from app.api.api_keys import new_key
from app.rewards.events import MAX_TOKENS_CHARS, READ_TOGETHER
from app.storage import redis_keys
from app.storage.types import LearnerId
from shortlist_client import visitor_pass

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

WEB, WEB_ENTRY = new_key("web", ["choose", "reward"], {"bandits": "own,all", "visitors": "3600"})
ADMIN, ADMIN_ENTRY = new_key("admin", ["admin"])
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
async def api(shared_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    folder: Path = tmp_path_factory.mktemp("events")
    keys = f"{WEB_ENTRY} {ADMIN_ENTRY}"
    async with running(shared_store_url, folder, api_keys=keys) as api:
        api.http.headers.update(bearer(ADMIN))
        await api.catalogue("c", {f"a{n}": [1.0, float(n)] for n in range(9)})
        await api.bandit("all", "c", log={})
        await api.bandit("own", "c", scope="per_key")
        await api.bandit("sums", "c", reward={"aggregate": "sum"})
        await api.bandit("signals", "c", signals={"click": {}, "order": {"weight": 5}})
        await api.bandit("hidden", "c")
        yield api


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def of(visitor: str) -> dict[str, str]:
    return bearer(visitor_pass(WEB, visitor=visitor))


def new_event() -> str:
    """Of no other test: they share a store."""
    return f"e{next(NUMBERS)}"


async def chosen(api: Api, bandit: str, headers: dict[str, str] | None = None, **body: Any) -> Json:
    """A choice for an event of its own, and the name of that."""
    event = new_event()
    path = f"/v1/bandits/{bandit}/choose"
    choice: Json = await api.ok("POST", path, {"event_id": event, **body}, headers=headers or bearer(ADMIN))
    return {"event": event, **choice}


async def rewarded(api: Api, *items: Json, headers: dict[str, str] | None = None) -> Json:
    body = {"rewards": [{"value": 1, **item} for item in items]}
    receipt: Json = await api.ok("POST", "/v1/rewards?wait=applied", body, headers=headers or bearer(ADMIN))
    return receipt


async def unknown_events(api: Api) -> float:
    """How many rewards the metrics say were refused for their event."""
    text = (await api.call("GET", "/metrics")).text
    found = re.search(r'^shortlist_rewards_total\{outcome="unknown_event"\} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def accepted(count: int = 1, duplicate: int = 0) -> Json:
    return {"accepted": count, "duplicate": duplicate, "rejected": []}


def rejected(code: str) -> Json:
    return {"accepted": 0, "duplicate": 0, "rejected": [{"index": 0, "code": code}]}


async def test_a_reward_by_event_is_of_the_first_arm_unless_it_names_another(api: Api):
    choice = await chosen(api, "all", k=3)
    event = {"bandit": "all", "event_id": choice["event"]}
    ids = [arm["id"] for arm in choice["arms"]]
    assert await rewarded(api, event) == accepted()
    assert await rewarded(api, {**event, "arm": ids[2], "value": 3}) == accepted()
    assert await rewarded(api, {**event, "arm": ids[0]}) == accepted(0, 1)
    assert await rewarded(api, {**event, "arm": "nobody"}) == rejected("unknown_arm")
    row = (await api.ok("GET", "/v1/bandits/all/log?order=desc&limit=1"))["items"][0]
    assert row["decision"] == choice["decision"]
    assert {each["arm"]: each["value"] for each in row["rewards"]} == {ids[0]: 1.0, ids[2]: 3.0}


async def test_token_and_event_of_a_decision_are_one(api: Api):
    for bandit, key in (("all", {}), ("own", {"key": "ann"})):
        choices = [await chosen(api, bandit, **key) for _ in range(4)]
        by_event = [{"bandit": bandit, "event_id": choice["event"], **key} for choice in choices]
        by_token = [{"decision": choice["decision"]} for choice in choices]
        assert await rewarded(api, by_event[0], by_token[1]) == accepted(2)
        assert await rewarded(api, by_token[0], by_event[1]) == accepted(0, 2)
        assert await rewarded(api, by_event[2], by_token[2], by_token[3], by_event[3]) == accepted(2, 2)
        assert await rewarded(api, *by_event, *by_event, *by_token) == accepted(0, 12)


async def test_rewards_that_are_summed_are_told_apart_by_their_id(api: Api):
    choice = await chosen(api, "sums")
    event, token = {"bandit": "sums", "event_id": choice["event"]}, {"decision": choice["decision"]}
    assert await rewarded(api, {**event, "reward_id": "r1"}, {**token, "reward_id": "r2"}) == accepted(2)
    assert await rewarded(api, {**token, "reward_id": "r1"}, {**event, "reward_id": "r2"}) == accepted(0, 2)


async def test_signals_are_named_as_by_token(api: Api):
    choice = await chosen(api, "signals")
    event = {"bandit": "signals", "event_id": choice["event"]}
    assert await rewarded(api, {**event, "signal": "click"}, {**event, "signal": "order"}) == accepted(2)
    assert await rewarded(api, {"decision": choice["decision"], "signal": "order"}) == accepted(0, 1)
    body = {"rewards": [{**event, "value": 1}]}
    await api.refused("POST", "/v1/rewards", body, loc=["body", "rewards", 0, "signal"])


async def test_an_event_of_another_key_bandit_or_time_is_unknown(api: Api):
    before = await unknown_events(api)
    event = (await chosen(api, "own", key="ann"))["event"]
    assert await rewarded(api, {"bandit": "own", "event_id": event, "key": "bob"}) == rejected(
        "unknown_event"
    )
    assert await rewarded(api, {"bandit": "all", "event_id": event}) == rejected("unknown_event")
    assert await rewarded(api, {"bandit": "all", "event_id": new_event()}) == rejected("unknown_event")
    assert await rewarded(api, {"bandit": "nobody", "event_id": event}) == rejected("unknown_bandit")
    learner = LearnerId((await api.app.service.bandits.get("own")).uid, "ann")
    name = redis_keys.event(learner.partition(api.app.service.store.partitions), learner, event)
    assert await api.store.delete(name) == 1, "as it expires"
    assert await rewarded(api, {"bandit": "own", "event_id": event, "key": "ann"}) == rejected(
        "unknown_event"
    )
    assert await unknown_events(api) - before == 4


async def test_an_event_is_kept_as_long_as_its_token(api: Api):
    event = (await chosen(api, "all"))["event"]
    learner = LearnerId((await api.app.service.bandits.get("all")).uid, "_global")
    name = redis_keys.event(learner.partition(api.app.service.store.partitions), learner, event)
    left_ms = await api.store.pttl(name)
    assert 86_400_000 - 600_000 < left_ms <= 86_400_000


async def test_what_goes_with_learner_and_bandit_is_unknown(api: Api):
    await api.bandit("gone", "c", scope="per_key")
    event = {"bandit": "gone", "event_id": (await chosen(api, "gone", key="ann"))["event"], "key": "ann"}
    await api.ok("DELETE", "/v1/bandits/gone/learners/ann", status=204)
    assert await rewarded(api, event) == rejected("unknown_event")
    event["event_id"] = (await chosen(api, "gone", key="ann"))["event"]
    await api.ok("DELETE", "/v1/bandits/gone", status=204)
    assert await rewarded(api, event) == rejected("unknown_bandit")
    await api.bandit("gone", "c", scope="per_key")
    assert await rewarded(api, event) == rejected("unknown_event")


@pytest.mark.parametrize("bandit", ["own", "all"])
async def test_a_visitor_rewards_no_event_of_another(api: Api, bandit: str):
    ann, bob = of("ann"), of("bob")
    mine = await chosen(api, bandit, ann)
    named = {"bandit": bandit, "event_id": mine["event"]}
    # chosen with the key for the same learner, by an event of the same name
    key = {"key": "ann"} if bandit == "own" else {}
    body = {"event_id": mine["event"], **key}
    await api.ok("POST", f"/v1/bandits/{bandit}/choose", body, headers=bearer(WEB))
    unknown = rejected("unknown_event")
    assert await rewarded(api, named, headers=bob) == unknown
    # an event of his own by the same name: what he says of another visitor is not taken to mean it
    await api.ok("POST", f"/v1/bandits/{bandit}/choose", {"event_id": mine["event"]}, headers=bob)
    for stolen in ({"visitor": "ann"}, {"key": "ann"}, {"visitor": "ann", "key": "ann"}):
        assert await rewarded(api, {**named, **stolen}, headers=bob) == unknown
        activation = {"decisions": [{**named, **stolen}]}
        outcome = await api.ok("POST", "/v1/decisions/activate", activation, headers=bob)
        assert outcome == {"activated": 0, **{name: unknown[name] for name in ("duplicate", "rejected")}}
    assert await rewarded(api, {**named, **key, "visitor": "eve"}, headers=bearer(WEB)) == unknown
    assert await rewarded(api, named, headers=bob) == accepted(), "his own"
    assert await rewarded(api, named, headers=ann) == accepted()
    assert await rewarded(api, {**named, "visitor": "ann"}, headers=ann) == accepted(0, 1)
    assert await rewarded(api, {"decision": mine["decision"]}, headers=ann) == accepted(0, 1)
    # the key names the visitor, or means the event of its own
    assert await rewarded(api, {**named, **key, "visitor": "ann"}, headers=bearer(WEB)) == accepted(0, 1)
    assert await rewarded(api, {**named, **key}, headers=bearer(WEB)) == accepted()


async def test_bandits_that_are_not_of_the_key_do_not_exist(api: Api):
    event = (await chosen(api, "hidden"))["event"]
    for name in ("hidden", "nobody"):
        named = {"bandit": name, "event_id": event}
        assert await rewarded(api, named, headers=bearer(WEB)) == rejected("unknown_bandit")
        outcome = await api.ok("POST", "/v1/decisions/activate", {"decisions": [named]}, headers=bearer(WEB))
        assert outcome["rejected"] == [{"index": 0, "code": "unknown_bandit"}]


WRONG: list[tuple[Json, str]] = [
    ({}, "decision"),
    ({"decision": "t", "event_id": "e", "bandit": "all"}, "decision"),
    ({"decision": "t", "bandit": "all"}, "bandit"),
    ({"decision": "t", "key": "ann"}, "key"),
    ({"decision": "t", "visitor": "ann"}, "visitor"),
    ({"decision": None}, "decision"),
    ({"decision": ""}, "decision"),
    ({"bandit": "all"}, "decision"),
    ({"key": "ann"}, "decision"),
    ({"event_id": "e"}, "bandit"),
    ({"event_id": "e", "bandit": None}, "bandit"),
    ({"event_id": "", "bandit": "all"}, "event_id"),
    ({"event_id": "a/b", "bandit": "all"}, "event_id"),
    ({"event_id": 7, "bandit": "all"}, "event_id"),
    ({"event_id": "e", "bandit": "*"}, "bandit"),
    ({"event_id": "e", "bandit": "all", "key": "ann"}, "key"),
    ({"event_id": "e", "bandit": "own"}, "key"),
    ({"event_id": "e", "bandit": "own", "key": ""}, "key"),
    ({"event_id": "e", "bandit": "own", "key": "ann", "visitor": "ann/x"}, "visitor"),
    ({"event_id": "e", "bandit": "all", "event": "e"}, "event"),
]


@pytest.mark.parametrize(("item", "field"), WRONG)
async def test_what_is_wrong_is_named_and_nothing_counts(api: Api, item: Json, field: str):
    good = {"bandit": "all", "event_id": (await chosen(api, "all"))["event"]}
    body = {"rewards": [{"value": 1, **good}, {"value": 1, **item}]}
    await api.refused("POST", "/v1/rewards", body, loc=["body", "rewards", 1, field])
    decisions = {"decisions": [good, item]}
    await api.refused("POST", "/v1/decisions/activate", decisions, loc=["body", "decisions", 1, field])
    assert await rewarded(api, good) == accepted(), "it did not count before"


async def test_a_deferred_choice_is_activated_by_its_event(api: Api):
    choices = [await chosen(api, "own", key="ann", activate=False) for _ in range(3)]
    events = [{"bandit": "own", "event_id": choice["event"], "key": "ann"} for choice in choices]
    assert await rewarded(api, events[0]) == rejected("not_activated")
    body = {"decisions": [events[0], choices[1]["decision"], {"decision": choices[2]["decision"]}]}
    outcome = await api.ok("POST", "/v1/activations", body)
    assert outcome == {"activated": 3, "duplicate": 0, "rejected": []}
    body = {"decisions": [choices[0]["decision"], *events[1:], {**events[0], "key": "bob"}]}
    outcome = await api.ok("POST", "/v1/decisions/activate", body)
    unknown = [{"index": 3, "code": "unknown_event"}]
    assert outcome == {"activated": 0, "duplicate": 3, "rejected": unknown}
    assert await rewarded(api, *events) == accepted(3)


async def test_many_events_are_read_together(api: Api, monkeypatch: pytest.MonkeyPatch):
    """One command a partition, whatever the keys: all at once, so one round trip of each node."""
    requests = [{"key": f"u{n}", "event_id": f"many-{n}"} for n in range(READ_TOGETHER)]
    await api.ok("POST", "/v1/bandits/own/choose/batch", {"requests": requests})
    items = [{"bandit": "own", "value": 1, **request} for request in requests]
    redis = api.app.service.store.redis
    asked, ask = list[str](), redis.bulk

    async def counted(*command: Any) -> Any:
        asked.append(command[0])
        return await ask(*command)

    monkeypatch.setattr(redis, "bulk", counted)
    receipt = await rewarded(api, *items, *items[:100])
    assert receipt == accepted(len(items), 100)
    assert asked.count("MGET") <= api.app.service.store.partitions


async def test_what_events_bring_is_bounded(api: Api):
    """One name of a long list stands for a long token: a small body must not take all memory."""
    await api.catalogue("wide", {f"arm-of-a-long-name-{n}": [1.0, float(n)] for n in range(1_000)})
    await api.bandit("wide", "wide")
    choice = await chosen(api, "wide", k=1_000)
    named = {"bandit": "wide", "event_id": choice["event"], "value": 1}
    count = MAX_TOKENS_CHARS // len(choice["decision"]) + 1
    assert count <= 10_000
    body = {"rewards": [named] * count}
    await api.refused("POST", "/v1/rewards", body, status=413, code="too_large", loc=["body", "rewards"])
    assert await rewarded(api, named, named) == accepted(1, 1)
