"""One-shot searches over HTTP: every method, catalogues and vectors of a request, JSON and raw."""

import numpy as np
import pytest

from api_client import Api, Json
from app.api import mips as mips_api
from app.queries.mips import METHODS

pytestmark = pytest.mark.anyio

DIM, ARMS = 2_048, 60
EASY: Json = {"k": 3, "epsilon": 0.5, "delta": 0.1}


def spread_out(n: int = ARMS, dim: int = DIM, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Arms whose means differ by up to 1 under a query of signs, exact in float32."""
    rng = np.random.default_rng(seed)
    query = rng.choice((-1.0, 1.0), size=dim)
    vectors = rng.choice((-1.0, 1.0), size=(n, dim)) + np.linspace(0, 1, n)[:, None] * query
    return vectors.astype(np.float32)[rng.permutation(n)], query


async def stored(api: Api, name: str, vectors: np.ndarray) -> None:
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": vectors.shape[1]}, 201)
    for start in range(0, len(vectors), 50):
        rows = vectors[start : start + 50].astype(float).tolist()
        await api.put_arms(name, {f"a{start + i}": row for i, row in enumerate(rows)})


def by_value(vectors: np.ndarray, query: np.ndarray, objective: str) -> np.ndarray:
    wide = vectors.astype(float)
    values: np.ndarray = (
        (wide * query).sum(axis=1) if objective == "inner_product" else ((wide - query) ** 2).sum(axis=1)
    )
    return values


def hold(answer: Json, values: np.ndarray, objective: str, *, k: int, epsilon: float, dim: int) -> None:
    """The values are true, in order, and as good as promised."""
    name = "index" if "index" in answer["arms"][0] else "id"
    rows = [int(str(arm[name]).removeprefix("a")) for arm in answer["arms"]]
    assert len(set(rows)) == len(rows) == min(k, len(values))
    np.testing.assert_allclose([arm["value"] for arm in answer["arms"]], values[rows], rtol=1e-9)
    sign = 1 if objective == "inner_product" else -1
    assert (np.diff(sign * values[rows]) <= 0).all()
    gap = np.sort(sign * values)[-len(rows)] - (sign * values[rows]).min()
    assert gap <= (epsilon * dim if answer["guarantee"]["kind"] == "pac" else 0.0)
    cost = answer["cost"]
    assert cost["exhaustive_reads"] == len(values) * dim
    assert cost["reads"] is None or 0 < cost["reads"] <= cost["exhaustive_reads"]
    assert answer["elapsed_ms"] > 0


@pytest.mark.parametrize("objective", ["inner_product", "nearest"])
@pytest.mark.parametrize("method", ["bounded_me", "racing", "exact"])
async def test_a_catalogue_is_searched_as_promised(api: Api, method: str, objective: str):
    vectors, query = spread_out()
    await stored(api, "c", vectors)
    body = {**EASY, "query": query.tolist(), "method": method, "objective": objective}
    values = by_value(vectors, query, objective)
    for options in ({}, {"seed": 7}, {"value_range": [-4, 4] if objective == "inner_product" else [0, 9]}):
        answer = await api.ok("POST", "/v1/catalogues/c/mips", {**body, **options})
        hold(answer, values, objective, k=3, epsilon=0.5, dim=DIM)
        assert answer["method"] == method
        assert answer["catalogue_version"] == 2
        promise = answer["guarantee"]
        if method == "exact":
            assert promise == {"kind": "exact", "epsilon": 0, "delta": 0, "reason": None}
        elif objective == "inner_product":
            assert promise == {"kind": "pac", "epsilon": 0.5, "delta": 0.1, "reason": None}
            assert answer["cost"]["reads"] < 0.9 * answer["cost"]["exhaustive_reads"]


async def test_the_layout_follows_every_change_of_the_catalogue(api: Api):
    vectors, query = spread_out()
    await stored(api, "c", vectors)
    body = {**EASY, "query": query.tolist(), "k": 1}
    first = (await api.ok("POST", "/v1/catalogues/c/mips", body))["arms"][0]["id"]
    await api.ok("DELETE", f"/v1/catalogues/c/arms/{first}", status=204)
    await api.put_arms("c", {"new": (1.5 * query).tolist()})
    answer = await api.ok("POST", "/v1/catalogues/c/mips", body)
    assert answer["arms"] == [{"id": "new", "value": 1.5 * DIM}]


@pytest.mark.rest
@pytest.mark.parametrize("method", ["bounded_me", "racing"])
async def test_few_coordinates_are_compared_exactly_and_it_says_so(api: Api, method: str):
    rng = np.random.default_rng(0)
    vectors, query = rng.standard_normal((200, 16)), rng.standard_normal(16)
    await stored(api, "c", vectors)
    body = {"query": query.tolist(), "method": method, "k": 5, "epsilon": 0.3}
    for path, rest in (
        ("/v1/catalogues/c/mips", {}),
        ("/v1/mips", {"vectors": vectors.tolist()}),
        ("/v1/mips", {"vectors": vectors.tolist(), "value_range": [-30, 30]}),
    ):
        answer = await api.ok("POST", path, {**body, **rest})
        hold(answer, by_value(vectors, query, "inner_product"), "inner_product", k=5, epsilon=0.0, dim=16)
        assert answer["guarantee"]["kind"] == "exact"
        assert answer["guarantee"]["reason"]
        assert answer["cost"]["reads"] == 200 * 16


@pytest.mark.rest
@pytest.mark.parametrize("dim", [4, DIM])
@pytest.mark.parametrize("method", ["bounded_me", "racing"])
async def test_a_range_that_does_not_hold_withdraws_the_guarantee(api: Api, method: str, dim: int):
    vectors, query = spread_out(20, dim)
    await stored(api, "c", vectors)
    body = {**EASY, "query": query.tolist(), "method": method, "value_range": [-0.1, 0.1]}
    for path, rest in (("/v1/catalogues/c/mips", {}), ("/v1/mips", {"vectors": vectors.tolist()})):
        promise = (await api.ok("POST", path, {**body, **rest}))["guarantee"]
        assert (promise["kind"], promise["epsilon"], promise["delta"]) == ("none", None, None)
        assert "value_range" in promise["reason"]


@pytest.mark.rest
@pytest.mark.parametrize("objective", ["inner_product", "nearest"])
@pytest.mark.parametrize("method", ["bounded_me", "racing", "exact"])
@pytest.mark.parametrize("where", ["body", "parameter"])
async def test_raw_vectors_are_searched_as_those_in_json(
    shared: Api, method: str, objective: str, where: str
):
    dim = DIM if where == "body" else 300
    vectors, query = spread_out(dim=dim)
    values = by_value(vectors, query, objective)
    span = (-1.0, 2.0) if objective == "inner_product" else (0.0, 9.0)
    options = {"k": 3, "epsilon": 0.5, "delta": 0.1, "method": method, "objective": objective, "seed": 1}
    given = await shared.ok(
        "POST",
        "/v1/mips",
        {**options, "query": query.tolist(), "vectors": vectors.tolist(), "value_range": span},
    )
    raw = vectors.astype("<f4").tobytes()
    params = {**options, "n": ARMS, "dim": dim, "value_range": f"{span[0]},{span[1]}"}
    if where == "parameter":
        params["query"] = ",".join(map(str, query.tolist()))
    else:
        raw = query.astype("<f4").tobytes() + raw
    headers = {"content-type": "application/octet-stream"}
    answer = await shared.ok("POST", "/v1/mips", params=params, content=raw, headers=headers)
    hold(answer, values, objective, k=3, epsilon=0.5, dim=dim)
    assert answer["arms"] == given["arms"]
    assert answer["cost"] == given["cost"]
    assert answer["guarantee"] == given["guarantee"]
    if (method, objective, where) == ("bounded_me", "inner_product", "body"):
        assert answer["guarantee"]["kind"] == "pac"
        assert answer["cost"]["reads"] < answer["cost"]["exhaustive_reads"]


@pytest.mark.rest
async def test_without_a_range_vectors_are_compared_exactly_and_it_says_so(api: Api):
    vectors, query = spread_out()
    body = {**EASY, "query": query.tolist(), "vectors": vectors.tolist()}
    answer = await api.ok("POST", "/v1/mips", body)
    hold(answer, by_value(vectors, query, "inner_product"), "inner_product", k=3, epsilon=0.0, dim=DIM)
    assert answer["guarantee"]["kind"] == "exact"
    assert "value_range" in answer["guarantee"]["reason"]
    assert answer["cost"]["reads"] == vectors.size


@pytest.mark.rest
async def test_a_graph_says_what_it_is(api: Api):
    rng = np.random.default_rng(0)
    vectors, query = rng.standard_normal((300, 16)), rng.standard_normal(16)
    await stored(api, "c", vectors)
    values = by_value(vectors, query, "inner_product")
    body = {"query": query.tolist(), "k": 2, "method": "hnsw"}
    plain = await api.ok("POST", "/v1/catalogues/c/mips", body)
    hold(plain, values, "inner_product", k=2, epsilon=0.0, dim=16)
    assert plain["guarantee"]["kind"] == "exact"
    built = await api.ok("POST", "/v1/mips", {**body, "vectors": vectors.tolist()})
    assert built["guarantee"]["kind"] == "none"
    assert built["cost"] == {"reads": None, "exhaustive_reads": 300 * 16}
    rows = [arm["index"] for arm in built["arms"]]
    np.testing.assert_allclose([arm["value"] for arm in built["arms"]], values[rows], rtol=1e-9)
    whole = await api.ok("POST", "/v1/mips", {**body, "k": 300, "vectors": vectors.tolist()})
    hold(whole, values, "inner_product", k=300, epsilon=0.0, dim=16)
    assert whole["guarantee"]["kind"] == "exact"  # the graph would be slower
    assert whole["cost"] == {"reads": 300 * 16, "exhaustive_reads": 300 * 16}
    for path, rest in (("/v1/catalogues/c/mips", {}), ("/v1/mips", {"vectors": vectors.tolist()})):
        near = {**body, **rest, "objective": "nearest"}
        await api.refused("POST", path, near, loc=["body", "objective"])


@pytest.mark.rest
@pytest.mark.parametrize(
    ("params", "size", "loc"),
    [
        ({"dim": 2}, 24, ["query", "n"]),
        ({"n": 2}, 24, ["query", "dim"]),
        ({"n": 0, "dim": 2}, 8, ["query", "n"]),
        ({"n": "2.0", "dim": 2}, 24, ["query", "n"]),
        ({"n": 2, "dim": 2}, 23, ["body"]),
        ({"n": 2, "dim": 2}, 25, ["body"]),
        ({"n": 2, "dim": 2}, 16, ["body"]),
        ({"n": 2, "dim": 2}, 0, ["body"]),
        ({"n": 10**6, "dim": 10**6}, 24, ["body"]),
        ({"n": 2, "dim": 2, "query": "1,2"}, 24, ["body"]),
        ({"n": 2, "dim": 2, "query": "1"}, 16, ["query", "query"]),
        ({"n": 2, "dim": 2, "query": "1,nan"}, 16, ["query", "query"]),
        ({"n": 2, "dim": 2, "query": "1,1e9"}, 16, ["query", "query", 1]),
        ({"n": 2, "dim": 2, "epsilon": "nan"}, 24, ["query", "epsilon"]),
        ({"n": 2, "dim": 2, "epsilon": "0"}, 24, ["query", "epsilon"]),
        ({"n": 2, "dim": 2, "delta": "1_0"}, 24, ["query", "delta"]),
        ({"n": 2, "dim": 2, "delta": "1"}, 24, ["query", "delta"]),
        ({"n": 2, "dim": 2, "method": "best"}, 24, ["query", "method"]),
        ({"n": 2, "dim": 2, "value_range": "2,1"}, 24, ["query", "value_range"]),
        ({"n": 2, "dim": 2, "value_range": "1"}, 24, ["query", "value_range"]),
        ({"n": 2, "dim": 2, "value_range": "[0,1]"}, 24, ["query", "value_range"]),
        ({"n": 2, "dim": 2, "seed": "-1"}, 24, ["query", "seed"]),
        ({"n": 2, "dim": 2, "k": "1", "extra": "1"}, 24, ["query", "extra"]),
    ],
)
async def test_a_bad_raw_request_is_named(
    shared: Api, params: dict[str, object], size: int, loc: list[str | int]
):
    headers = {"content-type": "application/octet-stream"}
    answer = await shared.call("POST", "/v1/mips", params=params, content=b"\0" * size, headers=headers)
    assert answer.status_code == 422
    assert loc in [error["loc"] for error in answer.json()["errors"]], answer.text


@pytest.mark.rest
def test_the_methods_of_the_contract_are_those_of_the_table():
    assert set(mips_api.MipsMethod.__args__) == set(METHODS)  # type: ignore[attr-defined]
