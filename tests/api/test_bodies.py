"""What is no JSON object at all, and what is too large: every endpoint that takes a body."""

import asyncio
import codecs
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from endpoints import IMPORT, WRITES, Endpoint, create_one_of_each, with_token

from api_client import Api, running
from app.api import request_limits as limits
from app.api.strict_json import JsonRoute, Parameters, StrictModel
from server.application import ROUTERS
from shortlist_campaigns import campaign_limits

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

CANARY = "c4nary"
LIMIT = 1 << 20  # of the service; most routes allow less
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, JsonRoute)]
MODELS = [
    (route, body[1])
    for route in ROUTES
    if (body := Parameters.of(route.endpoint, set(route.param_convertors)).body) is not None
]

BROKEN = {
    "empty": b"",
    "blank": b" \n\t ",
    "null": b"null",
    "true": b"true",
    "number": b"31337",
    "string": b'"c4nary"',
    "array": b"[]",
    "array of objects": b'[{"c4nary!": 1}]',
    "cut": b'{"c4nary": ',
    "two documents": b"{}{}",
    "trailing comma": b'{"dim": 3,}',
    "trailing text": b'{"dim": 3} c4nary',
    "comment": b"{} // c4nary",
    "single quotes": b"{'c4nary': 1}",
    "two byte order marks": 2 * codecs.BOM_UTF8 + b"{}",
    "utf-16": "{}".encode("utf-16"),
    "utf-32": "{}".encode("utf-32-be"),
    "NUL": b"\x00",
    "NUL within": b'{"c4nary": "\x00"}',
    "broken UTF-8": b'{"c4nary": "\xff\xfe"}',
    "cut UTF-8": b'{"c4nary": "\xc3"}',
    "overlong UTF-8": b'{"c4nary": "\xc0\xaf"}',
    "surrogate in UTF-8": b'{"c4nary": "\xed\xa0\x80"}',
    "beyond Unicode": b'{"c4nary": "\xf4\x90\x80\x80"}',
    "lone surrogate": b'{"c4nary": "\\ud800"}',
    "deep arrays": b"[" * 30_000,
    "deep objects": b'{"a":' * 10_000,
    "deep and closed": b"[" * 30_000 + b"]" * 30_000,
    "deep below a field": b'{"arms": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "form": b"c4nary=1&dim=3",
    "gzip": bytes.fromhex("1f8b0800000000000003"),
}


@pytest.fixture(scope="module")
async def api_and_token(
    shared_store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Api, str]]:
    folder: Path = tmp_path_factory.mktemp("bodies")
    async with running(shared_store_url, folder, max_body_mb=1) as api:
        yield api, await create_one_of_each(api)


@pytest.mark.parametrize("endpoint", WRITES, ids=str)
async def test_a_body_that_is_no_object_is_refused(api_and_token: tuple[Api, str], endpoint: Endpoint):
    api, _ = api_and_token
    before = await api.stored()
    for name, body in BROKEN.items():
        document = await api.refused(endpoint.method, endpoint.path, content=body, canary=CANARY)
        assert [error["loc"][0] for error in document["errors"]] == ["body"] * len(document["errors"]), name
        assert document["errors"], name
    assert await api.stored() == before


@pytest.mark.parametrize("endpoint", WRITES, ids=str)
async def test_the_content_type_does_not_matter_but_the_bytes_do(
    api_and_token: tuple[Api, str], endpoint: Endpoint
):
    api, token = api_and_token
    body = json.dumps(with_token(endpoint.body or {}, token)).encode()
    for content_type in ("application/json", "application/json; charset=latin-1", "text/plain"):
        headers = {"content-type": content_type}
        answer = await api.call(endpoint.method, endpoint.path, content=body, headers=headers)
        assert answer.status_code < 300, answer.text
    marked = await api.call(endpoint.method, endpoint.path, content=codecs.BOM_UTF8 + body)
    assert marked.status_code < 300, marked.text


def limit_of(endpoint: Endpoint) -> int:
    """How large a body may be there: of the service, or of the route if that is less."""
    return min([LIMIT, *(model.max_bytes for route, model in MODELS if is_of(route, endpoint))])


def is_of(route: JsonRoute, endpoint: Endpoint) -> bool:
    return route.path == endpoint.template and endpoint.method in route.methods


@pytest.mark.parametrize("model", [model for _, model in MODELS])
def test_no_json_body_is_larger_than_4_mib(model: type[StrictModel]):
    assert model.max_bytes <= limits.MAX_BODY_BYTES == 4 * 2**20
    assert model.long_list is None or model.long_list in model.model_fields


