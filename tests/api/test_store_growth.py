"""What requests leave in the store is bounded: then they are refused, with the reason, and others go on."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from api_client import Api, assert_problem, running
from app.storage.embedded.server import EmbeddedServer
from app.storage.redis_client import RedisClient
from app.storage.types import KINDS

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

MB = 1 << 20
BOUNDED = {f"max_{kind}_mb": 1 for kind in KINDS}


@pytest.fixture
async def bounded_api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """An application that may hold a megabyte of everything."""
    async with running(store_url, tmp_path, **BOUNDED) as api:
        await api.catalogue("c", {f"arm-{n}": [1.0, n] for n in range(200)})
        yield api


async def ask(api: Api, path: str, body: Any) -> httpx.Response:
    """An answer that may be 503."""
    return await api.http.post(path, json=body)


def assert_full(answer: httpx.Response, setting: str) -> None:
    document = assert_problem(answer, 503, "store_full")
    assert setting in document["detail"]
    assert answer.headers["retry-after"] == "60"


async def held(api: Api, kind: str) -> tuple[float, float]:
    """What is held and its bound, as /metrics says."""
    lines = (await api.call("GET", "/metrics")).text.splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    names = ("shortlist_held_bytes", "shortlist_held_most_bytes")
    now, most = (float(found[f'{name}{{kind="{kind}"}}']) for name in names)
    return now, most


@pytest.mark.rest
async def test_history_leaves_a_quarter_of_the_dedupe_keys_to_rewards(bounded_api: Api) -> None:
    await bounded_api.bandit("b", "c")
    choices = await bounded_api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": [{}] * 500})
    for batch in range(20):
        items = [{"id": f"{batch}-{n}", "arm": "arm-1", "value": 1} for n in range(500)]
        answer = await ask(bounded_api, "/v1/bandits/b/observations", {"observations": items})
        if answer.status_code >= 300:
            break
    assert_full(answer, "SHORTLIST_MAX_DEDUPE_MB")
    now, most = await held(bounded_api, "dedupe")
    assert most / 2 < now <= most * 3 / 4
    receipt = await bounded_api.reward(
        *({"decision": each["decision"], "value": 1} for each in choices["results"])
    )
    assert receipt["accepted"] == 500, "what is decided here is learned though history is refused"


async def test_choices_with_an_event_id_are_refused_when_too_many_are_kept(bounded_api: Api) -> None:
    await bounded_api.bandit("b", "c", scope="per_key")
    kept = await bounded_api.choose("b", key="ann", event_id="kept", k=200)
    path = "/v1/bandits/b/choose/batch"
    batch = 0
    while batch < 100:
        requests = [{"key": f"k{n}", "k": 200, "event_id": f"e{batch}"} for n in range(50)]
        if (answer := await ask(bounded_api, path, {"requests": requests})).status_code != 200:
            break
        batch += 1
    assert batch > 2
    assert_full(answer, "SHORTLIST_MAX_EVENTS_MB")
    now, most = await held(bounded_api, "events")
    assert MB * 9 / 10 < now <= most == MB
    for number in range(50):  # the first ones may be a little shorter than the one that was refused
        one = {"key": "bob", "k": 200, "event_id": f"new{number}"}
        if (answer := await ask(bounded_api, "/v1/bandits/b/choose", one)).status_code != 200:
            break
    assert_full(answer, "SHORTLIST_MAX_EVENTS_MB")
    assert await bounded_api.choose("b", key="ann", event_id="kept", k=200) == kept, (
        "what was promised is kept"
    )
    choice = await bounded_api.choose("b", key="bob")
    assert (await bounded_api.reward({"decision": choice["decision"], "value": 1}))["accepted"] == 1
    assert (
        await bounded_api.reward({"decision": kept["decision"], "arm": kept["arms"][0]["id"], "value": 1})
    )["accepted"] == 1


@pytest.mark.rest
async def test_decisions_that_wait_are_bounded_and_rewards_go_on(bounded_api: Api) -> None:
    await bounded_api.bandit("waits", "c", reward={"wait_s": 3_600})
    await bounded_api.bandit("b", "c")
    first = await bounded_api.choose("waits", k=200)
    for _ in range(200):
        answer = await ask(bounded_api, "/v1/bandits/waits/choose", {"k": 200})
        if answer.status_code != 200:
            break
    assert_full(answer, "SHORTLIST_MAX_WAITING_MB")
    now, most = await held(bounded_api, "waiting")
    assert MB * 8 / 10 < now <= most == MB
    item = {"decision": first["decision"], "arm": first["arms"][3]["id"], "value": 1}
    assert (await bounded_api.reward(item))["accepted"] == 1
    await bounded_api.choose("b")


@pytest.mark.rest
async def test_activations_are_bounded(bounded_api: Api) -> None:
    await bounded_api.bandit("b", "c")
    active: list[str] = []
    for _ in range(20):
        requests = [{"activate": False}] * 1_000
        choices = await bounded_api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": requests})
        tokens = [choice["decision"] for choice in choices["results"]]
        answer = await ask(bounded_api, "/v1/decisions/activate", {"decisions": tokens})
        if answer.status_code != 200:
            break
        assert answer.json()["activated"] == 1_000
        active += tokens
    assert_full(answer, "SHORTLIST_MAX_ACTIVATIONS_MB")
    again = await bounded_api.ok("POST", "/v1/decisions/activate", {"decisions": active[:1_000]})
    assert again["duplicate"] == 1_000
    assert (await bounded_api.reward({"decision": active[0], "value": 1}))["accepted"] == 1


@pytest.mark.rest
async def test_dedupe_keys_of_rewards_and_observations_are_bounded(bounded_api: Api) -> None:
    await bounded_api.bandit("b", "c", reward={"aggregate": "sum"})
    await bounded_api.bandit("per-key", "c", scope="per_key")
    first = {"id": "first", "key": "ann", "arm": "arm-1", "value": 1}
    await bounded_api.observe("per-key", first)
    sent: list[dict[str, Any]] = []
    for _ in range(40):
        choices = await bounded_api.ok("POST", "/v1/bandits/b/choose/batch", {"requests": [{}] * 250})
        items = [
            {"decision": choice["decision"], "value": 1, "reward_id": "click"}
            for choice in choices["results"]
        ]
        answer = await ask(bounded_api, "/v1/rewards", {"rewards": items})
        if answer.status_code >= 300:
            break
        assert answer.json()["accepted"] == 250
        sent += items
    assert len(sent) >= 1_000, answer.text[:500]
    assert_full(answer, "SHORTLIST_MAX_DEDUPE_MB")
    now, most = await held(bounded_api, "dedupe")
    assert MB * 7 / 10 < now <= most == MB
    for _ in range(2):
        receipt = (await ask(bounded_api, "/v1/rewards", {"rewards": sent[:1_000]})).json()
        assert (receipt["accepted"], receipt["duplicate"]) == (0, 1_000)
    for batch in range(20):
        observed = [{**first, "id": f"{batch}-{n}"} for n in range(500)]
        answer = await ask(bounded_api, "/v1/bandits/per-key/observations", {"observations": observed})
        if answer.status_code >= 300:
            break
    assert_full(answer, "SHORTLIST_MAX_DEDUPE_MB")
    assert (await bounded_api.observe("per-key", first))["duplicate"] == 1
    learner = await bounded_api.ok("GET", "/v1/bandits/b/learners/_global")
    assert learner["observations"] == len(sent), "what was refused was not learned"
    await bounded_api.choose("b", event_id="goes-on")


@pytest.mark.rest
async def test_campaigns_are_bounded_and_go_on_when_others_are_deleted(bounded_api: Api) -> None:
    def body(number: int) -> dict[str, Any]:
        arms = [f"arm-{n}" for n in range(100)]
        return {"id": f"s{number}", "arms": arms, "k": 2, "noise_std": 1, "epsilon": 0.5, "delta": 0.1}

    for number in range(200):
        answer = await bounded_api.call("POST", "/v1/slates", body(number))
        if answer.status_code != 201:
            break
    document = assert_problem(answer, 429, "quota_reached")
    assert "SHORTLIST_MAX_CAMPAIGNS_MB" in document["detail"]
    assert number > 20
    now, most = await held(bounded_api, "campaigns")
    assert MB * 9 / 10 < now <= most == MB
    assert (await bounded_api.call("POST", "/v1/slates", body(0))).status_code == 200
    pulls = (await bounded_api.ok("POST", "/v1/slates/s0/ask", {"count": 10}))["pulls"]
    results = [{"pull": pull["pull"], "total": 1.0} for pull in pulls]
    assert (await bounded_api.ok("POST", "/v1/slates/s0/tell", {"results": results}))["observed"] == 10
    await bounded_api.ok("DELETE", "/v1/slates/s1", status=204)
    assert (await bounded_api.call("POST", "/v1/slates", body(number))).status_code == 201


@pytest.mark.rest
async def test_counting_costs_no_further_call_to_the_store(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice for an event is two calls, a reward and a decision that waits are one, as without counting."""
    await api.catalogue("c", {"a": [1.0]})
    await api.bandit("b", "c")
    await api.bandit("waits", "c", reward={"wait_s": 60})
    token = (await api.choose("b"))["decision"]
    calls: list[str] = []
    script, command = RedisClient.script, RedisClient.command

    async def run(self: RedisClient, name: str, *arguments: Any, **how: Any) -> Any:
        calls.append(name)
        return await script(self, name, *arguments, **how)

    async def ask(self: RedisClient, *words: Any) -> Any:
        calls.append(f"{words[0]} {words[1]}" if len(words) > 1 else words[0])
        return await command(self, *words)

    monkeypatch.setattr(RedisClient, "script", run)
    monkeypatch.setattr(RedisClient, "command", ask)

    def ours() -> list[str]:
        written = {"put_event", "log_decision", "activate", "append_rewards"}
        found = [re.sub(r" .*:(event):.*", r" \1", call) for call in calls]
        calls.clear()
        return [call for call in found if call in written or call == "GET event"]

    await api.choose("b", event_id="e")
    assert ours() == ["GET event", "put_event"]
    await api.choose("b", event_id="e")
    assert ours() == ["GET event"]
    await api.choose("waits")
    assert ours() == ["log_decision"]
    await api.reward({"decision": token, "value": 1}, wait=False)
    assert ours() == ["append_rewards"]


