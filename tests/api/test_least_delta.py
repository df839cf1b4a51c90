"""The least delta that a promise may have, and less: answered or refused by name, whatever the method."""

import numpy as np
import pytest
from endpoints import WRITES, Endpoint, create_one_of_each, with_token

from api_client import Api, Json
from shortlist.checks import MIN_DELTA

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

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


def test_every_method_of_a_table_has_its_route() -> None:
    assert {endpoint.template for endpoint in ENDPOINTS} >= set(METHODS)


def body_of(endpoint: Endpoint, method: Json, delta: float, token: str) -> Json:
    assert endpoint.body is not None
    return {**with_token(endpoint.body, token), **method, "delta": delta}


@pytest.fixture(scope="module")
async def api_and_token(shared: Api) -> tuple[Api, str]:
    return shared, await create_one_of_each(shared)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
async def test_the_least_delta_serves_every_method_and_a_smaller_one_is_refused_by_name(
    api_and_token: tuple[Api, str], endpoint: Endpoint
):
    api, token = api_and_token
    for delta in (5e-324, 1e-300, 0.999 * MIN_DELTA):
        body = body_of(endpoint, {}, delta, token)
        await api.refused(endpoint.method, endpoint.path, body, loc=["body", "delta"])
    for number, method in enumerate(METHODS.get(endpoint.template, [{}])):
        body = body_of(endpoint, method, MIN_DELTA, token)
        if "id" in body:
            body["id"] = f"least-{number}"
        answer = await api.call(endpoint.method, endpoint.path, body)
        assert answer.status_code in (200, 201), answer.text


async def test_a_search_for_centres_goes_on_with_it(shared: Api):
    body = {"points": ["p", "q", "r"], "k": 2, "noise_std": 0.1, "delta": MIN_DELTA, "seed": 1}
    for number, method in enumerate([*NOISY, *UNKNOWN]):
        path = f"/v1/centers/n{number}"
        await shared.ok("POST", "/v1/centers", {**body, "id": f"n{number}", **method}, 201)
        for _ in range(20):
            asked = (await shared.ok("POST", f"{path}/ask", {"count": 5}))["queries"]
            results = [{"query": one["query"], "distance": 1.0 + 0.01 * i} for i, one in enumerate(asked)]
            await shared.ok("POST", f"{path}/tell", {"results": results})


async def test_a_slate_campaign_goes_on_with_it(shared: Api):
    body = {"arms": ["a", "b", "c", "d"], "k": 2, "noise_std": 1.0, "delta": MIN_DELTA, "seed": 1}
    for number, method in enumerate([*SLATES, {"method": "sa_foa"}]):
        path = f"/v1/slates/n{number}"
        await shared.ok("POST", "/v1/slates", {**body, "id": f"n{number}", **method}, 201)
        for _ in range(20):
            asked = (await shared.ok("POST", f"{path}/ask", {"count": 5}))["pulls"]
            results = [{"pull": one["pull"], "total": 1.0 + ("a" in one["slate"])} for one in asked]
            await shared.ok("POST", f"{path}/tell", {"results": results})


async def test_many_factors_arms_and_pairs_share_it(shared: Api):
    rng = np.random.default_rng(5)
    factors, query = rng.normal(size=(30, 2_000)).tolist(), rng.normal(size=900).tolist()
    await shared.catalogue("many", {f"a{i}": row for i, row in enumerate(rng.normal(size=(60, 900)))})
    least = {"delta": MIN_DELTA, "seed": 1}
    for method in DRAWS:
        asked = {**method, **least}
        assert len((await shared.ok("POST", "/v1/sample", {"log_factors": factors, **asked}))["draws"]) == 1
        body = {"query": query, **asked}
        assert len((await shared.ok("POST", "/v1/catalogues/many/sample", body))["draws"]) == 1
    for method in SEARCHES:
        body = {"query": query, "epsilon": 1e-3, **least, **method}
        assert len((await shared.ok("POST", "/v1/catalogues/many/mips", body))["arms"]) == 1
    for method in CENTERS:
        body = {"k": 4, **least, **method}
        assert len((await shared.ok("POST", "/v1/catalogues/many/centers", body))["centers"]) == 4
