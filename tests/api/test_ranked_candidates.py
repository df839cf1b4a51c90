"""What each policy makes of candidates, beside our own numpy: estimates, draws, propensities and rankings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from api_client import Api, Json
from oracle import ridge_of
from shortlist.types import Matrix, Vector

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM, CATALOGUE, CHOICES, LEVEL = 4, 900, 500, 1e-5
NAMED, BROUGHT = 8, 5
RNG = np.random.default_rng(20)
ROWS = {f"a{place}": row for place, row in enumerate(RNG.normal(size=(CATALOGUE, DIM)))}
OWN = {f"n{place}": row.astype(np.float32) for place, row in enumerate(RNG.normal(size=(BROUGHT, DIM)))}
CANDIDATES: list[Any] = [
    *list(ROWS)[:NAMED],
    *({"id": arm, "features": [float(number) for number in row]} for arm, row in OWN.items()),
]
AMONG = {arm: row for arm, row in ROWS.items() if arm in CANDIDATES} | {
    arm: row.astype(float) for arm, row in OWN.items()
}
POLICIES: dict[str, Json] = {
    "sub_ts": {"exploration": 0.7},
    "linear_ts": {"exploration": 0.7},
    "linucb": {"alpha": 1.5},
    "softmax": {"temperature": 0.4},
    "igw": {"gamma": 20.0},
    "epsilon_greedy": {"epsilon": 0.3},
}


@pytest.fixture(scope="module")
async def taught(shared: Api) -> tuple[Api, Matrix, Vector]:
    """A bandit of each policy that was taught the same. Also V and theta."""
    await shared.catalogue("c", ROWS)
    rng, history = np.random.default_rng(4), []
    for number, arm in enumerate(rng.choice(list(ROWS), 40, replace=False).tolist()):
        value = float(ROWS[arm] @ [1.0, -0.5, 0.2, 0.0] + rng.normal())
        history.append({"id": f"o{number}", "arm": arm, "value": value})
    for policy, settings in POLICIES.items():
        await shared.bandit(policy, "c", policy=policy, **settings)
        await shared.observe(policy, *history)
    return shared, *ridge_of([ROWS[each["arm"]] for each in history], [each["value"] for each in history])


async def many(api: Api, policy: str, **fields: Any) -> list[Json]:
    body = {"requests": [{"candidates": CANDIDATES, "seed": seed, **fields} for seed in range(CHOICES)]}
    answer = await api.ok("POST", f"/v1/bandits/{policy}/choose/batch", body)
    results: list[Json] = answer["results"]
    return results


@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts"])
async def test_what_is_drawn_of_candidates_has_the_law_of_the_posterior(
    taught: tuple[Api, Matrix, Vector], policy: str
):
    """All scores of a ranking are x.q of one q, and q ~ N(theta, .49 V^-1): chi-square at 1e-5."""
    api, gram, theta = taught
    drawn = []
    for answer in await many(api, policy, k=3, include=["ranking"]):
        ranking = answer["ranking"]
        assert {each["id"] for each in ranking} == set(AMONG)
        assert [each["id"] for each in ranking[:3]] == [arm["id"] for arm in answer["arms"]]
        assert "first" not in ranking[0]
        X = np.array([AMONG[each["id"]] for each in ranking])
        scores = np.array([each["score"] for each in ranking])
        assert (np.diff(scores) <= 0).all()
        query = np.linalg.lstsq(X, scores, rcond=None)[0]
        np.testing.assert_allclose(X @ query, scores, rtol=0, atol=1e-9)
        drawn.append(query - theta)
    squares = np.einsum("ij,jk,ik->i", drawn, gram / 0.7**2, drawn)
    assert LEVEL < stats.chi2.cdf(squares.sum(), CHOICES * DIM) < 1 - LEVEL
    assert stats.kstest(squares, stats.chi2(DIM).cdf).pvalue > LEVEL


async def test_the_bounds_of_candidates_are_those_of_their_features(taught: tuple[Api, Matrix, Vector]):
    api, gram, theta = taught
    (answer,) = (await many(api, "linucb", k=4, include=["ranking"]))[:1]
    for each in answer["ranking"]:
        x = AMONG[each["id"]]
        bound = x @ theta + 1.5 * np.sqrt(x @ np.linalg.solve(gram, x))
        assert each["score"] == pytest.approx(bound, abs=1e-9)
    assert [each["id"] for each in answer["ranking"][:4]] == [arm["id"] for arm in answer["arms"]]


def expected_first(policy: str, estimates: Vector) -> Vector:
    if policy == "softmax":
        weights = np.exp((estimates - estimates.max()) / 0.4)
        return np.asarray(weights / weights.sum())
    best = int(estimates.argmax())
    if policy == "igw":
        first = 1 / (len(estimates) + 20.0 * (estimates[best] - estimates))
    else:
        first = np.full(len(estimates), 0.3 / len(estimates))
    first[best] = 0.0
    first[best] = 1 - first.sum()
    return np.asarray(first)


@pytest.mark.parametrize("policy", ["softmax", "igw", "epsilon_greedy"])
async def test_propensities_of_candidates_are_exact_and_are_how_often_they_stand_first(
    taught: tuple[Api, Matrix, Vector], policy: str
):
    """Chi-square of who stands first in 500 choices, at 1e-5."""
    api, _, theta = taught
    arms = list(AMONG)
    estimates = np.array([AMONG[arm] @ theta for arm in arms])
    first = dict(zip(arms, expected_first(policy, estimates), strict=True))
    counts = dict.fromkeys(arms, 0)
    for answer in await many(api, policy, include=["ranking"]):
        (shown,) = answer["arms"]
        counts[shown["id"]] += 1
        assert shown["propensity"] == pytest.approx(first[shown["id"]], rel=1e-9)
        assert [each["id"] for each in answer["ranking"]] == sorted(arms, key=lambda arm: -AMONG[arm] @ theta)
        for each in answer["ranking"]:
            assert each["first"] == pytest.approx(first[each["id"]], rel=1e-9)
            assert each["score"] == pytest.approx(AMONG[each["id"]] @ theta, abs=1e-9)
    rare = [arm for arm in arms if CHOICES * first[arm] < 5]
    groups = [[arm] for arm in arms if arm not in rare] + ([rare] if rare else [])
    observed = [sum(counts[arm] for arm in group) for group in groups]
    likely = [CHOICES * sum(first[arm] for arm in group) for group in groups]
    assert stats.chisquare(observed, np.array(likely) * CHOICES / sum(likely)).pvalue > LEVEL


@pytest.mark.parametrize("policy", ["softmax", "igw", "epsilon_greedy"])
async def test_first_is_within_all_that_the_request_says(taught: tuple[Api, Matrix, Vector], policy: str):
    api, _, theta = taught
    left = [arm for arm in AMONG if arm not in ("a0", "n1")]
    first = expected_first(policy, np.array([AMONG[arm] @ theta for arm in left]))
    body: Json = {"candidates": CANDIDATES, "exclude": ["a0", "n1"], "include": ["ranking"]}
    for extra in ({}, {"dry_run": True}):
        ranking = {each["id"]: each for each in (await api.choose(policy, **body, **extra))["ranking"]}
        assert set(ranking) == set(AMONG)
        assert [ranking[arm]["first"] for arm in left] == pytest.approx(first.tolist(), rel=1e-9)
        assert ranking["a0"]["first"] == ranking["n1"]["first"] == 0
        assert {arm for arm, each in ranking.items() if "eligible" in each} == {"a0", "n1"}
    pinned = await api.choose(policy, **body, k=2, rules={"pin": [{"arm": "a0", "place": 1}]})
    assert {each["id"] for each in pinned["ranking"] if each["first"]} == {"a0"}
    assert [each["id"] for each in pinned["ranking"] if not each.get("eligible", True)] == ["n1"]
    path = f"/v1/bandits/{policy}/choose"
    await api.refused("POST", path, {"include": ["ranking"]}, loc=["body", "include", 0])


@pytest.mark.parametrize("policy", POLICIES)
async def test_candidates_that_are_the_whole_catalogue_choose_as_without(
    taught: tuple[Api, Matrix, Vector], policy: str
):
    """By the same seeds, in any order of the candidates."""
    api, _, _ = taught
    order = np.random.default_rng(1).permutation(list(ROWS)).tolist()
    for seed in range(15):
        body: Json = {"k": 4, "seed": seed, "exclude": ["a5"]}
        without = (await api.choose(policy, **body))["arms"]
        among = (await api.choose(policy, **body, candidates=order))["arms"]
        assert [arm["id"] for arm in among] == [arm["id"] for arm in without]
        for one, other in zip(among, without, strict=True):
            assert one["score"] == pytest.approx(other["score"], abs=1e-9)
            assert one.get("propensity", 0) == pytest.approx(other.get("propensity", 0), rel=1e-9)
