"""The least delta that a promise may have, and less: answered or refused by name, whatever the method."""

import numpy as np
import pytest
from endpoints import WRITES, Endpoint, build_world, with_token

from api_client import Api, Json
from shortlist.checks import MIN_DELTA

pytestmark = pytest.mark.anyio

ENDPOINTS = [endpoint for endpoint in WRITES if "delta" in endpoint.kinds]
DRAWS = [{"method": method} for method in ("racing_normal", "racing_ebs", "lil_ucb", "exact")]
SEARCHES = [{"method": method} for method in ("bounded_me", "racing", "exact")]
CENTERS = [
    {"method": method, "ci": ci} for method in ("ds_ucb", "ds_ts") for ci in ("kl", "lil", "experiment")
]
NOISY = [{"method": method} for method in ("ns_ts", "ns_ucb", "ns_tands")]
UNKNOWN = [{**one, "noise_std": None, "threshold": "heuristic"} for one in NOISY]
SLATES = [{"method": method, "bound": "certified"} for method in ("saqm", "icb", "exhaustive")]
METHODS: dict[str, list[Json]] = {
    "/v1/catalogues/{catalogue}/centers": CENTERS,
    "/v1/catalogues/{catalogue}/mips": SEARCHES,
    "/v1/mips": SEARCHES,
    "/v1/sample": DRAWS,
    "/v1/catalogues/{catalogue}/sample": DRAWS,
    "/v1/slates": SLATES,
    "/v1/centers": [*NOISY, *UNKNOWN],
}
CASES = [
    pytest.param(endpoint, method, id=f"{endpoint} {' '.join(map(str, method.values()))}")
    for endpoint in ENDPOINTS
    for method in METHODS.get(endpoint.template, [{}])
]


def test_every_method_of_a_table_has_its_route() -> None:
    assert {endpoint.template for endpoint in ENDPOINTS} >= set(METHODS)


def body_of(endpoint: Endpoint, method: Json, delta: float, token: str) -> Json:
    assert endpoint.body is not None
    return {**with_token(endpoint.body, token), **method, "delta": delta}


@pytest.mark.parametrize(("endpoint", "method"), CASES)
async def test_the_least_delta_serves_every_method(api: Api, endpoint: Endpoint, method: Json):
    token = await build_world(api)
    answer = await api.call(endpoint.method, endpoint.path, body_of(endpoint, method, MIN_DELTA, token))
    assert answer.status_code in (200, 201), answer.text


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 0.999 * MIN_DELTA])
async def test_a_smaller_one_is_refused_by_name(api: Api, endpoint: Endpoint, delta: float):
    token = await build_world(api)
    body = body_of(endpoint, {}, delta, token)
    await api.refused(endpoint.method, endpoint.path, body, loc=["body", "delta"])


@pytest.mark.parametrize("method", [*NOISY, *UNKNOWN])
async def test_a_search_for_centres_goes_on_with_it(api: Api, method: Json):
    body = {"id": "n", "points": ["p", "q", "r"], "k": 2, "noise_std": 0.1, "delta": MIN_DELTA, "seed": 1}
    await api.ok("POST", "/v1/centers", {**body, **method}, 201)
    for _ in range(20):
        asked = (await api.ok("POST", "/v1/centers/n/ask", {"count": 5}))["queries"]
        results = [{"query": one["query"], "distance": 1.0 + 0.01 * i} for i, one in enumerate(asked)]
        await api.ok("POST", "/v1/centers/n/tell", {"results": results})


@pytest.mark.parametrize("method", [*SLATES, {"method": "sa_foa"}])
async def test_a_slate_campaign_goes_on_with_it(api: Api, method: Json):
    body = {"id": "s", "arms": ["a", "b", "c", "d"], "k": 2, "noise_std": 1.0, "delta": MIN_DELTA, "seed": 1}
    await api.ok("POST", "/v1/slates", {**body, **method}, 201)
    for _ in range(20):
        asked = (await api.ok("POST", "/v1/slates/s/ask", {"count": 5}))["pulls"]
        results = [{"pull": one["pull"], "total": 1.0 + ("a" in one["slate"])} for one in asked]
        await api.ok("POST", "/v1/slates/s/tell", {"results": results})


@pytest.mark.parametrize("method", DRAWS)
async def test_many_factors_and_arms_share_it(api: Api, method: Json):
    rng = np.random.default_rng(5)
    asked = {**method, "delta": MIN_DELTA, "seed": 1}
    factors = rng.normal(size=(30, 2_000)).tolist()
    assert len((await api.ok("POST", "/v1/sample", {"log_factors": factors, **asked}))["draws"]) == 1
    await api.catalogue("many", {f"a{i}": row for i, row in enumerate(rng.normal(size=(30, 900)))})
    body = {"query": rng.normal(size=900).tolist(), **asked}
    assert len((await api.ok("POST", "/v1/catalogues/many/sample", body))["draws"]) == 1


@pytest.mark.parametrize("method", SEARCHES)
async def test_many_arms_share_it(api: Api, method: Json):
    rng = np.random.default_rng(6)
    await api.catalogue("many", {f"a{i}": row for i, row in enumerate(rng.normal(size=(200, 900)))})
    body = {"query": rng.normal(size=900).tolist(), "epsilon": 1e-3, "delta": MIN_DELTA, "seed": 1, **method}
    assert len((await api.ok("POST", "/v1/catalogues/many/mips", body))["arms"]) == 1


@pytest.mark.parametrize("method", CENTERS)
async def test_many_pairs_share_it(api: Api, method: Json):
    rng = np.random.default_rng(7)
    await api.catalogue("many", {f"a{i}": row for i, row in enumerate(rng.normal(size=(60, 900)))})
    body = {"k": 4, "delta": MIN_DELTA, "seed": 1, **method}
    assert len((await api.ok("POST", "/v1/catalogues/many/centers", body))["centers"]) == 4
