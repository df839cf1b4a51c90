"""The least delta that a promise may have, and less: answered or refused by name, whatever the method."""

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
