"""Choices among the candidates of a request: arms of the catalogue, and arms that the request brings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from api_client import Api, Json
from oracle import ridge_estimate

pytestmark = pytest.mark.anyio

DIM = 4
ARMS = {f"a{place}": row for place, row in enumerate(np.random.default_rng(3).normal(size=(60, DIM)))}
PATH = "/v1/bandits/{}/choose"


def own(arm: str, row: Any, **rest: Any) -> Json:
    return {"id": arm, "features": [float(number) for number in row], **rest}


def ids(answer: Json) -> list[str]:
    return [arm["id"] for arm in answer["arms"]]


async def ready(api: Api, name: str, **settings: Any) -> None:
    await api.catalogue(name, ARMS)
    await api.bandit(name, name, **settings)


async def test_a_choice_is_among_its_candidates_alone(shared: Api):
    """The best of them all by an estimate that was learned; the others are not even looked at."""
    await ready(shared, "alone", exploration=0)
    await shared.observe("alone", {"id": "o", "arm": "a3", "value": 5.0})
    theta = np.array((await shared.learner("alone"))["theta"])
    named = ["a7", "a3", "a11", "gone", "a20"]
    brought = np.random.default_rng(1).normal(size=(3, DIM)).astype(np.float32)
    candidates = [*named, *(own(f"n{place}", row) for place, row in enumerate(brought))]
    answer = await shared.choose("alone", k=20, candidates=candidates)
    rows = {arm: ARMS[arm] for arm in named if arm in ARMS} | {
        f"n{place}": row.astype(float) for place, row in enumerate(brought)
    }
    expected = sorted(rows, key=lambda arm: -float(rows[arm] @ theta))
    assert ids(answer) == expected
    assert answer["unknown"] == 1
    assert answer["exact"] is True
    for arm in answer["arms"]:
        assert arm["score"] == pytest.approx(float(rows[arm["id"]] @ theta), abs=1e-12)
    dry = await shared.choose("alone", k=20, candidates=candidates, dry_run=True)
    assert ids(dry) == expected
    assert dry["unknown"] == 1
    assert "unknown" not in await shared.choose("alone", candidates=["a7"])


async def test_a_learner_taught_through_candidates_is_ridge_on_what_was_sent(shared: Api):
    """Rewards come late, of several arms, also of ids that the catalogue has with other numbers; each arm has
    a number of its request besides.
    """
    await ready(shared, "taught", match={"fields": [{"name": "km", "kind": "number", "scale": 2}]})
    rng, choices, known = np.random.default_rng(5), [], []
    for _ in range(20):
        rows = rng.normal(size=(5, DIM))
        sent = {f"a{place}" if place < 2 else f"n{place}": row for place, row in enumerate(rows)}
        said: Any = {"match": {"km": float(rows[0, 0])}}
        candidates = [{"id": "a40", **said}, *(own(arm, row, **said) for arm, row in sent.items())]
        answer = await shared.choose("taught", k=3, candidates=candidates)
        choices.append((answer, sent, np.float32(rows[0, 0] / 2)))
    rewards = []
    for answer, sent, km in choices:
        for arm in ids(answer)[:2]:
            value = float(rng.normal())
            row = sent[arm].astype(np.float32).astype(float) if arm in sent else ARMS[arm]
            known.append((np.append(row, km), value))
            rewards.append({"decision": answer["decision"], "arm": arm, "value": value})
    assert (await shared.reward(*rewards))["accepted"] == 40
    assert (await shared.reward(*rewards))["duplicate"] == 40
    theta = (await shared.learner("taught"))["theta"]
    np.testing.assert_allclose(theta, ridge_estimate(known), rtol=0, atol=1e-9)


@pytest.mark.rest
async def test_named_in_any_order_arms_teach_their_own_features(shared: Api):
    await ready(shared, "turned")
    answer = await shared.choose("turned", k=5, candidates=[*ARMS][10:5:-1])
    rewards = [{"decision": answer["decision"], "arm": arm, "value": 1.0} for arm in ids(answer)]
    assert (await shared.reward(*rewards))["accepted"] == 5
    theta = (await shared.learner("turned"))["theta"]
    wanted = ridge_estimate([(ARMS[arm], 1.0) for arm in ids(answer)])
    np.testing.assert_allclose(theta, wanted, rtol=0, atol=1e-9)


@pytest.mark.rest
async def test_filter_rules_and_exclusions_hold_for_both_kinds(shared: Api):
    await shared.ok("PUT", "/v1/catalogues/both", {"dim": 1}, 201)
    rows = [
        {"id": f"c{place}", "features": [place], "metadata": {"shop": "x" if place % 2 else "y", "n": place}}
        for place in range(8)
    ]
    await shared.ok("PUT", "/v1/catalogues/both/arms", {"arms": rows})
    await shared.bandit("both", "both", exploration=0)
    await shared.observe("both", {"id": "o", "arm": "c7", "value": 7.0})
    named = ["c1", "c2", "c3", "c4", "c5"]
    brought = [own(f"n{place}", [place], metadata={"shop": "x", "n": place}) for place in (6, 9)]
    for extra in ([], brought):
        candidates = [*named, *extra]
        of_x = [*(["n9", "n6"] if extra else []), "c5", "c3", "c1"]

        async def chosen(candidates: Any = candidates, **body: Any) -> list[str]:
            return ids(await shared.choose("both", k=9, candidates=candidates, **body))

        assert await chosen(filter={"shop": "x"}) == of_x
        assert (await shared.choose("both", candidates=candidates, filter={"shop": "x"}))["eligible"] == len(
            of_x
        )
        assert await chosen(filter={"n": {"$lt": 3}}) == ["c2", "c1"]
        assert await chosen(exclude=["c5", "n9", "c9"]) == [
            arm
            for arm in ["n9", "n6", "c5", "c4", "c3", "c2", "c1"]
            if arm[0] + arm[1:] not in ("c5", "n9") and (extra or arm[0] == "c")
        ]
        first_of_each = [of_x[0], "c4"]
        assert await chosen(rules={"at_most": [{"field": "shop", "count": 1}]}) == first_of_each
        pinned = await chosen(rules={"pin": [{"arm": "c1", "place": 1}]})
        assert pinned[0] == "c1"
        assert len(pinned) == len(candidates)
    await shared.refused(
        "POST",
        PATH.format("both"),
        {"candidates": named, "rules": {"pin": [{"arm": "c7", "place": 1}]}},
        loc=["body", "rules", "pin", 0, "arm"],
    )


@pytest.mark.rest
async def test_why_none_is_left_tells_unknown_from_filtered(shared: Api):
    await ready(shared, "none")
    told = await shared.refused(
        "POST", PATH.format("none"), {"candidates": ["x", "y"]}, status=409, code="no_arms"
    )
    assert "unknown" in told["detail"]
    body = {"candidates": ["x", "a1", "a2"], "exclude": ["a1", "a2"]}
    told = await shared.refused("POST", PATH.format("none"), body, status=409, code="no_arms")
    assert "none of the 2 candidates that are known" in told["detail"]
    assert "exclude" in told["detail"]


@pytest.mark.rest
@pytest.mark.parametrize("intercept", [True, False])
async def test_a_bandit_lives_of_arms_of_requests_alone(shared: Api, intercept: bool):
    """Metadata is encoded by the fields of a catalogue that never has an arm; the unit is 1."""
    name = f"bare-{intercept}"
    fields = [
        {"name": "price", "kind": "number", "mean": 10, "scale": 5},
        {"name": "kind", "kind": "category", "values": ["old", "new"]},
    ]
    await shared.ok("PUT", f"/v1/catalogues/{name}", {"features": {"fields": fields}}, 201)
    await shared.bandit(name, name, intercept=intercept)
    path = PATH.format(name)
    await shared.refused("POST", path, {}, status=409, code="no_arms")
    brought = [
        {"id": f"n{n}", "metadata": {"price": 10 + n, "kind": "new" if n == 1 else "old"}} for n in range(3)
    ]
    assert len(ids(await shared.choose(name, candidates=brought, k=3, dry_run=True))) == 3
    answer = await shared.choose(name, candidates=brought, k=3, seed=1)
    await shared.reward({"decision": answer["decision"], "arm": "n1", "value": 1.0})
    theta = (await shared.learner(name))["theta"]
    x = np.array([0.2, 0.0, 1.0, 1.0][: 3 + intercept], dtype=np.float32).astype(float)
    np.testing.assert_allclose(theta, x[:3] / (1 + x @ x), rtol=0, atol=1e-9)
    await shared.refused("POST", path, {}, status=409, code="no_arms")


@pytest.mark.rest
@pytest.mark.parametrize("policy", ["sub_elim", "linear_elim"])
async def test_elimination_takes_no_candidates(shared: Api, policy: str):
    await ready(shared, policy, policy=policy, horizon=100)
    await shared.refused("POST", PATH.format(policy), {"candidates": ["a1"]}, loc=["body", "candidates"])


@pytest.mark.rest
async def test_an_event_is_answered_again_for_the_same_candidates_alone(shared: Api):
    await ready(shared, "event")
    body: Json = {"event_id": "e", "k": 2}
    body["candidates"] = ["a1", "zz", own("n", [1] * DIM, metadata={"shop": "x"})]
    first = await shared.choose("event", **body)
    assert await shared.choose("event", **body) == first
    assert first["unknown"] == 1
    told = await shared.choose("event", **body, include=["metadata"])
    metadata = {arm["id"]: arm["metadata"] for arm in told["arms"]}
    assert metadata == {"a1": {}, "n": {"shop": "x"}}
    for other in (["a1", "zz"], ["a1", "zz", own("n", [2] * DIM)]):
        changed = {**body, "candidates": other}
        await shared.refused("POST", PATH.format("event"), changed, status=409, code="event_used")
