"""Bandits of a catalogue that knows what a history says of keys, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from api_client import Api, Json, running
from app.records.history_prior import history_record
from shortlist.linear import history_prior
from shortlist.linear.history_prior import HistoryPrior
from test_embeddings import BLOCKS, body, numbers
from waiting import wait_until

pytestmark = pytest.mark.anyio

D, ARMS, KEYS, NOISE = 3, 30, 60, 0.3


def world() -> tuple[np.ndarray, HistoryPrior]:
    """Features of arms, and what 60 keys say that like half of what they would."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(KEYS, D)) @ rng.normal(size=(D, ARMS)) + 0.8 * rng.normal(size=ARMS) - 1.0
    likes = (rng.random((KEYS, ARMS)) < 1.0 / (1.0 + np.exp(-scores))).astype(float)
    _, values, vectors = np.linalg.svd(likes, full_matrices=False)
    features = ((vectors[:D] * values[:D, None]).T / values[0]).astype(np.float32).astype(np.float64)
    prior = history_prior.of_embedding(sparse.csr_array(likes), features, np.array([1.0, 0.9, 0.4]))
    assert prior is not None
    return features, prior


FEATURES, PRIOR = world()
IDS = [f"a{number}" for number in range(ARMS)]


def record_of(prior: HistoryPrior = PRIOR) -> Json:
    record = history_record(prior)
    return {name: getattr(record, name) for name in record.__struct_fields__}


def head(name: str, **changes: Any) -> Json:
    counts = {"rewards": 500, "keys": KEYS, "arms": ARMS, "without": 0}
    matrices = {"linear": numbers(np.zeros((D, 1))), "shift": numbers(np.zeros(D)), "kappa": 1e-6}
    return {"catalogue": name, "version": 1, **matrices, **counts, "prior": record_of(), **changes}


async def embedded(api: Api, name: str, **changes: Any) -> Json:
    """A catalogue of the features, with the prior unless it is changed."""
    block = {"ids": IDS, "likes": numbers(np.ones(ARMS)), "vectors": numbers(FEATURES)}
    made = head(name, **changes)
    path = "/v1/catalogues/table/embeddings"
    await api.ok("POST", path, status=201, content=body(made, block), headers=BLOCKS)

    async def filled() -> Json | None:
        found: Json = await api.ok("GET", f"/v1/catalogues/{name}")
        return found if found["filled"] else None

    return await wait_until(filled, what="all arms are there") or {}


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """An application with the catalogue ``c``, which has the prior."""
    async with running(store_url, tmp_path) as api:
        await api.catalogue("table", {arm: [1.0] for arm in IDS})
        await embedded(api, "c")
        yield api


async def make(api: Api, name: str = "b", **fields: Any) -> Json:
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", **fields}
    return await api.ok("PUT", f"/v1/bandits/{name}", body, 201)


def observations(keys: int, rewards: int, *, seed: int = 0) -> list[Json]:
    rng, found = np.random.default_rng(seed), list[Json]()
    for key in range(keys):
        for place in range(rewards):
            arm = int(rng.integers(ARMS))
            value = float(rng.random() < 0.5)
            found.append({"id": f"{seed}-{key}-{place}", "key": f"u{key}", "arm": f"a{arm}", "value": value})
    return found


def fit_of(rewards: list[Json]) -> Any:
    constant, sums = float(np.sqrt((FEATURES**2).mean())), []
    for key in sorted({each["key"] for each in rewards}):
        own = [each for each in rewards if each["key"] == key]
        x = FEATURES[[int(each["arm"][1:]) for each in own]]
        x = np.column_stack((x, np.full(len(x), constant)))
        y = np.array([[each["value"]] for each in own])
        sums.append((x.T @ x, y.T @ x, y.T @ y, float(len(y))))
    grams, moments, products, weights = map(np.array, zip(*sums, strict=True))
    return history_prior.fit(grams, moments, products, weights, PRIOR.first(constant))