@pytest.mark.parametrize("endpoint", WRITES, ids=str)
async def test_a_body_beyond_the_limit_is_too_large(api_and_token: tuple[Api, str], endpoint: Endpoint):
    api, _ = api_and_token
    before = await api.stored()
    sent, most = 0, limit_of(endpoint)

    async def chunks(total: int, size: int = 16_384) -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(0, total, size):
            sent += size
            yield b" " * size

    async def too_large(**request: object) -> None:
        await api.refused(
            endpoint.method, endpoint.path, status=413, code="too_large", loc=["body"], **request
        )

    await too_large(content=b" " * (most + 1))
    await too_large(content=chunks(200 * most))
    assert sent <= 2 * most, "a body without a length is read no further than the limit"
    sent = 0
    await too_large(content=chunks(most), headers={"content-length": str(most + 1)})
    assert sent == 0, "a body that says it is too large is not read"
    await too_large(content=chunks(most), headers={"content-length": "9" * 30})
    document = await api.refused(endpoint.method, endpoint.path, content=b" " * most)
    assert document["code"] == "invalid", "the limit itself is allowed"
    assert await api.stored() == before


TOO_LONG = {
    "/v1/catalogues/c/arms": ("arms", {"id": "x", "features": [1, 2, 3]}, 10_000),
    "/v1/catalogues/c/arms/delete": ("ids", "x", 10_000),
    "/v1/bandits/b/choose": ("exclude", "x", 10_000),
    "/v1/bandits/b/choose/batch": ("requests", {}, 1_000),
    "/v1/rewards": ("rewards", {"decision": "x", "value": 1}, 10_000),
    "/v1/bandits/u/observations": ("observations", {"id": "x", "key": "k", "arm": "a0", "value": 1}, 10_000),
}


@pytest.mark.parametrize("path", TOO_LONG)
async def test_a_batch_beyond_the_limit_is_too_large(api_and_token: tuple[Api, str], path: str):
    api, _ = api_and_token
    before = await api.stored()
    field, item, most = TOO_LONG[path]
    items = [item] * (most + 1)
    if isinstance(item, str):
        items = [f"x{number}" for number in range(most + 1)]
    elif "id" in item:
        items = [{**item, "id": f"x{number}"} for number in range(most + 1)]
    method = "PUT" if path.endswith("/arms") else "POST"
    await api.refused(method, path, {field: items}, status=413, code="too_large", loc=["body", field])
    assert await api.stored() == before
    answer = await api.call(method, path, {field: items[:-1]})
    assert answer.status_code < 300


async def test_the_service_answers_others_while_bodies_are_slow(api_and_token: tuple[Api, str]):
    api, _ = api_and_token
    release = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"dim"'
        await release.wait()
        yield b": 3}"

    waiting = [
        asyncio.create_task(api.call("PUT", f"/v1/catalogues/slow{i}", content=slow())) for i in range(50)
    ]
    await api.ok("GET", "/healthz")
    await api.choose("b")
    assert not any(task.done() for task in waiting)
    release.set()
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {201}


LONG = 128


@pytest.mark.parametrize(
    ("item", "most", "limit"),
    [
        ("x" * LONG, limits.MAX_EXCLUDE, limits.MAX_IDS_BYTES),
        ("x" * LONG, limits.MAX_ARMS, limits.MAX_IDS_BYTES),
        ("x" * LONG, campaign_limits.MAX_CENTER_POINTS, campaign_limits.MAX_IDS_BYTES),
        (
            {"query": "x" * 64, "distance": -1.2345678901234567e-05},
            campaign_limits.MAX_ASKED,
            campaign_limits.MAX_IDS_BYTES,
        ),
        (-1.2345678901234567e-05, limits.MAX_DIM, limits.MAX_VECTOR_BYTES),
        ("x" * LONG, campaign_limits.MAX_SLATE_ARMS, campaign_limits.MAX_VECTOR_BYTES),
        (
            {"id": "x" * LONG, "key": "x" * LONG, "arm": "x", "value": -1.2345678901234567e-05},
            limits.MAX_REWARDS,
            limits.MAX_BODY_BYTES,
        ),
    ],
)
def test_the_largest_list_fits_into_a_body(item: object, most: int, limit: int):
    """With room for the other fields, for blanks, and for a line break after each item."""
    assert most * (len(json.dumps(item)) + 3) + 10_000 < limit


async def test_a_compressed_body_is_refused_and_the_header_named(api_and_token: tuple[Api, str]):
    api, _ = api_and_token
    for encoding in ["gzip", "BR", "identity, deflate"]:
        for endpoint in [*WRITES, IMPORT]:
            headers = {"content-encoding": encoding}
            answer = await api.call(
                endpoint.method, endpoint.path, content=gzip.compress(b"{}"), headers=headers
            )
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (415, "unsupported_encoding")
            assert "Content-Encoding" in problem["detail"]
            assert answer.headers["accept-encoding"] == "identity"