@pytest.mark.rest
async def test_a_store_without_memory_refuses_writes_with_the_reason(tmp_path: Path) -> None:
    """Every kind of write; reading and choosing go on, and afterwards everything does."""
    with EmbeddedServer(tmp_path / "store") as server:
        async with running(server.url, tmp_path / "service") as api, Redis.from_url(server.url) as store:
            await api.catalogue("c", {"a": [1.0], "b": [2.0]})
            await api.bandit("b", "c")
            await api.bandit("waits", "c", reward={"wait_s": 60})
            token = (await api.choose("b"))["decision"]
            hidden = (await api.choose("b", activate=False))["decision"]
            before = await api.stored()
            await store.config_set("maxmemory", 1)
            seen = {"id": "o", "arm": "a", "value": 1}
            slates = {"id": "s", "arms": ["a", "b"], "k": 1, "noise_std": 1, "epsilon": 0.5, "delta": 0.1}
            writes: list[tuple[str, str, Any]] = [
                ("POST", "/v1/rewards", {"rewards": [{"decision": token, "value": 1}]}),
                ("POST", "/v1/bandits/b/observations", {"observations": [seen]}),
                ("POST", "/v1/bandits/b/choose", {"event_id": "e"}),
                ("POST", "/v1/bandits/waits/choose", {}),
                ("POST", "/v1/decisions/activate", {"decisions": [hidden]}),
                ("PUT", "/v1/catalogues/d", {"dim": 1}),
                ("PUT", "/v1/catalogues/c/arms", {"arms": [{"id": "x", "features": [3.0]}]}),
                ("PUT", "/v1/bandits/d", {"catalogue": "c", "policy": "sub_ts"}),
                ("POST", "/v1/slates", slates),
            ]
            for method, path, body in writes:
                answer = await api.http.request(method, path, json=body)
                document = assert_problem(answer, 503, "unavailable")
                assert "out of memory" in document["detail"], path
                assert "maxmemory" in document["detail"]
                assert answer.headers["retry-after"] == "1"
            await api.choose("b")
            await api.ok("GET", "/v1/bandits/b")
            await store.config_set("maxmemory", 0)
            assert await api.stored() == before
            for method, path, body in writes:
                answer = await api.call(method, path, body)
                assert answer.status_code < 300, answer.text


