"""Policy igw: what can be drawn, and that its propensities are exact with all that a choice can ask for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from api_client import Api, Json

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

GAMMA, SHORTLIST = 8.0, 4
FEATURES = np.random.default_rng(8).normal(size=(40, 3))
ARMS = {f"a{number}": row for number, row in enumerate(FEATURES)}


async def build(api: Api, name: str, **rest: object) -> dict[str, float]:
    """A bandit that has learned something; returns the estimate of every arm."""
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": 3}, 201)
    arms = [
        {"id": arm, "features": row.tolist(), "metadata": {"even": number % 2 == 0, "part": number % 4}}
        for number, (arm, row) in enumerate(ARMS.items())
    ]
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": arms})
    await api.bandit(name, name, **{"policy": "igw", "gamma": GAMMA, "shortlist": SHORTLIST, **rest})
    who = {"key": "ann"} if rest.get("scope") == "per_key" else {}
    theta = np.array([0.5, -0.3, 0.2])
    for arm in ("a0", "a1", "a2", "a3"):
        await api.observe(name, {"id": arm, "arm": arm, "value": float(ARMS[arm] @ theta), **who})
    learner = await api.learner(name, who.get("key", "_global"))
    return {
        arm: float(row @ np.array(learner["theta"])) + learner.get("offset", 0.0) for arm, row in ARMS.items()
    }


async def many(api: Api, name: str, count: int, **request: object) -> list[Json]:
    body = {"requests": [{**request, "seed": seed} for seed in range(count)]}
    answers: list[Json] = (await api.ok("POST", f"/v1/bandits/{name}/choose/batch", body))["results"]
    return answers


def propensities(estimates: dict[str, float], order: list[str], candidates: set[str]) -> list[float]:
    """Of each arm of a list, given those before it."""
    left, found = dict.fromkeys(sorted(candidates), 0.0), []
    for arm in order:
        best = max(left, key=lambda other: estimates[other])
        weights = {other: 1 / (len(left) + GAMMA * (estimates[best] - estimates[other])) for other in left}
        weights[best] = 1 - sum(weight for other, weight in weights.items() if other != best)
        found.append(weights[arm])
        del left[arm]
    return found


ASKS: list[Json] = [
    {},
    {"k": 3},
    {"k": 3, "exclude": ["a3", "a8"]},
    {"k": 3, "filter": {"even": True}},
    {"k": 2, "filter": {"part": 1}, "exclude": ["a5"]},
    {"k": 2, "filter": {"even": {"$exists": True}}},
]


@pytest.mark.parametrize(
    ("ask", "rest"),
    [*((ask, {}) for ask in ASKS), (ASKS[2], {"intercept": True}), (ASKS[4], {"half_life_s": 1e6})],
    ids=str,
)
async def test_propensities_are_those_of_the_best_arms_and_a_cover(shared: Api, ask: Json, rest: Json):
    name = f"drawn-{ASKS.index(ask)}-{'-'.join(rest)}"
    estimates = await build(shared, name, **rest)
    answers = await many(shared, name, 400, **ask)
    seen = {arm["id"] for answer in answers for arm in answer["arms"]}
    wanted = ask.get("filter", {})
    eligible = [
        arm
        for number, arm in enumerate(ARMS)
        if arm not in ask.get("exclude", ())
        and wanted.get("even") in (None, number % 2 == 0, {"$exists": True})
        and wanted.get("part") in (None, number % 4)
    ]
    best = sorted(eligible, key=lambda arm: -estimates[arm])[:SHORTLIST]
    assert set(best) <= seen <= set(eligible)
    assert SHORTLIST < len(seen) <= 2 * SHORTLIST
    for answer in answers:
        order = [arm["id"] for arm in answer["arms"]]
        assert len(set(order)) == ask.get("k", 1)
        assert answer["exact"]
        expected = propensities(estimates, order, seen)
        assert [arm["propensity"] for arm in answer["arms"]] == pytest.approx(expected, rel=1e-6)
        for arm in answer["arms"]:
            assert arm["score"] == pytest.approx(estimates[arm["id"]], abs=1e-9)
    first = Counter(answer["arms"][0]["id"] for answer in answers)
    for arm in seen:
        (p,) = propensities(estimates, [arm], seen)
        assert abs(first[arm] - 400 * p) < 5.0 * np.sqrt(400 * p)


async def test_each_filter_has_a_cover_of_its_own(shared: Api):
    """Arms of the first filter cover none of the second."""
    await build(shared, "covers")
    for part in range(2):
        answers = await many(shared, "covers", 400, filter={"part": part})
        assert len({answer["arms"][0]["id"] for answer in answers}) > SHORTLIST


async def test_few_eligible_arms_are_all_candidates(shared: Api):
    estimates = await build(shared, "few")
    wanted = {"filter": {"part": 2}, "exclude": [f"a{number}" for number in range(2, 30, 4)]}
    left = {"a30", "a34", "a38"}
    for answer in await many(shared, "few", 50, k=5, **wanted):
        order = [arm["id"] for arm in answer["arms"]]
        assert set(order) == left
        expected = propensities(estimates, order, left)
        assert [arm["propensity"] for arm in answer["arms"]] == pytest.approx(expected)
        assert answer["eligible"] == 10
    for filter_ in ({"part": 9}, {"part": 2, "even": False}):
        await shared.refused(
            "POST", "/v1/bandits/few/choose", {"filter": filter_}, status=409, code="no_arms"
        )


async def test_without_gamma_all_candidates_are_alike_and_a_large_one_is_greedy(shared: Api):
    estimates = await build(shared, "uniform", gamma=0)
    seen = {answer["arms"][0]["propensity"] for answer in await many(shared, "uniform", 50)}
    assert len(seen) == 1
    assert 1 / (2 * SHORTLIST) <= seen.pop() < 1 / SHORTLIST
    await shared.bandit("greedy", "uniform", policy="igw", gamma=1e9)
    for arm in ("a0", "a1", "a2", "a3"):
        await shared.observe("greedy", {"id": arm, "arm": arm, "value": estimates[arm]})
    theta = np.array((await shared.learner("greedy"))["theta"])
    best = sorted(ARMS, key=lambda arm: -float(ARMS[arm] @ theta))[:3]
    for answer in await many(shared, "greedy", 20, k=3):
        assert [arm["id"] for arm in answer["arms"]] == best


async def test_a_new_arm_is_a_candidate_when_it_is_among_the_best(shared: Api):
    estimates = await build(shared, "grown")
    theta = np.array((await shared.learner("grown"))["theta"])
    far = theta / np.linalg.norm(theta) * 5.0
    await shared.put_arms("grown", {"far": far})
    found = Counter(answer["arms"][0]["id"] for answer in await many(shared, "grown", 100))
    assert found.most_common(1)[0][0] == "far"
    await shared.ok("DELETE", "/v1/catalogues/grown/arms/far", status=204)
    found = Counter(answer["arms"][0]["id"] for answer in await many(shared, "grown", 100))
    assert "far" not in found
    assert found.most_common(1)[0][0] == max(estimates, key=lambda arm: estimates[arm])
