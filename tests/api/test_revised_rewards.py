"""Rewards of which the last counts: by when they were so, in whatever order they come."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from api_client import EAGER_HOUSEKEEPING, Api, Json
from app.fold.replay import compare
from app.platform.pauses import Pauses
from oracle import ridge_estimate
from store_server import patient_store
from waiting import wait_until

pytestmark = [pytest.mark.anyio]

ARMS = {f"a{i}": [1.0, float(i % 3) - 1.0, float(i) / 2 - 1.0] for i in range(6)}
LAST = {"aggregate": "last"}
NOW = 1_700_000_000_000
# How a bandit says it, and what its rewards name besides: the whole reward, and one of two signals.
FORMS: list[tuple[Json, Json]] = [
    ({"reward": LAST}, {}),
    ({"signals": {"watched": LAST, "liked": {}}}, {"signal": "watched"}),
    ({"signals": {"liked": {"weight": 0}, "watched": LAST}}, {"signal": "watched"}),
]
in_each_form = pytest.mark.parametrize(("bandit", "of"), FORMS)


@pytest.fixture
def pauses() -> Pauses:
    return EAGER_HOUSEKEEPING


@pytest.fixture
async def api(api: Api) -> Api:
    await api.catalogue("c", ARMS)
    return api


def solved(rows: Sequence[tuple[str, float]], weights: Sequence[float] | None = None) -> list[float]:
    return ridge_estimate([(ARMS[arm], value) for arm, value in rows], weights)


async def estimate(api: Api, of: Json, key: str = "_global") -> list[float]:
    learner = await api.learner("b", key)
    theta: list[float] = learner["signals"]["watched"]["theta"] if of else learner["theta"]
    return theta


async def known(api: Api, of: Json, *rows: tuple[str, float]) -> None:
    np.testing.assert_allclose(await estimate(api, of), solved(rows), rtol=1e-9, atol=1e-9)


@in_each_form
async def test_the_latest_counts_in_any_order_and_however_often(api: Api, bandit: Json, of: Json):
    """Of those at the same time the largest."""
    said = [(5.0, NOW), (9.0, NOW + 5), (7.0, NOW + 5), (8.0, NOW + 5), (-2.0, NOW + 3), (0.1, NOW - 9)]
    rng = random.Random(4)
    await api.bandit("b", "c", **bandit)
    rows = []
    for _ in range(12):
        choice = await api.choose("b")
        sent = [*said, *rng.sample(said, 3)]
        rng.shuffle(sent)
        standing: tuple[int, float] | None = None
        for value, at in sent:
            receipt = await api.reward({"decision": choice["decision"], "value": value, "at": at, **of})
            is_later = standing is None or (at, value) > standing
            assert (receipt["accepted"], receipt["duplicate"]) == (is_later, not is_later)
            standing = (at, value) if standing is None else max(standing, (at, value))
        rows.append((choice["arms"][0]["id"], 9.0))
    await known(api, of, *rows)
    assert (await api.learner("b"))["observations"] == 12


@in_each_form
async def test_it_says_when_it_was_so(api: Api, bandit: Json, of: Json):
    await api.bandit("b", "c", **bandit)
    await api.bandit("plain", "c")
    reward = {"decision": (await api.choose("b"))["decision"], "value": 1.0, **of}
    loc = ("body", "rewards", 0, "at")
    await api.refused("POST", "/v1/rewards", {"rewards": [reward]}, loc=loc)
    for bad in (-1, 1.5, "1", True, 10**15):
        await api.refused("POST", "/v1/rewards", {"rewards": [{**reward, "at": bad}]}, loc=loc)
    now_ms = time.time_ns() // 1_000_000
    receipt = await api.reward({**reward, "at": now_ms + 3_600_000}, {**reward, "at": now_ms + 30_000})
    assert receipt == {"accepted": 1, "duplicate": 0, "rejected": [{"index": 0, "code": "in_future"}]}
    # Elsewhere a time is of no use, and does no harm: clients send it always.
    other = {"decision": (await api.choose("plain"))["decision"], "value": 1.0}
    receipt = await api.reward({**other, "at": now_ms + 3_600_000}, {**other, "at": now_ms + 3_700_000})
    assert (receipt["accepted"], receipt["duplicate"]) == (1, 1)


@pytest.mark.rest
@in_each_form
async def test_it_takes_the_place_of_a_default_and_of_each_other(api: Api, bandit: Json, of: Json):
    signals = {
        name: {**rule, "default": 0.5} if name == "watched" else rule
        for name, rule in bandit.get("signals", {}).items()
    }
    own = {"default": 0.5} if "reward" in bandit else {}
    body = {
        **({"signals": signals} if signals else {}),
        "reward": {**bandit.get("reward", {}), **own, "wait_s": 99},
    }
    await api.bandit("b", "c", **body)
    choices = [await api.choose("b", k=2) for _ in range(2)]
    shown = [(choice["decision"], arm["id"]) for choice in choices for arm in choice["arms"]]

    async def reward(place: int, value: float, at: int) -> None:
        token, arm = shown[place]
        await api.reward({"decision": token, "arm": arm, "value": value, "at": NOW + at, **of})

    await reward(0, 3.0, 2)
    await api.due_now()

    async def counted() -> bool:
        return bool((await api.learner("b"))["observations"] == 4)

    await wait_until(counted, what="the defaults are counted")
    await reward(0, 4.0, 3)
    await reward(1, 7.0, 5)
    await reward(1, 1.0, 6)
    await reward(1, 9.0, 1)
    values = [4.0, 1.0, 0.5, 0.5]
    await known(api, of, *((arm, value) for (_, arm), value in zip(shown, values, strict=True)))


@pytest.mark.rest
@in_each_form
async def test_a_correction_weighs_what_its_decision_weighs_by_now(
    api: Api, monkeypatch: pytest.MonkeyPatch, bandit: Json, of: Json
):
    await api.bandit("b", "c", half_life_s=100.0, **bandit)
    rng, shown = random.Random(6), []
    begun = time.time_ns()
    for i in range(8):
        monkeypatch.setattr(time, "time_ns", lambda i=i: begun + i * 40 * 10**9)
        choice = await api.choose("b")
        shown.append([choice["decision"], choice["arms"][0]["id"], 0.0])
        for each in rng.sample(shown, min(3, len(shown))):
            each[2] = rng.uniform(-1, 1)
            at = time.time_ns() // 1_000_000
            await api.reward({"decision": each[0], "value": each[2], "at": at, **of})
        if not shown[-1][2]:
            await api.reward({"decision": shown[-1][0], "value": 0.0, "at": NOW, **of})
    rows = [(arm, value) for _, arm, value in shown]
    weights = [0.5 ** (0.4 * (7 - i)) for i in range(8)]
    np.testing.assert_allclose(await estimate(api, of), solved(rows, weights), rtol=1e-9, atol=1e-9)


@in_each_form
async def test_learners_are_what_their_log_says(api: Api, store_url: str, bandit: Json, of: Json):
    await api.bandit("b", "c", scope="per_key", **bandit)
    rng, newest = random.Random(3), dict[tuple[str, str], tuple[int, float]]()  # by token and arm
    keys = dict[str, str]()  # by token
    for i in range(40):
        if i < 12:
            key = f"k{i % 3}"
            choice = await api.choose("b", key=key)
            keys[choice["decision"]] = key
            newest[choice["decision"], choice["arms"][0]["id"]] = (0, 0.0)
        token, arm = rng.choice(list(newest))
        at, value = NOW + rng.randrange(50), rng.uniform(-1, 1)
        newest[token, arm] = max(newest[token, arm], (at, value))
        await api.reward({"decision": token, "value": value, "at": at, **of})

    for key in ("k0", "k1", "k2"):
        rewarded = [(arm, value) for (token, arm), (at, value) in newest.items() if keys[token] == key and at]
        assert (await api.learner("b", key))["observations"] == len(rewarded)
        np.testing.assert_allclose(await estimate(api, of, key), solved(rewarded), rtol=1e-4, atol=1e-4)
    await api.stored()
    store = patient_store(store_url)
    await store.open()
    result = await compare(store)
    await store.close()
    assert (result.different, result.older, result.equal) == ([], 0, 3)


@pytest.mark.rest
@in_each_form
async def test_the_log_shows_the_last_value_and_how_many_it_replaced(api: Api, bandit: Json, of: Json):
    await api.bandit("b", "c", log={"keep_s": 3600}, policy="softmax", **bandit)
    choice = await api.choose("b", k=2)
    token, arms = choice["decision"], [arm["id"] for arm in choice["arms"]]

    async def reward(place: int, value: float, at: int, **more: Any) -> None:
        item = {"decision": token, "arm": arms[place], "value": value, "at": NOW + at, **of, **more}
        await api.reward(item)

    if of:  # first in the row: what comes of the other signal leaves it there
        await reward(0, 1.0, 0, signal="liked")
    sizes = list[int]()
    for i in range(60):  # as somebody watches on
        await reward(0, float(i), i)
        if i in {1, 59}:
            sizes.append(await _bytes_of_seen(api))
    await reward(1, 5.0, 0)
    await reward(0, 7.0, 3)  # late: it changes nothing
    (row,) = (await api.ok("GET", "/v1/bandits/b/log"))["items"]
    found = [
        (each["arm"], each["value"], each.get("revised", 0), each.get("signal")) for each in row["rewards"]
    ]
    signal = of.get("signal")
    expected = [(arms[0], 59.0, 59, signal), (arms[1], 5.0, 0, signal)]
    assert found == ([(arms[0], 1.0, 0, "liked")] if of else []) + expected
    assert sizes[1] - sizes[0] < 16, "what is remembered of a decision does not grow"
    report = await api.ok("GET", "/v1/bandits/b/report")
    whole = report["signals"] if of else [report]
    part = next(each for each in whole if not of or each["signal"] == "watched")
    assert part["groups"][0]["mean_reward"] == 64.0
    body = {"policy": {}, "estimators": ["ips"], "learners": "now"}
    answer = await api.ok("POST", "/v1/bandits/b/evaluations", body)
    logged = answer["signals"]["watched"]["logged"] if of else answer["logged"]
    assert logged["value"] == 64.0


async def _bytes_of_seen(api: Api) -> int:
    """How much is kept of the rewards of decisions to tell duplicates."""
    names = [name async for name in api.store.scan_iter(match="*seen-until*")]
    kept = [await api.store.hgetall(name) for name in names]
    return sum(len(field) + len(value) for each in kept for field, value in each.items())


@pytest.mark.rest
@in_each_form
async def test_an_evaluation_knows_what_was_known_then(api: Api, bandit: Json, of: Json):
    """The rows of before say it: each value that a reward had was counted."""
    await api.bandit("b", "c", log={"keep_s": 3600}, policy="softmax", **bandit)
    rng, decisions = random.Random(8), list[str]()
    for i in range(90):
        choice = await api.choose("b")
        decisions.append(choice["decision"])
        reward = {"decision": choice["decision"], **of}
        values = [rng.random() for _ in range(1 + i % 3)]
        await api.reward(*({**reward, "value": value, "at": NOW + n} for n, value in enumerate(values)))
    await api.app.service.rows.flush()
    times = {row["decision"]: row["time"] for row in await api.listed("/v1/bandits/b/log")}
    body = {"policy": {"temperature": 0.5}, "from": times[decisions[30]] / 1e3}

    async def evaluated() -> Json | None:
        answer = await api.ok("POST", "/v1/bandits/b/evaluations", body)
        return answer if answer["logged"]["decisions"] + answer["logged"]["left_out"] == 60 else None

    found = await wait_until(evaluated, what="all decisions are logged")
    assert found["learners"]["begin"] == "known"


async def test_a_quota_of_rewards_counts_a_decision_once(api: Api):
    await api.bandit("b", "c", reward=LAST)
    path = "/v1/bandits/b/quotas/q"
    await api.ok("PUT", path, {"arm": "a1", "most": 100, "per_s": 3600, "counts": "rewarded"}, 201)
    choice = await api.choose("b", exclude=sorted(ARMS.keys() - {"a1"}))
    for i, value in enumerate((0.0, 2.0, 3.0, 4.0)):
        await api.reward({"decision": choice["decision"], "value": value, "at": NOW + i})

    async def used() -> bool:
        return bool((await api.ok("GET", path))["used"] == 1)

    await wait_until(used, what="the reward is counted")


@pytest.mark.rest
async def test_the_terms_of_a_decision_stay(api: Api):
    """A decision that was made while the first reward counted, and one made while the last does."""
    await api.bandit("b", "c")
    first = await api.choose("b")
    await api.ok("PATCH", "/v1/bandits/b", {"reward": {"aggregate": "last"}})
    last = await api.choose("b")
    for value, at in ((1.0, 1), (5.0, 2)):
        for choice in (first, last):
            await api.reward({"decision": choice["decision"], "value": value, "at": NOW + at})
    rows = [(first["arms"][0]["id"], 1.0), (last["arms"][0]["id"], 5.0)]
    await known(api, {}, *rows)