@pytest.mark.rest
async def test_made_up_keys_do_not_fill_the_store_with_what_they_have_had(bounded_api: Api) -> None:
    await bounded_api.bandit("feed", "c", scope="per_key", repeats={"most": 1, "within_s": 366 * 86_400})
    had = {arm["id"] for arm in (await bounded_api.choose("feed", key="ann", k=20))["arms"]}
    path, unlimited = "/v1/bandits/feed/choose/batch", 'shortlist_unlimited_repeats_total{counts="shown"}'
    for batch in range(25):
        requests = [{"key": f"{batch}-{n}", "k": 200} for n in range(20)]
        assert (await ask(bounded_api, path, {"requests": requests})).status_code == 200
    now, most = await held(bounded_api, "repeats")
    # Eleven sixteenths, and what other partitions were not known to hold while a look was under way.
    assert MB / 2 < now <= MB * 12 / 16 <= most == MB
    keys = [key async for key in bounded_api.store.scan_iter("*:had:*")]
    taken = sum([await bounded_api.store.memory_usage(key, samples=0) for key in keys])
    assert taken <= now, "of 500 keys with 200 arms each, which would take 10 MB"
    lines = (await bounded_api.call("GET", "/metrics")).text.splitlines()
    counts = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(unlimited)]
    assert counts == [500 + 1 - len(keys)]
    for _ in range(2):
        again = await bounded_api.choose("feed", key="new", k=200)
        assert len(again["arms"]) == 200, "new keys are not limited, and not refused"
    await bounded_api.refused("POST", "/v1/bandits/feed/choose", {"key": "0-0"}, status=409, code="no_arms")
    shown = {arm["id"] for arm in (await bounded_api.choose("feed", key="ann", k=20))["arms"]}
    assert len(shown) == 20
    assert not shown & had, "who has had something stays limited"
    found = (await bounded_api.ok("GET", "/v1/status"))["findings"]
    texts = [each["text"] for each in found if each["name"] == "space"]
    assert len(texts) == 1
    assert "SHORTLIST_MAX_REPEATS_MB" in texts[0]
    assert "not limited" in texts[0]


