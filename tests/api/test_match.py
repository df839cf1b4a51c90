"""``match``: numbers of a request for an arm, further coordinates of the arm, beside our own numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from test_candidates import PATH, ids

from api_client import Api, Json
from oracle import ridge_of
from shortlist.types import Matrix, Vector

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM, CHOICES, LEVEL = 3, 500, 1e-5
ARMS = {f"a{place}": row for place, row in enumerate(np.random.default_rng(3).normal(size=(40, DIM)))}
FIELDS: list[Json] = [
    {"name": "km", "kind": "number", "mean": 2.0, "scale": 0.5},
    {"name": "from", "kind": "category", "values": ["text", "news"]},
]
MATCH: Json = {"fields": FIELDS}
M = 3
SETTINGS: list[Json] = [
    {"intercept": False},
    {"intercept": True},
    {"intercept": True, "context": {"dim": 2}},
    {"intercept": False, "context": {"dim": 2}, "interactions": 2},
    {"intercept": True, "position": {"examination": [1.0, 0.5]}},
]


def numbers_of(said: Json | None) -> Vector:
    """By the table of kinds, in float32."""
    numbers = np.zeros(M, dtype=np.float32)
    if said and said.get("km") is not None:
        numbers[0] = (said["km"] - 2.0) / 0.5
    if said and said.get("from") in ("text", "news"):
        numbers[1 + ("text", "news").index(said["from"])] = 1.0
    return numbers.astype(float)


def random_match(rng: np.random.Generator) -> Json:
    said: Json = {}
    if rng.random() < 0.8:
        said["km"] = float(rng.normal(2.0, 0.5))
    if rng.random() < 0.7:
        said["from"] = str(rng.choice(["text", "news", "elsewhere"]))
    return said


async def ready(api: Api, name: str, **settings: Any) -> Json:
    if (await api.call("GET", f"/v1/catalogues/{name}")).status_code == 404:
        await api.catalogue(name, ARMS)
    return await api.bandit(name, name, **{"match": MATCH, **settings})


class Seen:
    """What a learner of these settings sees of an arm. ``c``: the constant of its intercept."""

    def __init__(self, settings: Json, directions: Matrix | None = None) -> None:
        self.settings, self.directions = settings, directions
        self.c = float(np.sqrt(np.mean(np.square(list(ARMS.values())))))

    def __call__(self, x: Vector, said: Json | None, u: Vector | None, place: int = 0) -> Vector:
        parts = [x]
        if u is not None:
            parts.append(np.outer(x if self.directions is None else self.directions @ x, u).ravel())
        parts.append(numbers_of(said))
        if self.settings["intercept"]:
            parts.append(np.array([self.c]))
        examined = self.settings.get("position", {"examination": [1.0]})["examination"]
        return float(examined[min(place, len(examined) - 1)]) * np.concatenate(parts)


def shown_numbers(learner: Json, seen: Seen) -> Vector:
    """All numbers of a learner, in the order of ``Seen``."""
    theta, end = learner["theta"], DIM
    parts = [theta[:end], np.ravel(learner.get("weights", [])), theta[end:]]
    if seen.settings["intercept"]:
        parts.append([learner["offset"] / seen.c])
    return np.concatenate(parts)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
async def test_a_learner_is_ridge_on_what_was_sent_in_float32(shared: Api, settings: Json):
    """Of arms of the catalogue and of requests, with and without match; late, twice, also as observations."""
    name = f"taught{SETTINGS.index(settings)}"
    await ready(shared, name, **settings)
    directions = None
    if "interactions" in settings:
        found = await shared.ok("GET", f"/v1/bandits/{name}/learners/_global?include=directions")
        directions = np.array(found["directions"])
    seen, rng = Seen(settings, directions), np.random.default_rng(5)
    rows, values, choices, rewards = list[Vector](), list[float](), [], []
    for number in range(15):
        u = rng.normal(size=2).astype(np.float32).astype(float) if "context" in settings else None
        fields: Json = {} if u is None else {"context": u.tolist()}
        own = {f"n{place}": rng.normal(size=DIM) for place in range(3)} | {"a1": rng.normal(size=DIM)}
        said: dict[str, Json] = {arm: random_match(rng) for arm in ("a2", "a3", "n0", "a1") if number % 5}
        candidates: list[Any] = ["a4", "a5"]
        candidates += [{"id": arm, "match": said[arm]} if arm in said else arm for arm in ("a2", "a3")]
        for arm, row in own.items():
            brought = {"id": arm, "features": row.tolist()}
            candidates.append({**brought, "match": said[arm]} if arm in said else brought)
        answer = await shared.choose(name, k=4, candidates=candidates, **fields)
        choices.append((answer, own, said, u))
    for answer, own, said, u in choices:
        for place, arm in list(enumerate(ids(answer)))[:3]:
            value = float(rng.normal())
            x = own[arm].astype(np.float32).astype(float) if arm in own else ARMS[arm]
            rows.append(seen(x, said.get(arm), u, place))
            values.append(value)
            rewards.append({"decision": answer["decision"], "arm": arm, "value": value})
    assert (await shared.reward(*rewards))["accepted"] == 45
    assert (await shared.reward(*rewards))["duplicate"] == 45
    observed: Json = {"id": "o", "arm": "a9", "value": 2.0}
    u = np.array([0.5, -1.0]) if "context" in settings else None
    if "position" not in settings:
        await shared.observe(name, observed if u is None else {**observed, "context": u.tolist()})
        rows.append(seen(ARMS["a9"], None, u))
        values.append(2.0)
    precision, expected = ridge_of(rows, values)
    learner = await shared.ok("GET", f"/v1/bandits/{name}/learners/_global?include=precision")
    np.testing.assert_allclose(learner["precision"], precision, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(shown_numbers(learner, seen), expected, rtol=0, atol=1e-9)
    names = [f"features.{place}" for place in range(DIM)]
    assert learner["columns"] == [*names, "match.km", "match.from=text", "match.from=news"]


async def taught(api: Api, name: str, **settings: Any) -> tuple[Matrix, Vector]:
    """V and theta of a bandit without an intercept that was taught some rewards."""
    await ready(api, name, **settings)
    rng, rows, values = np.random.default_rng(8), [], []
    for _ in range(30):
        arm, said = str(rng.choice(list(ARMS))), random_match(rng)
        answer = await api.choose(name, candidates=[{"id": arm, "match": said}])
        x = np.concatenate((ARMS[arm], numbers_of(said)))
        value = float(x @ [1.0, -0.5, 0.2, 0.8, -1.0, 0.3] + rng.normal())
        await api.reward({"decision": answer["decision"], "value": value})
        rows.append(x)
        values.append(value)
    return ridge_of(rows, values)


def named(rng: np.random.Generator) -> tuple[list[Any], dict[str, Vector]]:
    """Candidates of both kinds, and what they are by their ids."""
    candidates, rows = list[Any](), dict[str, Vector]()
    for arm in list(ARMS)[:8]:
        said = random_match(rng)
        candidates.append({"id": arm, "match": said})
        rows[arm] = np.concatenate((ARMS[arm], numbers_of(said)))
    for place in range(4):
        said, row = random_match(rng), rng.normal(size=DIM)
        candidates.append({"id": f"n{place}", "features": row.tolist(), "match": said})
        rows[f"n{place}"] = np.concatenate((row.astype(np.float32), numbers_of(said)))
    candidates.append("a20")
    rows["a20"] = np.concatenate((ARMS["a20"], np.zeros(M)))
    return candidates, rows


async def test_estimates_widths_and_the_catalogue_without_candidates(shared: Api):
    gram, theta = await taught(shared, "means", exploration=0, policy="linear_ts")
    candidates, rows = named(np.random.default_rng(1))
    dry = await shared.choose("means", k=13, candidates=candidates, dry_run=True)
    assert ids(dry) == sorted(rows, key=lambda arm: -rows[arm] @ theta)
    for arm in dry["arms"]:
        x = rows[arm["id"]]
        assert arm["estimate"] == pytest.approx(x @ theta, abs=1e-9)
        assert arm["width"] == pytest.approx(np.sqrt(x @ np.linalg.solve(gram, x)), abs=1e-9)
    # without candidates all of them are 0: the search is in the first coordinates, the width by their block
    dry = await shared.choose("means", k=40, dry_run=True)
    assert ids(dry) == sorted(ARMS, key=lambda arm: -ARMS[arm] @ theta[:DIM])
    block = np.linalg.inv(gram)[:DIM, :DIM]
    for arm in dry["arms"]:
        x = ARMS[arm["id"]]
        assert arm["estimate"] == pytest.approx(x @ theta[:DIM], abs=1e-9)
        assert arm["width"] == pytest.approx(np.sqrt(x @ block @ x), abs=1e-9)


@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts"])
async def test_draws_have_the_law_of_the_posterior(shared: Api, policy: str):
    """All scores of a ranking are x.q of one q ~ N(theta, .49 V^-1): chi-square at 1e-5."""
    gram, theta = await taught(shared, policy, policy=policy, exploration=0.7)
    candidates, rows = named(np.random.default_rng(1))
    body = {"candidates": candidates, "include": ["ranking"]}
    requests = [{**body, "seed": seed} for seed in range(CHOICES)]
    answer = await shared.ok("POST", f"/v1/bandits/{policy}/choose/batch", {"requests": requests})
    drawn = []
    for result in answer["results"]:
        X = np.array([rows[each["id"]] for each in result["ranking"]])
        scores = np.array([each["score"] for each in result["ranking"]])
        query = np.linalg.lstsq(X, scores, rcond=None)[0]
        np.testing.assert_allclose(X @ query, scores, rtol=0, atol=1e-9)
        drawn.append(query - theta)
    squares = np.einsum("ij,jk,ik->i", drawn, gram / 0.7**2, drawn)
    assert LEVEL < stats.chi2.cdf(squares.sum(), CHOICES * (DIM + M)) < 1 - LEVEL
    again = await shared.ok("POST", f"/v1/bandits/{policy}/choose/batch", {"requests": requests})
    assert [each["ranking"] for each in again["results"]] == [each["ranking"] for each in answer["results"]]


@pytest.mark.parametrize(
    ("policy", "settings"),
    [("softmax", {"temperature": 0.4}), ("igw", {"gamma": 20.0}), ("epsilon_greedy", {"epsilon": 0.3}),
     ("linucb", {"alpha": 1.5})],
)  # fmt: skip
@pytest.mark.parametrize("intercept", [False, True])
async def test_scores_and_propensities_know_match(shared: Api, policy: str, settings: Json, intercept: bool):
    name = f"{policy}-{intercept}"
    await ready(shared, name, policy=policy, intercept=intercept, **settings)
    candidates, rows = named(np.random.default_rng(1))
    for number, arm in enumerate(list(rows)[:10]):
        answer = await shared.choose(name, candidates=[candidates[number]])
        await shared.reward({"decision": answer["decision"], "value": float(rows[arm] @ np.arange(DIM + M))})
    learner = await shared.ok("GET", f"/v1/bandits/{name}/learners/_global?include=precision")
    theta, offset = np.array(learner["theta"]), learner.get("offset", 0.0)
    arms = list(rows)
    means = {arm: float(rows[arm] @ theta + offset) for arm in arms}
    if policy == "linucb":
        c = Seen({"intercept": True}).c
        inverse = np.linalg.inv(learner["precision"])
        for arm in arms:
            x = np.append(rows[arm], c) if intercept else rows[arm]
            means[arm] += 1.5 * float(np.sqrt(x @ inverse @ x))
    (answer,) = (await shared.ok("POST", f"/v1/bandits/{name}/choose/batch", {
        "requests": [{"candidates": candidates, "include": ["ranking"], "seed": 1, "k": 13}],
    }))["results"]  # fmt: skip
    ranking = {each["id"]: each for each in answer["ranking"]}
    for arm in arms:
        assert ranking[arm]["score"] == pytest.approx(means[arm], abs=1e-9)
    if policy == "softmax":
        weights = np.exp([(means[arm] - max(means.values())) / 0.4 for arm in arms])
        first = [ranking[arm]["first"] for arm in arms]
        np.testing.assert_allclose(first, weights / weights.sum(), rtol=1e-9)
    for arm in answer["arms"]:
        assert arm["score"] == pytest.approx(means[arm["id"]], abs=1e-9)
    # of the whole catalogue all of them are 0
    shown = (await shared.choose(name, k=40, dry_run=True))["arms"]
    for arm in shown:
        estimate = ARMS[arm["id"]] @ theta[:DIM] + offset
        assert arm["estimate"] == pytest.approx(estimate, abs=1e-9)


BAD: list[tuple[Json, list[str | int]]] = [
    ({"id": "a1", "match": {"kms": 1.0}}, ["candidates", 1, "match", "kms"]),
    ({"id": "a1", "match": {"km": "far"}}, ["candidates", 1, "match", "km"]),
    ({"id": "a1", "match": {"km": True}}, ["candidates", 1, "match", "km"]),
    ({"id": "a1", "match": {"km": 1e300}}, ["candidates", 1, "match", "km"]),
    ({"id": "a1", "match": {"from": 3}}, ["candidates", 1, "match", "from"]),
    ({"id": "a1", "match": {"km": 52.1}}, ["candidates", 1, "match"]),
    ({"id": "a1", "match": [1.0]}, ["candidates", 1, "match"]),
    ({"id": "n", "features": [1, 2], "match": {}}, ["candidates", 1, "features"]),
]


async def test_bad_matches_are_named_by_their_path(shared: Api):
    await ready(shared, "bad")
    path = PATH.format("bad")
    for candidate, loc in BAD:
        code = "dimension_mismatch" if "features" in candidate else "invalid"
        body = {"candidates": ["a2", candidate]}
        await shared.refused("POST", path, body, code=code, loc=["body", *loc])
        batch = {"requests": [{}, body]}
        await shared.refused("POST", f"{path}/batch", batch, code=code, loc=["body", "requests", 1, *loc])
    await ready(shared, "without", match=None)
    for said in ({}, {"km": 1.0}):
        body = {"candidates": ["a2", {"id": "a1", "match": said}]}
        loc = ["body", "candidates", 1, "match"]
        await shared.refused("POST", PATH.format("without"), body, loc=loc)
    assert (await shared.learner("bad"))["observations"] == 0


SETTINGS_REFUSED: list[tuple[Json, list[str | int]]] = [
    ({"match": {}}, ["match", "fields"]),
    ({"match": {"fields": []}}, ["match", "fields"]),
    ({"match": {"dim": 3}}, ["match", "dim"]),
    ({"match": {"fields": [*FIELDS, FIELDS[0]]}}, ["match", "fields", 2, "name"]),
    ({"match": {"fields": [{"name": "h", "kind": "hash", "size": 65}]}}, ["match"]),
    ({"match": {"fields": [{"name": "h", "kind": "hash"}]}}, ["match", "fields", 0, "size"]),
    ({"match": MATCH, "policy": "sub_elim", "horizon": 100}, ["match"]),
    ({"match": MATCH, "policy": "linear_elim", "horizon": 100}, ["match"]),
    ({"match": MATCH, "scope": "per_key", "context": {"dim": 84}}, ["interactions"]),
]


async def test_what_a_bandit_may_say_of_match_and_that_it_stays(shared: Api):
    await shared.catalogue("set", ARMS)
    for settings, loc in SETTINGS_REFUSED:
        body = {"catalogue": "set", "policy": "sub_ts", **settings}
        await shared.refused("PUT", "/v1/bandits/set", body, loc=["body", *loc])
    body = {"catalogue": "set", "policy": "sub_ts", "match": MATCH}
    made = await shared.ok("PUT", "/v1/bandits/set", body, 201)
    assert made["match"] == MATCH
    assert await shared.ok("PUT", "/v1/bandits/set", body, 200) == made
    fewer = {"fields": FIELDS[:1]}
    await shared.refused(
        "PATCH", "/v1/bandits/set", {"match": fewer}, status=409, code="not_changeable", loc=["body", "match"]
    )
    problem = await shared.refused(
        "PUT", "/v1/bandits/set", {**body, "match": fewer}, status=409, code="conflict"
    )
    assert "match" in problem["detail"]


async def test_a_token_of_too_many_numbers_names_k_and_d(shared: Api):
    fields = [{"name": "text", "kind": "hash", "size": 64}]
    await shared.catalogue("long", {f"a{place}": [1.0, float(place)] for place in range(300)})
    await shared.bandit("long", "long", match={"fields": fields})
    candidates: list[Json] = [{"id": f"a{place}", "match": {"text": "some words"}} for place in range(300)]
    path = PATH.format("long")
    told = await shared.refused("POST", path, {"candidates": candidates, "k": 193}, loc=["body", "k"])
    assert "192" in told["detail"]
    assert "66 numbers (D)" in told["detail"]
    assert len(ids(await shared.choose("long", candidates=candidates, k=192))) == 192
    silent = [*candidates[:100], *(f"a{place}" for place in range(100, 300))]
    assert len(ids(await shared.choose("long", candidates=silent, k=300))) == 300
    words = {"text": "x" * 1_000}
    many = [{"id": f"a{place}", "match": words} for place in range(70)]
    await shared.refused("POST", path, {"candidates": many}, loc=["body", "candidates", 65, "match"])
