"""Defaults for decisions without a reward, activation, discounting, forgetting, idle learners, pools."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from api_client import EAGER_HOUSEKEEPING, Api, Json
from app.platform.metrics import Metrics
from app.platform.pauses import Pauses
from app.records.log_entries import WaitingDecision
from app.records.records import unpack
from app.storage import redis_keys
from oracle import ridge_estimate
from waiting import wait_until
from workers import housekeeping

pytestmark = [pytest.mark.anyio]

ARMS = {f"a{i}": [1.0, float(i), 0.5 * i * i] for i in range(4)}
WAIT = {"wait_s": 0.05, "default": -1.0}


@pytest.fixture
def pauses() -> Pauses:
    return EAGER_HOUSEKEEPING


@pytest.fixture
async def api(api: Api) -> Api:
    await api.catalogue("c", ARMS)
    return api


def theta(*rows: tuple[str, float], weights: list[float] | None = None) -> list[float]:
    return ridge_estimate([(ARMS[arm], value) for arm, value in rows], weights)


async def learned(api: Api, bandit: str, observations: int, key: str = "_global") -> Json:
    async def there() -> Json | None:
        learner = await api.learner(bandit, key)
        return learner if learner["observations"] == observations else None

    found = await wait_until(there, what=f"{bandit} has {observations} observations")
    assert found is not None
    return found


async def test_a_decision_without_a_reward_counts_as_the_default(api: Api):
    await api.bandit("b", "c", reward=WAIT)
    arms = [(await api.choose("b"))["arms"][0]["id"] for _ in range(3)]
    learner = await learned(api, "b", 3)
    np.testing.assert_allclose(learner["theta"], theta(*((arm, -1.0) for arm in arms)), rtol=1e-8)
    stored = await api.stored()
    assert not [key for key in stored if b":due" in key or b":decisions" in key]


async def test_a_late_reward_takes_the_place_of_the_default_exactly(api: Api):
    """An early one forestalls it, a second one is a duplicate; each arm of a slate is for itself."""
    await api.bandit("b", "c", reward={"wait_s": 3_600, "default": -1.0})
    choice = await api.choose("b", k=3)
    token, arms = choice["decision"], [item["id"] for item in choice["arms"]]
    await api.reward({"decision": token, "arm": arms[0], "value": 0.3})
    await api.due_now()
    learner = await learned(api, "b", 3)
    before = theta((arms[0], 0.3), (arms[1], -1.0), (arms[2], -1.0))
    np.testing.assert_allclose(learner["theta"], before, rtol=1e-8)
    late = {"decision": token, "arm": arms[1], "value": 0.7}
    assert (await api.reward(late, late))["duplicate"] == 1
    learner = await api.learner("b", precision=True)
    after = theta((arms[0], 0.3), (arms[1], 0.7), (arms[2], -1.0))
    np.testing.assert_allclose(learner["theta"], after, rtol=1e-8)
    assert learner["observations"] == 3
    X = np.array([ARMS[arm] for arm in arms])
    np.testing.assert_allclose(learner["precision"], np.eye(3) + X.T @ X, rtol=1e-12)


@pytest.mark.rest
async def test_a_thousand_late_rewards_leave_the_estimate_of_timely_ones(api: Api):
    await api.bandit("late", "c", reward={"wait_s": 3_600, "default": 1e6})
    await api.bandit("plain", "c")
    rows, rewards = [], []
    for number in range(300):
        choice = await api.choose("late", seed=number)
        rewards.append({"decision": choice["decision"], "value": number * 1e-3})
        rows.append((choice["arms"][0]["id"], number * 1e-3))
    await api.due_now()
    await learned(api, "late", 300)
    order = np.random.default_rng(3).permutation(300)
    await api.reward(*(rewards[i] for i in order))
    learner = await api.learner("late")
    assert learner["observations"] == 300
    np.testing.assert_allclose(learner["theta"], theta(*rows), rtol=1e-8)


@pytest.mark.rest
async def test_the_same_event_owes_one_default(api: Api):
    await api.bandit("b", "c", reward=WAIT)
    choice = await api.choose("b", event_id="e")
    await learned(api, "b", 1)
    assert await api.choose("b", event_id="e") == choice
    await nothing_due(api)
    assert (await api.learner("b"))["observations"] == 1


async def nothing_due(api: Api) -> None:
    async def idle() -> bool:
        counts = [await api.store.zcard(redis_keys.due(partition)) for partition in range(16)]
        return not any(counts)

    await wait_until(idle, what="no decision is waited for")
    await api.stored()


@pytest.mark.rest
async def test_of_two_workers_one_counts_the_default(api: Api):
    await api.bandit("b", "c", reward={"wait_s": 3_600})
    for number in range(20):
        await api.choose("b", seed=number)
    await api.due_now()
    service, now_ms = api.app.service, time.time_ns() // 1_000_000
    sweepers = [
        housekeeping.Housekeeping(service.store, service.erasure, Metrics(), wake=lambda n: None)
        for _ in range(4)
    ]
    await asyncio.gather(*(sweeper.sweep(p, now_ms) for sweeper in sweepers for p in range(16)))
    assert (await learned(api, "b", 20))["version"] == 20


async def test_a_decision_that_was_not_shown_teaches_nothing(api: Api):
    await api.bandit("b", "c", reward=WAIT)
    hidden = await api.choose("b", activate=False)
    shown = await api.choose("b", activate=False)
    tokens = [hidden["decision"], shown["decision"]]
    refused = await api.ok(
        "POST", "/v1/rewards", {"rewards": [{"decision": token, "value": 1} for token in tokens]}, 202
    )
    assert [item["code"] for item in refused["rejected"]] == ["not_activated"] * 2
    answer = await api.ok("POST", "/v1/decisions/activate", {"decisions": [tokens[1], "forged"]})
    assert answer == {"activated": 1, "duplicate": 0, "rejected": [{"index": 1, "code": "invalid_token"}]}
    await learned(api, "b", 1)  # its default: it is waited for since it was shown
    again = await api.ok("POST", "/v1/decisions/activate", {"decisions": [tokens[1]]})
    assert (again["activated"], again["duplicate"]) == (0, 1)
    await api.reward({"decision": tokens[1], "value": 0.25})
    await nothing_due(api)
    learner = await api.learner("b")
    assert learner["observations"] == 1
    np.testing.assert_allclose(learner["theta"], theta((shown["arms"][0]["id"], 0.25)), rtol=1e-8)


async def test_old_rewards_weigh_less_whatever_their_order(api: Api, monkeypatch: pytest.MonkeyPatch):
    """Theta = (ridge I + sum w x x^T)^-1 sum w r x w = 2^(-(T - t) / half-life)."""
    await api.bandit("b", "c", half_life_s=60, reward={"wait_s": 3_600, "default": 5.0})
    now = {"ns": 1_800_000_000 * 10**9}
    monkeypatch.setattr("app.serving.choosing.time.time_ns", lambda: now["ns"])
    decided = []
    for minute in range(5):
        choice = await api.choose("b", seed=minute)
        decided.append((choice["decision"], choice["arms"][0]["id"], float(minute)))
        now["ns"] += 60 * 10**9
    await api.due_now()
    await learned(api, "b", 5)
    for token, _, value in (decided[i] for i in (3, 0, 4, 2, 1)):
        await api.reward({"decision": token, "value": value})
    learner = await api.learner("b")
    weights = [2.0 ** (minute - 4) for minute in range(5)]
    expected = theta(*((arm, value) for _, arm, value in decided), weights=weights)
    np.testing.assert_allclose(learner["theta"], expected, rtol=1e-8)
    assert (learner["observations"], learner["version"]) == (5, 10)


@pytest.mark.rest
async def test_history_weighs_as_it_is_old_beside_what_was_decided_here(api: Api):
    """Theta with w = 2^(-(T - t) / half-life), t the ``at`` of an observation, in any order."""
    await api.bandit("b", "c", half_life_s=3_600)
    choice = await api.choose("b", seed=1)
    await api.reward({"decision": choice["decision"], "value": 2.0})
    now_ms = time.time_ns() // 1_000_000
    ages_h, values = [48.0, 1.0, 3.0, 0.5], [1.0, -1.0, 4.0, 3.0]
    arms = [f"a{n}" for n in range(4)]
    items = [
        {"id": f"o{n}", "arm": arms[n], "value": values[n], "at": now_ms - round(3_600_000 * age)}
        for n, age in enumerate(ages_h)
    ]
    await api.observe("b", *items[:2])
    await api.observe("b", *items[2:], {"id": "now", "arm": "a2", "value": 1.0})
    assert (await api.observe("b", *items))["duplicate"] == 4
    learner = await api.learner("b")
    weights = [1.0, *(2.0**-age for age in ages_h), 1.0]
    pairs = [(choice["arms"][0]["id"], 2.0), *zip(arms, values, strict=True), ("a2", 1.0)]
    np.testing.assert_allclose(learner["theta"], theta(*pairs, weights=weights), rtol=1e-3)
    log = "/v1/bandits/b/log"
    partitions = range((await api.ok("GET", f"{log}/terms"))["partitions"])
    pages = [await api.ok("GET", f"{log}/rewards?partition={each}") for each in partitions]
    entries = [entry for page in pages for entry in page["items"]]
    told = {each["id"]: each["decided"] for each in entries if each["kind"] == "observation"}
    assert [told[item["id"]] for item in items] == [item["at"] for item in items]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("at", "words"),
    [
        (-1, "greater than or equal to 0"),
        (1_700_000_000, "is before March 1973; it must be in milliseconds since 1970"),
        (2_000_000_000_000_000, "less than"),
        (4_000_000_000_000, "is in the future"),
        ("2024-01-31", "valid integer"),
        (True, "valid integer"),
    ],
)
async def test_a_time_of_history_that_cannot_be_is_refused_with_all_of_its_call(
    api: Api, at: Any, words: str
):
    await api.bandit("b", "c", half_life_s=60)
    good = {"id": "good", "arm": "a1", "value": 1.0}
    body = {"observations": [good, {**good, "id": "x", "at": at}]}
    answer = await api.call("POST", "/v1/bandits/b/observations", body)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["loc"] == ["body", "observations", 1, "at"]
    assert words in error["message"]
    assert (await api.learner("b"))["observations"] == 0


async def traces(api: Api, name: bytes) -> list[tuple[bytes, Any]]:
    """Where in the store a name is to be found, in keys and in what they hold."""
    found: list[tuple[bytes, Any]] = []
    async for key in api.store.scan_iter(count=1_000):
        kind = await api.store.type(key)
        content: Any = {
            b"hash": api.store.hgetall, b"string": api.store.get, b"stream": api.store.xrange,
            b"zset": lambda k: api.store.zrange(k, 0, -1), b"set": api.store.smembers,
        }[kind](key)  # fmt: skip
        content = await content
        if name in key or name in repr(content).encode():
            found.append((key, content))
    return found


async def test_a_deleted_learner_leaves_no_trace_but_the_refusal(api: Api):
    """No log entry, logged decision, event or state; what is left expires, and says which ids were seen."""
    await api.bandit("b", "c", scope="per_key", reward={"wait_s": 3_600}, idle_ttl_s=3_600)
    await api.observe("b", *({"id": f"o{i}", "key": "zoe", "arm": "a1", "value": 1.0} for i in range(30)))
    await api.observe("b", {"id": "x", "key": "max", "arm": "a2", "value": 2.0})
    choice = await api.choose("b", key="zoe", event_id="e")
    await api.reward({"decision": choice["decision"], "value": 3.0})
    await api.choose("b", key="zoe")
    await api.ok("DELETE", "/v1/bandits/b/learners/zoe", status=204)
    left = await traces(api, b"zoe")
    kinds = {key.split(b"}:")[1].split(b":")[0] for key, _ in left}
    assert kinds == {b"seen", b"seen-until", b"forgotten", b"forgotten-until", b"log", b"changes"}
    for key, content in left:
        if key.endswith(b":log"):  # the entry that forgets, and by which the next one is numbered
            assert [fields[b"l"] for _, fields in content if fields[b"l"] == b"zoe"] == [b"zoe"]
        elif b"}:seen:" in key:
            assert await api.store.pttl(key) > 0
    assert (await api.learner("b", "zoe"))["observations"] == 0
    answer = await api.ok(
        "POST", "/v1/rewards", {"rewards": [{"decision": choice["decision"], "value": 1}]}, 202
    )
    assert answer["rejected"][0]["code"] == "forgotten"
    assert (await api.choose("b", key="zoe", event_id="e"))["decision"] != choice["decision"]


async def test_an_idle_learner_is_forgotten_like_a_deleted_one(api: Api):
    await api.bandit("b", "c", scope="per_key", idle_ttl_s=1, reward={"wait_s": 3_600})
    await api.bandit("keeps", "c", scope="per_key")
    for bandit in ("b", "keeps"):
        await api.observe(bandit, {"id": "o", "key": "ann", "arm": "a1", "value": 1.0})
    token = (await api.choose("b", key="bob"))["decision"]
    await learned(api, "b", 0, "ann")
    assert (await api.learner("keeps", "ann"))["observations"] == 1
    assert (await api.reward({"decision": token, "value": 1.0}))["accepted"] == 1  # bob is waited for
    await api.ok("PATCH", "/v1/bandits/b", {"idle_ttl_s": 3_600})  # however busy the machine is by now
    await api.observe("b", {"id": "p", "key": "ann", "arm": "a1", "value": 1.0})
    await learned(api, "b", 1, "ann")


@pytest.mark.rest
async def test_what_is_logged_is_what_the_token_says(api: Api):
    """Only for bandits that wait; the features are those of the choice, also when the arm changes."""
    await api.bandit("b", "c", reward={"wait_s": 3_600, "default": 0.5})
    choice = await api.choose("b", k=2)
    await api.put_arms("c", {arm: [9.0, 9.0, 9.0] for arm in ARMS})
    records = [
        unpack(record, WaitingDecision)
        for partition in range(16)
        for record in (await api.store.hgetall(redis_keys.decisions(partition))).values()
    ]
    assert [[entry.arm for entry in record.defaults] for record in records] == [
        [item["id"] for item in choice["arms"]]
    ]
    await api.due_now()
    learner = await learned(api, "b", 2)
    np.testing.assert_allclose(
        learner["theta"], theta(*((item["id"], 0.5) for item in choice["arms"])), rtol=1e-8
    )


@pytest.mark.rest
async def test_a_default_is_of_its_arm_where_the_one_before_has_no_features_any_more(api: Api):
    """The store has dropped those of the first arm: it was deleted long before the list was shown."""
    await api.bandit("b", "c", log={}, reward={"wait_s": 3_600, "default": -1.0})
    choice = await api.choose("b", k=2, activate=False)
    first, second = (arm["id"] for arm in choice["arms"])
    await api.ok("DELETE", f"/v1/catalogues/c/arms/{first}", status=204)
    await api.store.delete(*[key for key in await api.stored() if b":retired:" in key])
    await api.ok("POST", "/v1/decisions/activate", {"decisions": [choice["decision"]]})
    await api.due_now()
    await learned(api, "b", 1)
    [row] = (await api.ok("GET", "/v1/bandits/b/log"))["items"]
    assert [(each["arm"], each["value"], each["default"]) for each in row["rewards"]] == [
        (second, -1.0, True)
    ]