@pytest.mark.slow
async def test_what_made_up_keys_are_rewarded_for_is_bounded_too(store_url: str, tmp_path: Path) -> None:
    """Repeats that count rewards: new keys beyond the bound are not limited, others stay so."""
    async with running(store_url, tmp_path, max_repeats_mb=1) as api:
        await api.catalogue("c", {f"arm-{n}": [1.0, n] for n in range(200)})
        rule = {"most": 1, "within_s": 366 * 86_400, "counts": "rewarded"}
        await api.bandit("feed", "c", scope="per_key", repeats=rule)
        for key in range(40):
            choice = await api.choose("feed", key=f"k{key}", k=200)
            decision = choice["decision"]
            rewards = [{"decision": decision, "arm": arm["id"], "value": 1} for arm in choice["arms"]]
            answer = await api.reward(*rewards, wait=key == 39)
            assert answer["accepted"] == 200, "rewards are learned from, whatever is remembered"
        now, most = await held(api, "repeats")
        assert MB / 2 < now <= most == MB
        lines = (await api.call("GET", "/metrics")).text.splitlines()
        name = 'shortlist_unlimited_repeats_total{counts="rewarded"}'
        assert sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)) > 0
        assert len((await api.choose("feed", key="k39", k=200))["arms"]) == 200, "nothing is remembered of it"
        await api.refused("POST", "/v1/bandits/feed/choose", {"key": "k0"}, status=409, code="no_arms")
        findings = (await api.ok("GET", "/v1/status"))["findings"]
        assert any("SHORTLIST_MAX_REPEATS_MB" in each["text"] for each in findings)
