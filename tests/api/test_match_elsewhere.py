"""``match`` where learners are moved, fitted, weighed, explained, read from outside, and asked by passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_candidates import PATH, ids
from test_match import ARMS, DIM, MATCH, M, numbers_of, random_match, ready
from test_moving import MOVE, NEW, OLD, TURN, D, api, assert_replay, carried

from api_client import Api, Json, running
from app.api.api_keys import new_key
from oracle import ridge_of
from shortlist.types import Vector
from shortlist_client import visitor_pass
from waiting import wait_until

__all__ = ["api"]  # a fixture

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.mark.parametrize("u", [None, [0.5, -1.0]], ids=["plain", "context"])
async def test_what_was_said_of_arms_stays_in_a_move(api: Api, store_url: str, u: Any):
    """Before, late and after: ridge on [x ; (P x) kron u ; match] of the new catalogue, turned alone."""
    settings: Json = {"scope": "per_key", "intercept": False, "match": MATCH}
    asked: Json = {"key": "ann"}
    if u is not None:
        settings, asked = {**settings, "context": {"dim": 2}}, {**asked, "context": u}
    await api.bandit("b", "old", **settings)
    rng, known, late = np.random.default_rng(2), list[tuple[Vector, float]](), list[Json]()
    own = rng.normal(size=D)

    def seen(x: Vector, said: Json) -> Vector:
        # the context's part stays as it was: its new directions are those of the old features
        products = [] if u is None else [np.outer(x @ TURN.T, u).ravel()]
        return np.concatenate((x, *products, numbers_of(said)))

    async def choose(features: np.ndarray) -> tuple[Json, Vector]:
        number = int(rng.integers(60))
        said = random_match(rng)
        candidate: Json = {"id": f"a{number}", "match": said}
        row = features[number]
        if rng.random() < 0.3:
            row = (own if features is OLD else own @ TURN).astype(np.float32).astype(float)
            candidate = {"id": "mine", "features": row.tolist(), "match": said}
        choice = await api.choose("b", candidates=[candidate], **asked)
        return {"decision": choice["decision"], "value": float(rng.normal())}, seen(
            row @ TURN if features is OLD else row, said
        )

    for number in range(16):
        reward, x = await choose(OLD)
        known.append((x, reward["value"]))
        if number % 2:
            late.append(reward)
        else:
            await api.reward(reward)
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert answer["map"]["r2"] == pytest.approx(1.0, abs=1e-6)
    assert (await api.reward(*late))["accepted"] == len(late)
    for _ in range(5):
        reward, x = await choose(NEW)
        known.append((x, reward["value"]))
        await api.reward(reward)
    await carried(api)
    precision, wanted = ridge_of([x for x, _ in known], [value for _, value in known])
    learner = await api.learner("b", "ann", precision=True)
    np.testing.assert_allclose(learner["precision"], precision, atol=1e-5)
    theta = np.concatenate((learner["theta"][:D], np.ravel(learner.get("weights", [])), learner["theta"][D:]))
    np.testing.assert_allclose(theta, wanted, atol=1e-5)
    await assert_replay(store_url)


@pytest.mark.parametrize(
    "settings",
    [
        {"arm_effects": "auto"},
        {"arm_effects": "off", "context": {"dim": 2}},
        {"signals": {"click": {}, "buy": {"weight": 5}}},
        {"half_life_s": 3_600},
    ],
    ids=["effects", "context", "signals", "half-life"],
)
async def test_a_prior_is_learned_of_match_too(shared: Api, settings: Json):
    """What all keys like of the numbers of a request, new keys begin with: mean, deviation and choices."""
    name = f"prior-{'-'.join(settings)}"
    await ready(shared, name, scope="per_key", prior="learned", ridge="auto", exploration="auto", **settings)
    rng, asked = np.random.default_rng(3), {} if "context" not in settings else {"context": [1.0, 0.5]}
    signal = {"signal": "click"} if "signals" in settings else {}
    rewards = []
    for key in range(40):
        for _ in range(6):
            said = {"km": float(rng.normal(2.0, 0.5))}
            choice = await shared.choose(
                name, key=f"k{key}", candidates=[{"id": f"a{rng.integers(40)}", "match": said}], **asked
            )
            value = 2.0 * (said["km"] - 2.0) / 0.5 + 0.3 * float(rng.normal())
            rewards.append({"decision": choice["decision"], "value": value, **signal})
    await shared.reward(*rewards)
    prior = await shared.ok("POST", f"/v1/bandits/{name}/prior/refresh")
    assert prior["keys"] == 40
    assert len(prior["mean"]) == len(prior["sd"]) == DIM + M
    assert prior["mean"][DIM] == pytest.approx(2.0, abs=0.3)
    assert prior["sd"][DIM] < 0.5
    learner = await shared.learner(name, "new")
    assert len(learner["theta"]) == len(learner["columns"]) == DIM + M
    candidates = [{"id": "a1", "match": {"km": km}} if km else "a2" for km in (3.0, 0.0)]
    dry = await shared.choose(name, key="new", k=2, candidates=candidates, dry_run=True, **asked)
    (one,) = [arm for arm in dry["arms"] if arm["id"] == "a1"]
    assert one["estimate"] == pytest.approx(4.0, abs=1.2)
    assert one["prior"] == pytest.approx(one["estimate"], abs=1e-9)
    assert len((await shared.choose(name, key="new", k=3, **asked))["arms"]) == 3


async def test_explanations_and_rows_have_the_numbers_of_a_request(shared: Api):
    """The choice is made again with them, and they are parts of estimates by their names."""
    await ready(shared, "explained", log={}, exploration=0, intercept=True)
    choice = await shared.choose("explained", candidates=[{"id": "a3", "match": {"km": 4.0, "from": "news"}}])
    await shared.reward({"decision": choice["decision"], "value": 1.0})
    own = {"id": "n", "features": [0.5, 0.1, 0.1], "match": {"from": "news"}}
    sent = ["a1", {"id": "a2", "match": {"km": 2.3}}, {"id": "a4", "match": {}}, own]
    choice = await shared.choose("explained", k=4, candidates=sent)

    async def row() -> Json | None:
        body = {"decision": choice["decision"]}
        answer = await shared.call("POST", "/v1/bandits/explained/log/explain", body)
        return answer.json() if answer.status_code == 200 else None

    found: Any = await wait_until(row, what="the row")
    assert found["repeated"] is True
    numbers = {arm: numbers_of(said).tolist() for arm, said in (("a2", {"km": 2.3}), ("n", own["match"]))}
    as_float32 = np.asarray(own["features"], dtype=np.float32).astype(float).tolist()
    assert found["row"]["candidates"] == [
        {"id": "a1"},
        {"id": "a2", "match": pytest.approx(numbers["a2"], rel=1e-6)},
        {"id": "a4"},
        {"id": "n", "features": as_float32, "match": numbers["n"]},
    ]
    theta = (await shared.learner("explained"))["theta"]
    by_arm = {each["id"]: each for each in found["candidates"]}
    terms = {term["column"]: term["value"] for term in by_arm["a2"]["terms"]}
    assert terms["match.km"] == pytest.approx(theta[DIM] * numbers["a2"][0], rel=1e-6)
    assert "match.km" not in {term["column"] for term in by_arm["n"]["terms"]}
    assert "match.from=news" in {term["column"] for term in by_arm["n"]["terms"]}
    assert all(term["column"].startswith("features.") for term in by_arm["a1"]["terms"])
    for arm, x in (("a2", np.append(ARMS["a2"], numbers["a2"])), ("n", np.append(as_float32, numbers["n"]))):
        offset = (await shared.learner("explained"))["offset"]
        assert by_arm[arm]["estimate"] == pytest.approx(float(x @ theta + offset), rel=1e-6)


async def test_of_a_pass_match_needs_candidates_full(store_url: str, tmp_path: Path):
    restrictions = {"visitors": "3600"}
    key, entry = new_key("web", ["choose"], restrictions)
    full, full_entry = new_key("full", ["choose"], {**restrictions, "candidates": "full"})
    admin, admin_entry = new_key("admin", ["admin"])
    async with running(store_url, tmp_path, api_keys=f"{entry} {full_entry} {admin_entry}") as api:
        api.http.headers["authorization"] = f"Bearer {admin}"
        await ready(api, "b", scope="per_key")
        body = {"candidates": ["a1", {"id": "a2", "match": {"km": 1.0}}], "k": 2}
        as_ann = {"authorization": f"Bearer {visitor_pass(key, visitor='ann')}"}
        loc = ["body", "candidates", 1, "match"]
        await api.refused(
            "POST", PATH.format("b"), body, status=403, code="forbidden", loc=loc, headers=as_ann
        )
        as_ann = {"authorization": f"Bearer {visitor_pass(full, visitor='ann')}"}
        assert len(ids(await api.ok("POST", PATH.format("b"), body, headers=as_ann))) == 2


async def test_the_learned_log_brings_what_no_catalogue_has(shared: Api):
    await ready(shared, "told")
    sent: list[Any] = ["a1", {"id": "a2", "match": {"km": 3.0}}, {"id": "a3", "match": {}},
                       {"id": "n", "features": [1, 2, 3]}]  # fmt: skip
    for candidate in sent:
        choice = await shared.choose("told", candidates=[candidate])
        await shared.reward({"decision": choice["decision"], "value": 1.0})
    terms = await shared.ok("GET", "/v1/bandits/told/log/terms")
    assert terms["match"] == M
    found = dict[str, Any]()
    for partition in range(terms["partitions"]):
        page = await shared.ok("GET", f"/v1/bandits/told/log/rewards?partition={partition}&include=arms")
        found |= {item["arm"]: item["features"] for item in page["items"]}
        assert "n" not in {arm["id"] for arm in page["arms"]}
    assert found["a1"] is None
    assert found["a3"] is None
    assert found["a2"][DIM : DIM + M] == [2.0, 0.0, 0.0]
    assert found["n"][: DIM + M] == [1.0, 2.0, 3.0, 0.0, 0.0, 0.0]
