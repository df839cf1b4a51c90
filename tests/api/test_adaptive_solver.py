"""The ladder of adaptive solvers over HTTP: one-shot searches, and as the solver of sub_ts."""

from __future__ import annotations

import numpy as np
import pytest

from api_client import Api, Json
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM = 8


def arms(count: int, seed: int = 2) -> dict[str, list[float]]:
    rows = np.random.default_rng(seed).normal(size=(count, DIM))
    return {f"a{i}": [float(x) for x in row] for i, row in enumerate(rows)}


async def graph(api: Api, count: int = 600) -> dict[str, list[float]]:
    """A catalogue ``g`` that a graph serves."""
    held = arms(count)
    await api.ok("PUT", "/v1/catalogues/g", {"dim": DIM, "index": {"kind": "hnsw"}}, 201)
    await api.put_arms("g", held)

    async def served() -> bool:
        return bool((await api.ok("GET", "/v1/catalogues/g"))["index"]["kind"] == "hnsw")

    await wait_until(served, what="a graph serves")
    return held


async def search(api: Api, name: str, query: np.ndarray, **rest: object) -> Json:
    body = {"query": query.tolist(), "method": "adaptive", **rest}
    answer: Json = await api.ok("POST", f"/v1/catalogues/{name}/mips", body)
    return answer


@pytest.mark.parametrize("epsilon", [1e-4, 0.05, 1.0])
async def test_an_exact_catalogue_keeps_the_guarantee(api: Api, epsilon: float):
    held = arms(80)
    await api.catalogue("c", held)
    rng = np.random.default_rng(int(1 / epsilon))
    for _ in range(10):
        query = rng.normal(size=DIM) * 10.0 ** rng.integers(-3, 3)
        values = {arm: float(np.dot(row, query)) for arm, row in held.items()}
        answer = await search(api, "c", query, epsilon=epsilon, k=3)
        assert answer["guarantee"]["kind"] == "pac"
        assert (answer["guarantee"]["epsilon"], answer["guarantee"]["delta"]) == (epsilon, 0.0)
        assert answer["cost"] == {"reads": 80 * DIM, "exhaustive_reads": 80 * DIM}
        best = sorted(values.values(), reverse=True)
        for place, arm in enumerate(answer["arms"]):
            assert arm["value"] == pytest.approx(values[arm["id"]])
            assert arm["value"] >= best[place] - epsilon * DIM
        if len(answer["arms"]) < 3:
            assert best[len(answer["arms"])] <= epsilon * DIM / 8 + 1e-9


async def test_null_is_an_answer_and_what_is_finer_than_the_net_is_scanned(api: Api):
    await api.catalogue("c", {"a": [-1.0, -2.0], "b": [-3.0, -1.0]})
    for path, rest in (("/v1/catalogues/c/mips", {}), ("/v1/mips", {"vectors": [[-1, -2], [-3, -1]]})):
        body = {"query": [1, 1], "method": "adaptive", "k": 2, "epsilon": 0.01, **rest}
        null = await api.ok("POST", path, body)
        assert (null["arms"], null["guarantee"]["kind"]) == ([], "pac")
        assert "left out" in null["guarantee"]["reason"]
        fine = await api.ok("POST", path, {**body, "epsilon": 1e-15})
        assert fine["guarantee"]["kind"] == "exact"
        assert [arm["value"] for arm in fine["arms"]] == [-3.0, -4.0]
        await api.refused("POST", path, {**body, "objective": "nearest"}, loc=["body", "objective"])


async def test_graphs_are_asked_and_promise_nothing(api: Api):
    held = await graph(api)
    rng = np.random.default_rng(4)
    for _ in range(20):
        query = rng.normal(size=DIM)
        answer = await search(api, "g", query, epsilon=1e-3)
        assert answer["guarantee"]["kind"] == "none"
        assert answer["cost"]["reads"] is None
        best = max(float(np.dot(row, query)) for row in held.values())
        assert answer["arms"][0]["value"] >= 0.99 * best


async def test_a_choice_is_made_also_when_no_arm_is_good(api: Api):
    await api.catalogue("c", {"a": [-1.0, 0.0], "b": [-2.0, 0.0]})
    await api.bandit("b", "c", policy="sub_ts", solver="adaptive", ridge=0.001, exploration=0.0)
    first = await api.choose("b", k=5)
    assert {arm["id"] for arm in first["arms"]} == {"a", "b"}
    rewards = [("a", -0.4), ("b", -0.8)] * 20
    await api.observe(
        "b", *[{"id": f"{i}", "arm": arm, "value": value} for i, (arm, value) in enumerate(rewards)]
    )
    choice = await api.choose("b")
    assert choice["arms"][0]["id"] == "a"
    assert choice["arms"][0]["score"] == pytest.approx(-0.4, abs=0.01)
    assert choice["exact"] is True  # the ladder has no answer: a scan makes it