async def test_the_first_key_is_served_by_the_history(api: Api):
    shown = (await api.ok("GET", "/v1/catalogues/c"))["behaviour"]
    assert shown["prior"] == {"keys": PRIOR.keys, "directions": 2}
    await make(api)
    prior = await api.ok("GET", "/v1/bandits/b/prior")
    assert (prior["version"], prior["keys"], prior["history"], prior["observations"]) == (
        1, PRIOR.keys, PRIOR.keys, 0.0,
    )  # fmt: skip
    np.testing.assert_allclose(prior["mean"], PRIOR.mean, rtol=1e-9)
    assert prior["noise"] == pytest.approx(np.sqrt(PRIOR.noise))
    run = await api.ok("POST", "/v1/bandits/b/choose", {"key": "ann", "k": 5, "dry_run": True})
    assert run["prior_version"] == 1
    estimates = {arm["id"]: arm["estimate"] for arm in run["arms"]}
    assert estimates == pytest.approx(
        {arm: FEATURES[int(arm[1:])] @ PRIOR.mean for arm in estimates}, rel=1e-5
    )
    used = (await api.ok("GET", "/v1/bandits/b"))["used"]
    assert used["exploration"] == pytest.approx(0.1)
    chosen = await api.choose("b", key="ann", k=3)
    assert chosen["prior_version"] == 1
    told = await api.ok("GET", "/v1/bandits/b/log/priors")
    assert [(each["version"], each["history"]) for each in told["items"]] == [(1, PRIOR.keys)]


@pytest.mark.parametrize("keys", [1, 4, 12])
async def test_a_fit_has_the_history_and_the_own_keys(api: Api, keys: int):
    await make(api)
    rewards = observations(keys, 6)
    await api.observe("b", *rewards)
    found = await api.ok("POST", "/v1/bandits/b/prior/refresh")
    assert (found["keys"], found["history"], found["observations"]) == (
        PRIOR.keys + keys,
        PRIOR.keys,
        6.0 * keys,
    )
    expected = fit_of(rewards)
    assert found["noise"] == pytest.approx(np.sqrt(expected.residuals[0, 0]), rel=1e-5)
    if keys < 10:
        assert found["mean"] is None, "the history's mean is known: theirs would be what is left"
    else:
        np.testing.assert_allclose(found["mean"], expected.mean[0][:D], rtol=1e-4, atol=1e-6)
    used = (await api.ok("GET", "/v1/bandits/b"))["used"]["exploration"]
    assert used == pytest.approx(0.1 + 0.4 * 6.0 / 306.0)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({"prior": "plain"}, None), ({"scope": "global"}, None), ({"policy": "sub_elim"}, None),
        ({"intercept": False}, 1), ({"half_life_s": 60}, 1), ({"policy": "softmax"}, 1),
        ({"policy": "linucb"}, 1), ({"position": {"examination": [1.0, 0.5]}}, 1),
        ({"signals": {"click": {}, "sale": {"weight": 5.0}}}, 1),
        ({"context": {"dim": 2}}, 0),
    ],
    ids=str,
)  # fmt: skip
async def test_which_bandits_begin_with_the_history(api: Api, fields: Json, version: int | None):
    await make(api, **fields)
    if version is None:
        await api.refused("GET", "/v1/bandits/b/prior", status=404, code="not_found")
        return
    assert (await api.ok("GET", "/v1/bandits/b/prior"))["version"] == version
    refreshed = await api.ok("POST", "/v1/bandits/b/prior/refresh")
    assert refreshed["version"] in ({0} if version == 0 else {1, 2})
    assert refreshed["keys"] == (PRIOR.keys if version else 0)


@pytest.mark.rest
async def test_an_embedding_without_a_prior_begins_without(api: Api):
    found = await embedded(api, "bare", prior=None)
    assert found["behaviour"]["prior"] is None
    await make(api, catalogue="bare")
    assert (await api.ok("GET", "/v1/bandits/b/prior"))["version"] == 0


