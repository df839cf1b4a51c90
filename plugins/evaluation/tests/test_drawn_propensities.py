"""Evaluations of the log of Thompson sampling: its propensities are estimated by draws."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from server.cli import main
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {f"a{place}": row for place, row in enumerate(np.random.default_rng(4).normal(size=(6, 2)))}
THETA = np.array([0.5, -0.3])
PLAIN = {"policy": "linear_ts", "exploration": 0.6, "ridge": 1.0, "log": {}}
UNIFORM = {"policy": "softmax", "temperature": 1e9}
DRY_RUNS, ESTIMATE_DRAWS = 300, 1_000
DEVIATIONS = 5.0  # of a difference of two shares: 6e-7 of each comparison, and 12 of them


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path) as api:
        await api.catalogue("c", {arm: row.tolist() for arm, row in ARMS.items()})
        yield api


async def decide(api: Api, count: int, *, first: int = 0, **ask: Any) -> Json:
    """Decisions, each rewarded before the next. The last answer."""
    rng, choice = np.random.default_rng(first), dict[str, Any]()
    for seed in range(first, first + count):
        choice = await api.choose("b", seed=seed, **ask)
        token = choice["decision"]
        rewards = [
            {"decision": token, "arm": arm["id"], "value": float(ARMS[arm["id"]] @ THETA + rng.normal())}
            for arm in choice["arms"]
        ]
        await api.reward(*rewards)
    await api.app.service.rows.flush()
    return choice


async def evaluate(api: Api, policy: Json, **rest: Any) -> Json:
    body = {"policy": policy, "propensities": "draws", **rest}
    answer: Json = await api.ok("POST", "/v1/bandits/b/evaluations", body)
    return answer


async def shares(api: Api, **ask: Any) -> dict[str, float]:
    """How often dry runs give each arm."""
    found: dict[str, float] = {}
    for seed in range(DRY_RUNS):
        body = {"dry_run": True, "seed": 10_000 + seed, **ask}
        answer = await api.ok("POST", "/v1/bandits/b/choose", body)
        arm = answer["arms"][0]["id"]
        found[arm] = found.get(arm, 0.0) + 1.0 / DRY_RUNS
    return found


async def estimated(api: Api, decision: str, eligible: int) -> float:
    """The propensity of one logged arm: a uniform policy divides its own by it."""
    rows = await api.listed("/v1/bandits/b/log")
    time = next(row["time"] for row in rows if row["decision"] == decision)
    found = await evaluate(
        api, UNIFORM, **{"from": time / 1e3, "to": (time + 1) / 1e3, "estimators": ["ips"]}
    )
    assert found["propensities"] == {"source": "draws", "estimated": 1, "draws": ESTIMATE_DRAWS}
    return 1.0 / eligible / float(found["support"]["largest_weight"])


async def next_millisecond() -> None:
    """A decision that is asked for by its time has a millisecond of its own."""
    before = time.time_ns() // 1_000_000

    async def is_later() -> bool:
        return time.time_ns() // 1_000_000 > before

    await wait_until(is_later, what="the next millisecond")


@pytest.mark.parametrize(
    ("settings", "asks"),
    [
        (PLAIN, [{}, {"exclude": ["a1", "a4"]}]),
        (PLAIN | {"policy": "sub_ts", "scope": "per_key", "prior": "plain"}, [{"key": "ann"}]),
        (PLAIN | {"context": {"dim": 1}}, [{"context": [0.7]}]),
    ],
    ids=["global", "per_key", "context"],
)
async def test_a_propensity_is_how_often_the_learner_of_then_would_have_chosen_the_arm(
    api: Api, settings: Json, asks: list[Json]
):
    await api.bandit("b", "c", **settings)
    likely = list[tuple[str, int, float]]()
    for turn in range(2):
        for ask in asks:
            await decide(api, 3, first=100 * turn, **ask)
            before = await shares(api, **ask)
            await next_millisecond()
            choice = await decide(api, 1, first=100 * turn + 50, **ask)
            await next_millisecond()
            eligible = len(ARMS) - len(ask.get("exclude", ()))
            likely.append((choice["decision"], eligible, before.get(choice["arms"][0]["id"], 0.0)))
    for decision, eligible, share in likely:
        p = await estimated(api, decision, eligible)
        spread = np.sqrt(max(p * (1.0 - p), 0.01) * (1.0 / DRY_RUNS + 1.0 / ESTIMATE_DRAWS))
        assert abs(p - share) <= DEVIATIONS * spread


async def test_the_learned_prior_and_the_effects_are_those_of_the_decision(api: Api):
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "log": {}, "exploration": 0.6}
    await api.ok("PUT", "/v1/bandits/b", {**body, "arm_effects": "auto"}, 201)
    rng = np.random.default_rng(9)
    for turn in range(2):
        rows = [
            {
                "id": f"{turn}-{key}-{arm}",
                "key": f"u{key}",
                "arm": arm,
                "value": float(x @ THETA + rng.normal()),
            }
            for key in range(8)
            for arm, x in ARMS.items()
        ]
        await api.observe("b", *rows)
        await api.ok("POST", "/v1/bandits/b/prior/refresh", {})
    await decide(api, 1, first=40, key="new")  # what it knew before
    await next_millisecond()
    before = await shares(api, key="new")
    choice = await decide(api, 1, key="new")
    assert choice["prior_version"] > 0
    assert choice["effects_version"] > 0
    await api.observe("b", {"id": "later", "key": "u0", "arm": "a0", "value": 9.0})
    await api.ok("POST", "/v1/bandits/b/prior/refresh", {})
    p = await estimated(api, choice["decision"], len(ARMS))
    spread = np.sqrt(max(p * (1.0 - p), 0.01) * (1.0 / DRY_RUNS + 1.0 / ESTIMATE_DRAWS))
    assert abs(p - before.get(choice["arms"][0]["id"], 0.0)) <= DEVIATIONS * spread


async def test_the_policy_itself_has_about_the_value_that_was_logged(api: Api):
    await api.bandit("b", "c", **PLAIN)
    await decide(api, 120, k=2)
    found = await evaluate(api, {})
    used = found["logged"]["decisions"]
    assert found["propensities"]["estimated"] == used > 100
    assert found["support"]["missing_share"] < 0.1
    logged = found["logged"]["value"]
    for estimate in found["estimates"]:
        low, high = estimate["interval"]
        assert low <= logged <= high
    assert any("were estimated from 1,000 draws of the learner" in each for each in found["warnings"])
    refusal = await api.refused("POST", "/v1/bandits/b/evaluations", {"policy": {}}, status=422)
    assert 'an evaluation with "propensities": "draws" estimates them' in refusal["detail"]


@pytest.mark.parametrize("change", ["an arm comes", "an arm goes", "features"])
async def test_decisions_whose_arms_are_not_known_are_left_out(api: Api, change: str):
    await api.bandit("b", "c", **PLAIN)
    await decide(api, 40)
    if change == "an arm goes":
        await api.ok("DELETE", "/v1/catalogues/c/arms/a5", None, 204)
    else:
        await api.put_arms("c", {"new" if change == "an arm comes" else "a5": [0.1, 0.1]})
    body = {"policy": {}, "propensities": "draws"}
    refusal = await api.refused("POST", "/v1/bandits/b/evaluations", body, status=422)
    assert "they were made before the catalogue changed" in json.dumps(refusal)
    await decide(api, 40, first=500, exclude=["new"])
    found = await evaluate(api, {})
    assert found["propensities"]["estimated"] == 40
    assert found["logged"]["left_out"] >= 40
    assert any("made before the catalogue changed" in each for each in found["warnings"])


async def test_the_command_finds_what_the_service_finds(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    await api.bandit("b", "c", **PLAIN)
    await decide(api, 60)
    rows = await api.listed("/v1/bandits/b/log")
    log, arms, out = (tmp_path / name for name in ("log.ndjson", "arms.ndjson", "out.json"))
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [{"id": arm, "features": row.tolist()} for arm, row in ARMS.items()]
    arms.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {name: value for name, value in PLAIN.items() if name != "log"} | {"intercept": False}
    wilder = json.dumps({**settings, "exploration": 0.9})
    words = ["evaluate", str(log), "--catalogue", str(arms), "--policy", wilder, "--logged-by"]
    assert await asyncio.to_thread(main, [*words, json.dumps(settings), "--json", str(out)]) == 0
    theirs, ours = await evaluate(api, {"exploration": 0.9}), json.loads(out.read_text())
    assert ours["propensities"] == theirs["propensities"]
    for mine, other in zip(ours["estimates"], theirs["estimates"], strict=True):
        assert mine["value"] == pytest.approx(other["value"], rel=1e-9)
    for more, reason in {
        (json.dumps(settings), "--learners", "now"): "before",
        (json.dumps(settings), "--format", "table"): "others have their probabilities",
        ('{"policy": "sub_ts", "half_life_s": 60}',): "a half_life_s",
        ('{"policy": 3}',): "policy",
        ('{"policy": "softmax"}',): "only Thompson sampling draws",
        ("[]",): "a JSON object",
        ("{",): "is not JSON",
    }.items():
        capsys.readouterr()
        assert await asyncio.to_thread(main, [*words, *more]) == 2
        error = capsys.readouterr().err
        assert "--logged-by" in error
        assert reason in error
