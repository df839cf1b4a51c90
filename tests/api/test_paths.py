"""Names in paths, methods, query parameters and the problem documents of what is not there."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from endpoints import ALL, DELETES, IMPORT, READS, WRITES, Endpoint, create_one_of_each, with_token
from starlette.routing import Route

from api_client import Api, Json, assert_problem, running
from server.application import ROUTERS

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

CANARY = "c4nary"
BAD_NAMES = (
    "-a", "_a", ".a", ":a", " ", "a b", "a/b", "a\u0000", "\u0000", "a\n", "a%", "é", "ａ", "\U0001f600",
    "a" * 129, "a" * 5_000, "a;b", "a?b", "a#b", "a\\b", "<script>", "a'b", 'a"b', "*", "~", "a\r\nx: y",
    "\u202e", "{p:1}", "%2e%2e", "../c",
)  # fmt: skip


@pytest.fixture(scope="module")
async def api_and_token(
    shared_store_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Api, str]]:
    folder: Path = tmp_path_factory.mktemp("paths")
    async with running(shared_store_url, folder) as api:
        yield api, await create_one_of_each(api)


# One endpoint for each kind of name meets all of these, the others those that are unlike each other.
FEW_NAMES = ("-a", " ", "a/b", "a\u0000", "a\n", "é", "a" * 129, "%2e%2e")


def with_name(endpoint: Endpoint, place: str, name: str) -> str:
    """The path of the endpoint with another name at ``{place}``."""
    parts = zip(endpoint.template.split("/"), endpoint.path.split("/"), strict=True)
    return "/".join(name if wanted == f"{{{place}}}" else given for wanted, given in parts)


def places(endpoint: Endpoint) -> list[str]:
    return [part.strip("{}") for part in endpoint.template.split("/") if part.startswith("{")]


NAMED = [(endpoint, place) for endpoint in ALL for place in places(endpoint)]
FIRST = {place: endpoint for endpoint, place in reversed(NAMED)}


@pytest.mark.parametrize(("endpoint", "place"), NAMED, ids=[f"{e}-{place}" for e, place in NAMED])
async def test_a_name_in_a_path_is_an_identifier_of_what_is_there(
    api_and_token: tuple[Api, str], endpoint: Endpoint, place: str
):
    api, token = api_and_token
    before = await api.stored()
    body = with_token(endpoint.body, token) if endpoint.body else None
    for name in BAD_NAMES if endpoint == FIRST[place] else FEW_NAMES:
        path = with_name(endpoint, place, quote(name, safe=""))
        answer = await api.call(endpoint.method, path, body)
        assert answer.status_code in {404, 405, 422}, (name, answer.text)
        code = {404: "not_found", 405: "method_not_allowed", 422: "invalid"}[answer.status_code]
        document = assert_problem(answer, answer.status_code, code)
        assert len(answer.text) < 1_000
        if answer.status_code == 422 and "/" not in name:
            assert document["errors"][0]["loc"] == ["path", place]
    made = endpoint.method == "PUT" and places(endpoint)[-1] == place and "arms" not in endpoint.template
    if not made and place not in {"key", "visitor"}:  # any name may be one
        path = with_name(endpoint, place, CANARY)
        await api.refused(endpoint.method, path, body, status=404, code="not_found", canary=CANARY)
    assert await api.stored() == before


async def test_an_identifier_of_the_largest_size_and_every_character(api_and_token: tuple[Api, str]):
    api, _ = api_and_token
    for name in ("a" * 128, "0", "A", "9.-_:", "a:b.c-d_e", "x" + ".-_:" * 31 + "xyz"):
        await api.catalogue(name, {name: [1.0, 2.0]})
        await api.bandit(name, name, scope="per_key")
        choice = await api.choose(name, key=name, event_id=name)
        assert choice["arms"][0]["id"] == name
        await api.reward({"decision": choice["decision"], "value": 1, "arm": name, "reward_id": name})
        await api.observe(name, {"id": name, "key": name, "arm": name, "value": 1})
        assert (await api.learner(name, name))["observations"] == 2
        got = await api.ok("GET", f"/v1/catalogues/{quote(name)}/arms/{quote(name)}")
        assert got["id"] == name
        await api.ok("DELETE", f"/v1/bandits/{name}", status=204)
        await api.ok("DELETE", f"/v1/catalogues/{name}", status=204)


NOWHERE: list[str] = ["/v1", "/v1/", "/v2/catalogues", "/v1/c4nary", "/v1/catalogues/", "/v1/catalogues/c/",
     "//v1/catalogues", "/v1/catalogues/c/arms/a0/c4nary", "/v1/catalogues//arms", "/v1/rewards/",
     "/v1/bandits/b/learners/", "/%00", "/%ff", "/v1/catalogues/%2E%2E%2F%2E%2E%2Fetc%2Fpasswd"]  # fmt: skip


async def test_a_path_that_leads_nowhere(api_and_token: tuple[Api, str]):
    api, _ = api_and_token
    for path in NOWHERE:
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
            answer = await api.call(method, path, follow_redirects=False)
            assert answer.status_code in {404, 405}, answer.text
            code = "not_found" if answer.status_code == 404 else "method_not_allowed"
            assert_problem(answer, answer.status_code, code, canary=CANARY)


async def test_a_method_that_is_not_there(api_and_token: tuple[Api, str]):
    api, _ = api_and_token
    before = await api.stored()
    for template, path in {endpoint.template: endpoint.path for endpoint in ALL}.items():
        there = {other.method for other in ALL if other.template == template}
        for method in {"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "C4NARY"} - there:
            answer = await api.call(method, path, content=b"{}")
            assert answer.status_code in {404, 405}, (method, path, answer.text)
            code = "not_found" if answer.status_code == 404 else "method_not_allowed"
            assert_problem(answer, answer.status_code, code, canary=CANARY)
            if answer.status_code == 405:
                allowed = set(answer.headers["allow"].split(", "))
                assert there <= allowed, "all methods of the path, not those of one route"
                assert method not in allowed, path
                assert answer.json()["detail"].endswith(f"but {answer.headers['allow']}")
    assert await api.stored() == before


@pytest.mark.parametrize("endpoint", [WRITES[0], IMPORT, READS[1], DELETES[0]], ids=str)
async def test_the_request_id_is_echoed_or_made(api_and_token: tuple[Api, str], endpoint: Endpoint):
    api, token = api_and_token
    body = with_token(endpoint.body, token) if endpoint.body else None
    path = f"{endpoint.path}-none" if endpoint in DELETES else endpoint.path
    own = await api.call(
        endpoint.method, path, body, headers={"X-Request-ID": "mine/0123-äß".encode("ascii", "ignore")}
    )
    assert own.headers["x-request-id"] == "mine/0123-"
    made = {(await api.call(endpoint.method, path, body)).headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    assert all(len(word) >= 16 for word in made)


async def test_a_request_id_that_could_harm_a_log_is_replaced(api_and_token: tuple[Api, str]):
    api, _ = api_and_token
    for word in ["", "x" * 129, "a b", "\u00e9", "a\tb", "a\x7f"]:
        answer = await api.call("GET", "/healthz", headers={"X-Request-ID": word.encode("latin-1")})
        assert answer.headers["x-request-id"] != word
        assert answer.headers["x-request-id"].isalnum()


async def test_an_error_carries_its_request_id_too(api_and_token: tuple[Api, str]):
    api, _ = api_and_token
    for path in ("/nowhere", "/v1/catalogues/none"):
        answer = await api.call("GET", path, headers={"X-Request-ID": "mine"})
        assert answer.headers["x-request-id"] == "mine"


LISTS = ["/v1/catalogues", "/v1/bandits", "/v1/catalogues/c/arms"]
BAD_CURSORS = (
    "", "x", "===", "YWJj", "YWJj=", "4piD", "AAAA", "LTE", "MS41", "IDE", "MV8w", "bmFu",
    "OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "c4nary!", "é", "%00", "A" * 5_000, "OTk5" * 3_000, "MQ==", "MR",
)  # fmt: skip


@pytest.mark.parametrize("path", LISTS)
async def test_a_cursor_that_was_not_made_here(api_and_token: tuple[Api, str], path: str):
    """It is refused by name or, when it happens to look like one, gives a page: never a failure."""
    api, _ = api_and_token
    refused = 0
    for cursor in BAD_CURSORS:
        answer = await api.call("GET", path, params={"cursor": cursor})
        if answer.status_code == 200:
            assert set(answer.json()) == {"items", "next"}
        else:
            assert_problem(answer, 422, "invalid", loc=["query", "cursor"], canary=CANARY)
            refused += 1
    assert refused == len(BAD_CURSORS) if path.endswith("arms") else refused >= 8


BAD_LIMITS: list[str] = [
    "0",
    "-1",
    "1001",
    "x",
    "",
    "1.5",
    "1.0",
    "1e2",
    "true",
    "NaN",
    " 5",
    "+5",
    "1_0",
    "٣",
    "9" * 5_000,
    "null",
    "0x5",
]


async def test_a_limit_is_a_whole_number(api_and_token: tuple[Api, str]):
    api, _ = api_and_token
    for limit in BAD_LIMITS:
        for path in LISTS:
            await api.refused("GET", path, params={"limit": limit}, loc=["query", "limit"])


async def test_an_unknown_query_parameter_is_refused(api_and_token: tuple[Api, str]):
    """Above all one that is misspelt: ?wiat=applied must not be taken for a promise."""
    api, token = api_and_token
    before = await api.stored()
    for endpoint in ALL:
        if endpoint.template.startswith("/v1"):
            body: Json | None = with_token(endpoint.body, token) if endpoint.body else None
            asked = (endpoint.method, f"{endpoint.path}?wiat={CANARY}", body)
            await api.refused(*asked, loc=["query", "wiat"], canary=CANARY)
    assert await api.stored() == before


async def test_what_an_endpoint_takes_from_elsewhere_is_no_query_parameter(api_and_token: tuple[Api, str]):
    """Its body, its services and the names in its path."""
    api, _ = api_and_token
    for name in ["body", "bandits", "choosing", "bandit"]:
        await api.refused("POST", "/v1/bandits/b/choose", {}, params={name: "x"}, loc=["query", name])


async def test_a_query_parameter_is_given_once(api_and_token: tuple[Api, str]):
    api, _ = api_and_token
    await api.refused("GET", "/v1/catalogues?limit=1&limit=2", loc=["query", "limit"])


def test_no_path_takes_what_another_one_is_for():
    """Routes are tried in their order: one that takes any name stands after those of fixed names."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
    taken = [
        (route.path, earlier.path)
        for number, route in enumerate(routes)
        for earlier in routes[:number]
        if (route.methods or set()) & (earlier.methods or set())
        and earlier.path_regex.match(re.sub(r"\{[^}]*\}", "some", route.path))
    ]
    assert len(routes) > 60
    assert taken == []