@pytest.mark.rest
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"mean": b""}, "dimension_mismatch"), ({"covariance": b"1234"}, "dimension_mismatch"),
        ({"noise": 0.0}, "invalid"), ({"keys": 3}, "invalid"),
        ({"directions": 9}, "invalid"), ({"liking": float("nan")}, "invalid"),
        ({"covariance": np.zeros(6).tobytes()}, "invalid"),
        ({"mean": np.full(D, np.inf).tobytes()}, "invalid"),
    ],
    ids=str,
)  # fmt: skip
async def test_what_is_no_prior_is_refused_and_nothing_is_made(api: Api, changes: Json, code: str):
    made = head("bad", prior=record_of() | changes)
    path = "/v1/catalogues/table/embeddings"
    problem = await api.refused(
        "POST", path, status=422, code=code, loc=["body", "prior"], content=body(made), headers=BLOCKS
    )
    assert problem["errors"]
    await api.refused("GET", "/v1/catalogues/bad", status=404, code="not_found")


@pytest.mark.rest
async def test_a_bandit_keeps_the_history_through_moves(api: Api, tmp_path: Path):
    """To features that are turned, where the catalogue knows nothing of keys, and back."""
    await make(api)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(D, D)))[0]
    await api.catalogue("turned", dict(zip(IDS, (FEATURES @ turn).tolist(), strict=True)))
    before = await api.ok("GET", "/v1/bandits/b/prior")
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "turned"})
    after = await api.ok("GET", "/v1/bandits/b/prior")
    assert (after["version"], after["history"]) == (2, PRIOR.keys)
    np.testing.assert_allclose(turn @ after["mean"], before["mean"], rtol=1e-3, atol=1e-3)
    refreshed = await api.ok("POST", "/v1/bandits/b/prior/refresh")
    assert refreshed["history"] == PRIOR.keys
    np.testing.assert_allclose(refreshed["mean"], after["mean"], rtol=1e-9)
    await api.observe("b", *observations(12, 6))
    assert (await api.ok("POST", "/v1/bandits/b/prior/refresh"))["keys"] == PRIOR.keys + 12

    async def carried() -> bool:
        return "move" not in await api.ok("GET", "/v1/bandits/b")

    await wait_until(carried, what="learners are carried")
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "c"})
    back = await api.ok("POST", "/v1/bandits/b/prior/refresh")
    assert (back["keys"], back["history"]) == (PRIOR.keys + 12, PRIOR.keys)


@pytest.mark.rest
async def test_explanations_and_evaluations_know_what_a_bandit_began_with(api: Api):
    await make(api, log={"keep_s": 3600}, policy="softmax", temperature=0.5)
    rng = np.random.default_rng(0)
    first = await api.choose("b", key="new", k=2)
    assert first["prior_version"] == 1
    for number in range(40):
        chosen = await api.choose("b", key=f"u{number % 8}", k=2)
        rewards = [
            {"decision": chosen["decision"], "arm": arm["id"], "value": float(rng.random() < 0.4)}
            for arm in chosen["arms"]
        ]
        await api.reward(*rewards)
    assert (await api.ok("POST", "/v1/bandits/b/prior/refresh"))["version"] > 1

    async def row() -> Json | None:
        answer = await api.call("POST", "/v1/bandits/b/log/explain", {"decision": first["decision"]})
        return answer.json() if answer.status_code == 200 else None

    explained = await wait_until(row, what="the row") or {}
    assert (explained["repeated"], explained["changed"]) == (True, [])
    assert explained["row"]["prior_version"] == 1
    assert all(arm["prior"] is not None for arm in explained["candidates"])
    for learners in ("before", "now"):
        asked = {"policy": {"temperature": 1.0}, "learners": learners}
        found = await api.ok("POST", "/v1/bandits/b/evaluations", asked)
        assert found["logged"]["decisions"] >= 39
