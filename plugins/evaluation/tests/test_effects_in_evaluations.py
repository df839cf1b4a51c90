"""Evaluations of bandits with arm effects: the policy is weighed by what it was served with."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.storage import redis_keys

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS, KEYS = 12, 6
RNG = np.random.default_rng(12)
FEATURES = {f"a{place}": row for place, row in enumerate(RNG.normal(size=(ARMS, 3)))}
EFFECTS = {f"a{place}": float(effect) for place, effect in enumerate(RNG.normal(size=ARMS))}
REFRESH, PATH = "/v1/bandits/b/prior/refresh", "/v1/bandits/b/arm-effects"
SETTINGS: dict[str, Json] = {
    "softmax": {"policy": "softmax", "temperature": 0.7},
    "epsilon_greedy": {"policy": "epsilon_greedy", "epsilon": 0.4},
}
UNKNOWN = "are evaluated without arm effects"
OF_LOG = "are evaluated with arm effects that were fitted to earlier rows of this log"


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path) as api:
        await api.catalogue("c", {arm: row.tolist() for arm, row in FEATURES.items()})
        yield api


async def make(api: Api, **fields: Any) -> None:
    """A bandit that knows effects."""
    body = {"catalogue": "c", "scope": "per_key", "arm_effects": "auto", "log": {}, **fields}
    await api.ok("PUT", "/v1/bandits/b", body, 201)
    rows = [
        {"id": f"{turn}-{key}-{arm}", "key": f"u{key}", "arm": arm, "value": EFFECTS[arm]}
        for turn in range(2)
        for key in range(KEYS)
        for arm in FEATURES
    ]
    await api.observe("b", *rows[: len(rows) // 2])
    await api.ok("POST", REFRESH, {})
    await api.observe("b", *rows[len(rows) // 2 :])
    await api.ok("POST", REFRESH, {})
    assert (await api.ok("GET", PATH))["spread"] > 0.3


async def decide(api: Api, count: int, *, k: int = 2, start: int = 0, rewards: bool = False) -> list[Json]:
    choices = list[Json]()
    for seed in range(start, start + count):
        choice = await api.choose("b", key=f"u{seed % KEYS}", k=k, seed=seed)
        choices.append(choice)
        if rewards:
            await api.reward(
                *({"decision": choice["decision"], "arm": arm["id"], "value": EFFECTS[arm["id"]]}
                  for arm in choice["arms"])
            )  # fmt: skip
    await api.app.service.rows.flush()
    return choices


async def evaluate(api: Api, policy: Json, learners: str = "now") -> Json:
    answer: Json = await api.ok(
        "POST", "/v1/bandits/b/evaluations", {"policy": policy, "learners": learners, "estimators": ["ips"]}
    )
    return answer


@pytest.mark.parametrize("policy", SETTINGS)
@pytest.mark.parametrize("signals", [False, True])
async def test_a_decision_has_the_propensity_that_it_was_made_with(api: Api, policy: str, signals: bool):
    """Made again from their rows all decisions have weight 1: to 1e-12."""
    settings = SETTINGS[policy]
    await make(api, **settings)
    if signals:
        await api.ok("DELETE", "/v1/bandits/b", status=204)
        await with_signals(api, settings)
    await decide(api, 40, k=3)
    found = await evaluate(api, settings)
    assert found["support"]["largest_weight"] == pytest.approx(1.0, abs=1e-12)
    assert found["support"]["unused_share"] == 0.0
    (ips,) = found["estimates"]
    assert ips["effective_sample_size"] == pytest.approx(40.0, rel=1e-12)
    assert not [each for each in found["warnings"] if "effects" in each]


async def with_signals(api: Api, settings: Json) -> None:
    body = {
        "catalogue": "c", "scope": "per_key", "arm_effects": "auto", "log": {},
        "signals": {"click": {"weight": 1.0}, "buy": {"weight": 2.0}}, **settings,
    }  # fmt: skip
    await api.ok("PUT", "/v1/bandits/b", body, 201)
    for turn in range(2):
        rows = [
            {"id": f"s{turn}-{key}-{arm}", "key": f"u{key}", "arm": arm,
             "values": {"click": EFFECTS[arm], "buy": -EFFECTS[arm] / 4}}
            for key in range(KEYS)
            for arm in FEATURES
        ]  # fmt: skip
        await api.observe("b", *rows)
        await api.ok("POST", REFRESH, {})
    assert (await api.ok("GET", PATH))["spread"] > 0.1


@pytest.mark.parametrize(
    "policy",
    [{"policy": "linucb", "alpha": 0.5}, {"policy": "linear_ts", "exploration": 0.0}],
    ids=["linucb", "linear_ts"],
)
@pytest.mark.rest
async def test_another_policy_is_weighed_with_effects(api: Api, policy: Json):
    """One that does not draw: its value is that of the decisions that show what it would have chosen."""
    await make(api, policy="softmax", temperature=2.0)
    choices = await decide(api, 60, k=1)
    values = {choice["decision"]: float(place) for place, choice in enumerate(choices)}
    await api.ok("PATCH", "/v1/bandits/b", policy)
    best = {}
    for key in range(KEYS):
        asked = {"key": f"u{key}", "k": 1, "dry_run": True, "seed": 1}
        (arm,) = (await api.ok("POST", "/v1/bandits/b/choose", asked))["arms"]
        best[f"u{key}"] = arm["id"]
    found = await evaluate(api, policy)
    weights = [
        (choice["arms"][0]["id"] == best[f"u{seed % KEYS}"]) / choice["arms"][0]["propensity"]
        for seed, choice in enumerate(choices)
    ]
    assert len(values) == 60
    assert found["support"]["largest_weight"] == pytest.approx(max(weights), rel=1e-9)
    assert found["support"]["unused_share"] == pytest.approx(np.mean(np.array(weights) == 0.0))


@pytest.mark.rest
async def test_earlier_decisions_are_weighed_by_the_effects_of_their_time(api: Api):
    settings = SETTINGS["softmax"]
    await make(api, **settings)
    for turn in range(4):
        await decide(api, 20, start=100 * turn, rewards=True)
        await api.ok("POST", REFRESH, {})
    found = await evaluate(api, settings, "before")
    assert not [each for each in found["warnings"] if "arm effects" in each]
    kept = found["estimates"][0]["value"]
    # As if the versions were not kept any more: they follow from the rows.
    bandit = api.app.service.bandits.by_name("b")
    newest = (await api.ok("GET", PATH))["version"]
    for number in range(1, newest):
        await api.store.hdel(redis_keys.effect_versions(bandit.uid), str(number))
    found = await evaluate(api, settings, "before")
    warnings = [each for each in found["warnings"] if "arm effects" in each]
    assert any(OF_LOG in each for each in warnings)
    assert all(OF_LOG in each or UNKNOWN in each for each in warnings)
    assert sum(int(each.split(" of ")[0]) for each in warnings) <= 80
    assert found["estimates"][0]["value"] == pytest.approx(kept, abs=0.3)


@pytest.mark.rest
async def test_decisions_from_before_effects_are_counted(api: Api):
    settings = SETTINGS["softmax"]
    await make(api, **settings)
    await api.ok("PATCH", "/v1/bandits/b", {"arm_effects": "off"})
    await decide(api, 30, rewards=True)
    await api.ok("PATCH", "/v1/bandits/b", {"arm_effects": "auto"})
    found = await evaluate(api, settings, "before")
    (warning,) = [each for each in found["warnings"] if "arm effects" in each]
    assert warning.startswith("29 of 30 decisions are evaluated without arm effects"), "the first is left out"
