"""Centres from noisy distances: greedy's centres, answers late, again and lost, kills, bad input."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from api_client import Api, Json, running
from center_brute_force import greedy, radius, squared

pytestmark = pytest.mark.anyio

METHODS = ("ns_ts", "ns_ucb", "ns_tands")
NAMES = [f"p{i}" for i in range(10)]
Measure = Callable[[int, int], float]


def distances(seed: int = 0) -> np.ndarray:
    """Normalised squared distances of ten points whose greedy order is clear."""
    rng = np.random.default_rng(seed)
    reach = np.concatenate((np.linspace(1.0, 0.5, 6), rng.uniform(0.05, 0.3, 4)))
    return squared(rng.choice((-0.5, 0.5), (10, 400)) * reach[:, None]) / 400


def noisy(matrix: np.ndarray, std: float, seed: int = 1) -> Measure:
    rng = np.random.default_rng(seed)
    return lambda u, v: float(matrix[u, v] + std * rng.standard_normal())


def answered(queries: list[Json], measure: Measure) -> list[Json]:
    return [
        {"query": query["query"], "distance": measure(*(NAMES.index(point) for point in query["pair"]))}
        for query in queries
    ]


async def make(api: Api, name: str = "c", **body: object) -> Json:
    body = {"points": NAMES, "k": 3, "noise_std": 0.05, "first": "p0", "seed": 1, **body}
    made: Json = await api.ok("POST", "/v1/centers", {"id": name, **body}, 201)
    return made


async def ask(api: Api, count: int, name: str = "c") -> list[Json]:
    answer = await api.ok("POST", f"/v1/centers/{name}/ask", {"count": count})
    queries: list[Json] = answer["queries"]
    return queries


async def tell(api: Api, results: list[Json], name: str = "c") -> Json:
    answer: Json = await api.ok("POST", f"/v1/centers/{name}/tell", {"results": results})
    assert set(answer) == {"observed", "duplicate", "done"}
    return answer


async def finish(api: Api, measure: Measure, name: str = "c", *, count: int = 200) -> Json:
    for _ in range(500):
        queries = await ask(api, count, name)
        if not queries:
            break
        told = await tell(api, answered(queries, measure), name)
        assert told["observed"] == len(queries)
    state: Json = await api.ok("GET", f"/v1/centers/{name}")
    assert state["state"] == "done"
    return state


@pytest.mark.parametrize(
    ("method", "std"), [*((method, 0.05) for method in METHODS), ("ns_ts", None)], ids=str
)
async def test_the_centres_are_those_of_greedy(api: Api, method: str, std: float | None):
    matrix = distances()
    made = await make(api, method=method, noise_std=std, delta=1e-3)
    assert (made["state"], made["centers"], made["observed"], made["radius"]) == ("sampling", ["p0"], 0, None)
    state = await finish(api, noisy(matrix, 0.05))
    wanted = greedy(matrix, 3, 0)
    assert state["centers"] == [NAMES[place] for place in wanted]
    assert state["observed"] == state["issued"]
    assert state["guarantee"]["kind"] == "pac"
    assert state["guarantee"]["epsilon"] == pytest.approx(0.005, rel=1e-9 if std else 0.3)
    assert state["radius"] >= radius(matrix, wanted) - 0.05
    assert await ask(api, 5) == []


async def test_answers_come_late_again_and_in_any_order(api: Api):
    matrix, rng = distances(), np.random.default_rng(5)
    measure, late, told = noisy(matrix, 0.05), [], []
    await make(api)
    while True:
        queries = await ask(api, 40)
        if not queries:
            break
        results = answered(queries, measure)
        rng.shuffle(results)
        late += results[:8]
        receipt = await tell(api, [*results[8:], *told[:3], results[8]])
        assert (receipt["observed"], receipt["duplicate"]) == (32, 4 if told else 1)
        told += results[8:]
    state = await api.ok("GET", "/v1/centers/c")
    assert state["centers"] == [NAMES[place] for place in greedy(matrix, 3, 0)]
    assert state["observed"] == len(told)
    assert (await tell(api, late))["observed"] == len(late)
    assert (await tell(api, late))["duplicate"] == len(late)
    after = await api.ok("GET", "/v1/centers/c")
    assert after["centers"] == state["centers"]


@pytest.mark.rest
async def test_a_campaign_continues_after_a_restart_as_if_nothing_had_happened(
    store_url: str, tmp_path: Path
):
    matrix = distances()

    async def steps(api: Api, name: str, measure: Measure, count: int) -> list[list[str]]:
        pairs = []
        for _ in range(count):
            queries = await ask(api, 20, name)
            pairs += [query["pair"] for query in queries]
            await tell(api, answered(queries[:18], measure), name)
        return pairs

    one, other = noisy(matrix, 0.05), noisy(matrix, 0.05)
    async with running(store_url, tmp_path) as api:
        for name in ("c", "twin"):
            await make(api, name, noise_std=None)
        twin = await steps(api, "twin", one, 30)
        pairs = await steps(api, "c", other, 12)
    async with running(store_url, tmp_path, empty=False) as api:
        pairs += await steps(api, "c", other, 18)
        states = [await api.ok("GET", f"/v1/centers/{name}") for name in ("c", "twin")]
    assert pairs == twin
    assert [{**state, "id": ""} for state in states] == [{**states[0], "id": ""}] * 2


@pytest.mark.rest
@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"k": 0}, ["k"]),
        ({"k": 11}, ["k"]),
        ({"k": 1_001}, ["k"]),
        ({"points": []}, ["points"]),
        ({"points": ["p0", "p1", "p0"]}, ["points", 2]),
        ({"first": "unknown"}, ["first"]),
        ({"noise_std": 0}, ["noise_std"]),
        ({"noise_std": -1}, ["noise_std"]),
        ({"noise": "laplace"}, ["noise"]),
        ({"delta": 0}, ["delta"]),
        ({"delta": 1}, ["delta"]),
        ({"epsilon": -0.1}, ["epsilon"]),
        ({"mix": 1.1}, ["mix"]),
        ({"threshold": "none"}, ["threshold"]),
        ({"method": "ds_ucb"}, ["method"]),
        ({"id": "_c"}, ["id"]),
        ({"points": [f"q{i}" for i in range(1_001)], "k": 100}, []),
    ],
)
async def test_bad_campaigns_are_named(shared: Api, change: Json, place: list[str | int]):
    body = {"id": "bad", "points": NAMES, "k": 3, "noise_std": 0.05, **change}
    await shared.refused("POST", "/v1/centers", body, loc=["body", *place])
    await shared.refused("GET", "/v1/centers/bad", status=404, code="not_found")


@pytest.mark.rest
async def test_too_many_points(shared: Api):
    body = {"id": "bad", "points": [f"p{i}" for i in range(10_001)], "k": 1}
    await shared.refused("POST", "/v1/centers", body, status=413, code="too_large", loc=["body", "points"])


@pytest.mark.rest
async def test_bad_results_are_named_and_change_nothing(api: Api):
    await make(api, noise="bernoulli", noise_std=None)
    queries = await ask(api, 3)
    good = answered(queries, lambda *_: 0.5)
    before = await api.stored()
    other = {"query": good[0]["query"][:-1] + "9", "distance": 0.5}
    for bad, place in (
        (other, ["results", 3, "query"]),
        ({"query": "nonsense", "distance": 0.5}, ["results", 3, "query"]),
        ({**good[0], "distance": 1.5}, ["results", 3, "distance"]),
        ({**good[0], "distance": -0.5}, ["results", 3, "distance"]),
        ({**good[0], "distance": "0.5"}, ["results", 3, "distance"]),
        ({**good[0], "distance": None}, ["results", 3, "distance"]),
        ({**good[0], "distance": True}, ["results", 3, "distance"]),
        ({**good[0], "distance": 1e300}, ["results", 3, "distance"]),
    ):
        await api.refused("POST", "/v1/centers/c/tell", {"results": [*good, bad]}, loc=["body", *place])
    for text in ("NaN", "Infinity", "1e999"):
        content = f'{{"results": [{{"query": "{good[0]["query"]}", "distance": {text}}}]}}'
        await api.refused("POST", "/v1/centers/c/tell", content=content)
    await api.refused("POST", "/v1/centers/c/ask", {"count": 0}, loc=["body", "count"])
    await api.refused("POST", "/v1/centers/c/ask", {"count": 10_001}, loc=["body", "count"])
    assert await api.stored() == before
    assert (await tell(api, good))["observed"] == 3
