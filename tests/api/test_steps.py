"""No step of the event loop takes long: what the contract allows is sent at its limits, each step is timed.

What is measured is processor time, compared with that of a fixed piece of work: see ``load_tests.steps``.
"""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from endpoints import ALL, IMPORT, Endpoint, create_one_of_each, with_token

from api_client import Api, Json
from app.catalogues.catalogues import Catalogues
from load_tests.drawn_choices import drawn, drawn_few
from load_tests.heavy_log_requests import ALL_KINDS
from load_tests.heavy_requests import Kind, Request, World, as_json
from load_tests.steps import MOST_MS, REFERENCE_MS, TIMES, Stepped, Steps, stepped, work

pytestmark = pytest.mark.rest

ARMS, MANY_ARMS = 2_000, 100_000
MOST_ITEMS, MOST_BYTES = 2_000, 500_000  # of a list that is drawn; the heaviest kinds are at every limit
SEED = 7
SIZES = {"k", "count", "draws", "limit"}
# What must be as long as something else is.
FIXED = {"features", "query", "vectors", "log_factors", "log_prior", "value_range"}
BURNT_MS = 2 * MOST_MS


@pytest.fixture(scope="module")
def service() -> Iterator[Stepped]:
    with stepped() as service:
        yield service


def held(service: Stepped, kinds: Iterator[Kind]) -> list[Json]:
    """The rows of all kinds, none of which has a long step or fails."""
    rows = [service.measure(kind) for kind in kinds]
    assert [row for row in rows if row["worst_ms"] >= MOST_MS or row["status"] >= 500] == []
    return rows


def test_no_choice_takes_a_long_step(service: Stepped):
    rows = held(service, iter(drawn_few(ARMS, seed=SEED)))
    refused = [row for row in rows if row["status"] != 200]
    # Few arms pass such a filter, and lists of before may have used up the quotas of all of them.
    assert all(row["status"] == 409 and re.search(", quotas, .* few$", row["request"]) for row in refused)
    assert len(refused) < len(rows) / 10


@pytest.mark.anyio
async def test_no_operation_takes_a_long_step(service: Stepped):
    """Each as it is used, and with every list and number of it at the limit of the contract."""
    async with httpx.AsyncClient(base_url=service.service.url, timeout=60) as http:
        api = Api(None, http, None)  # type: ignore[arg-type]  # nothing here needs the application itself
        token = await create_one_of_each(api)
        await api.put_arms("c", {f"a{number}": [number, 1, 0] for number in range(5, ARMS)})
        document = (await http.get("/openapi.json")).json()
    assert {(e.method, e.template) for e in ALL} >= set(operations(document))
    plain = held(service, (kind(endpoint, token) for endpoint in ALL if endpoint.method != "DELETE"))
    held(service, (kind(endpoint, token, document) for endpoint in ALL if endpoint.body is not None))
    deleted = held(service, (kind(endpoint, token) for endpoint in ALL if endpoint.method == "DELETE"))
    refused = {row["request"] for row in plain + deleted if row["status"] >= 300}
    assert refused == {  # of what has no known id in another process
        "GET /v1/bandits/{bandit}/log/{decision}",
        "GET /v1/bandits/{bandit}/evaluations/{evaluation}",
        "DELETE /v1/bandits/{bandit}/evaluations/{evaluation}",
        "GET /v1/bandits/{bandit}/embeddings/{embedding}",
        "DELETE /v1/bandits/{bandit}/embeddings/{embedding}",
        # of a bandit without rows to judge by, and of an upload that ends before its rows
        "POST /v1/bandits/{bandit}/embeddings",
        "POST /v1/catalogues/{catalogue}/embeddings",
    }


def burn(steps: Steps) -> None:
    """From now on a list of catalogues computes for long, in the service process."""
    page = Catalogues.page

    def burning(self: Catalogues, *asked: Any) -> Any:
        for _ in range(round(BURNT_MS / REFERENCE_MS)):
            work()
        return page(self, *asked)

    Catalogues.page = burning  # type: ignore[method-assign]


def test_a_handler_that_computes_is_found(service: Stepped):
    """Last in this module: the service stays as it is made here."""
    listing = Kind("catalogues", lambda world: Request("GET", "/v1/catalogues"), slow=False)
    held(service, iter([listing]))
    service.ask(burn)
    found = service.measure(listing)
    assert (found["times"], found["status"]) == (TIMES, 200)
    assert found["worst_ms"] >= MOST_MS


@pytest.mark.slow
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("count", [ARMS, MANY_ARMS])
def test_no_choice_of_any_kind_takes_a_long_step(count: int):
    with stepped() as service:
        held(service, iter(drawn(count, seed=SEED)))


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_no_heavy_request_takes_a_long_step():
    with stepped() as service:
        held(service, iter(ALL_KINDS))


def operations(document: Json) -> Iterator[tuple[str, str]]:
    for path, methods in document["paths"].items():
        for method in methods:
            yield method.upper(), path


def kind(endpoint: Endpoint, token: str, document: Json | None = None) -> Kind:
    """The request of an endpoint; with ``document`` everything is as much as that allows."""
    body: Any = None if endpoint.body is None else with_token(endpoint.body, token)
    if document is not None:
        body = Grown(document).request(endpoint, body)
    content = b"" if body is None else as_json(body)
    if endpoint is IMPORT:
        content = b"\n".join(as_json({"id": f"i{n}", "features": [1, 2, n]}) for n in range(ARMS))

    def make(world: World) -> Request:
        return Request(endpoint.method, endpoint.path, content)

    return Kind(str(endpoint), make, slow=False)


class Grown:
    """Makes bodies larger: lists get as many items as their schema allows, and sizes are the largest."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._numbers = itertools.count()

    def request(self, endpoint: Endpoint, body: Any) -> Any:
        """The body of an endpoint."""
        operation = self._document["paths"][endpoint.template][endpoint.method.lower()]
        return self._grown("", body, operation["requestBody"]["content"]["application/json"]["schema"])

    def _grown(self, name: str, value: Any, schema: Json) -> Any:
        schema = self._schema(schema, value)
        if isinstance(value, dict):
            known = schema.get("properties", {})
            return {field: self._grown(field, item, known.get(field, {})) for field, item in value.items()}
        if isinstance(value, list) and value and name not in FIXED:
            most = min(schema.get("maxItems", len(value)), MOST_ITEMS)
            most = max(len(value), min(most, MOST_BYTES // len(json.dumps(value[0]))))
            items = itertools.islice(itertools.cycle(value), most)
            return [*value, *(self._new(item) for item in itertools.islice(items, len(value), None))]
        if name in SIZES and isinstance(value, int):
            return schema.get("maximum", value)
        return value

    def _new(self, item: Any) -> Any:
        """The same with another id."""
        if isinstance(item, str):
            return f"n{next(self._numbers)}"
        return {**item, "id": f"n{next(self._numbers)}"} if isinstance(item, dict) and "id" in item else item

    def _schema(self, schema: Json, value: Any) -> Json:
        """The alternative that is for such a value."""
        while "$ref" in schema:
            schema = self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        kinds = {dict: "object", list: "array", int: "integer", float: "number", str: "string"}
        for each in (self._schema(each, value) for each in schema.get("anyOf", ())):
            if each.get("type") == kinds.get(type(value)):
                return each
        return schema
