"""/openapi.json: valid, complete, and true of every answer that generated requests get."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from endpoints import ALL, EMBEDDING, IMPORT, Endpoint
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api import documentation
from app.api.api_keys import scope_of
from app.api.arms import BLOCKS
from service_process import Service, serving

pytestmark = pytest.mark.rest

EXAMPLES = pytest.mark.parametrize("examples", [8, pytest.param(100, marks=pytest.mark.slow)])
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
NAMES = {"catalogue": "c", "bandit": "b", "arm": "a0", "key": "_global", "campaign": "s", "quota": "q",
         "visitor": "ann"}  # fmt: skip


schemathesis.serializer.alias("application/x-ndjson", "text/plain")
schemathesis.serializer.alias(BLOCKS, "application/octet-stream")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a catalogue ``c`` of five arms and a bandit ``b``."""
    with serving(tmp_path_factory.mktemp("openapi")) as service:
        with httpx.Client(base_url=service.url, timeout=60) as http:
            http.put("/v1/catalogues/c", json={"dim": 2}).raise_for_status()
            arms = [{"id": f"a{i}", "features": [i, 1]} for i in range(5)]
            http.put("/v1/catalogues/c/arms", json={"arms": arms}).raise_for_status()
            http.put(
                "/v1/bandits/b", json={"catalogue": "c", "policy": "sub_ts", "log": {}}
            ).raise_for_status()
            NAMES["decision"] = http.post("/v1/bandits/b/choose", json={}).json()["decision"]
            centers = {"id": "s", "points": ["p0", "p1", "p2"], "k": 2, "noise_std": 1}
            http.post("/v1/centers", json=centers).raise_for_status()
            slates = {"id": "s", "arms": ["a0", "a1", "a2"], "k": 2, "noise_std": 1}
            http.post("/v1/slates", json=slates).raise_for_status()
            started = http.post("/v1/bandits/b/evaluations?wait=none", json={"policy": {"policy": "softmax"}})
            NAMES["evaluation"] = started.json()["id"]
            judged = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "log": {}}
            http.put("/v1/bandits/judged", json=judged).raise_for_status()
            started = http.post("/v1/bandits/judged/embeddings", json={"catalogue": "new"})
            NAMES["embedding"] = started.json()["id"]
            http.put("/v1/bandits/b/quotas/q", json={"arm": "a0", "most": 10**9}).raise_for_status()
        yield service
        problems = [line for line in service.records() if line["level"] in {"ERROR", "WARNING"}]
        assert problems == []


@pytest.fixture(scope="module")
def document(service: Service) -> dict[str, Any]:
    answer = httpx.get(f"{service.url}/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture(scope="module")
def schema(service: Service) -> Any:
    loaded = schemathesis.openapi.from_url(f"{service.url}/openapi.json", timeout=120.0)  # a busy machine

    @loaded.hook
    def map_path_parameters(context: Any, path_parameters: Any) -> Any:
        """Half of the time a name that exists: the rest is not found."""
        there = {name: NAMES[name] for name, value in (path_parameters or {}).items() if len(str(value)) % 2}
        if {"bandit", "embedding"} <= there.keys():
            there["bandit"] = "judged"
        return {**path_parameters, **there} if path_parameters else path_parameters

    return loaded


@EXAMPLES
@pytest.mark.parametrize("endpoint", ALL, ids=str)
def test_every_answer_is_as_documented(schema: Any, endpoint: Endpoint, examples: int):
    """Nothing fails, and status, content type and body are documented ones."""

    @settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[endpoint.template][endpoint.method].as_strategy())
    def ask(case: Any) -> None:
        answer = case.call()
        case.validate_response(answer, checks=CHECKS)
        assert answer.headers["x-request-id"]

    ask()


def test_the_document_is_valid(document: dict[str, Any], schema: Any):
    assert document["openapi"].startswith("3.1")
    schema.validate()


def test_every_endpoint_is_documented_and_no_other(document: dict[str, Any]):
    documented = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    assert documented == {(endpoint.method, endpoint.template) for endpoint in ALL}


CONTENT_TYPES = {
    "application/json",
    "application/octet-stream",
    "application/vnd.apache.parquet",
    "application/x-ndjson",
    "text/html",
    "text/plain",
}


def test_every_endpoint_says_what_it_takes_and_gives(document: dict[str, Any]):
    for endpoint in ALL:
        operation = document["paths"][endpoint.template][endpoint.method.lower()]
        assert operation["description"]
        takes_a_body = endpoint.body is not None or endpoint in (IMPORT, EMBEDDING)
        assert ("requestBody" in operation) == takes_a_body
        for status, response in operation["responses"].items():
            content = response.get("content", {})
            if status == "204":
                assert content == {}
            elif status.startswith("2"):
                assert set(content) <= CONTENT_TYPES
                schema = content.get("application/json", {"schema": {"$ref": ""}})["schema"]
                assert all("$ref" in each for each in schema.get("anyOf", [schema])), endpoint
            else:
                assert set(content) == {"application/problem+json"}
                assert content["application/problem+json"]["schema"]["$ref"].endswith("/Problem")
        assert any(status.startswith("2") for status in operation["responses"])
        if endpoint.template.startswith("/v1/"):
            assert {"422", "503"} <= set(operation["responses"])


def test_bodies_are_documented_as_strict(document: dict[str, Any]):
    bodies = [name for name in document["components"]["schemas"] if name.endswith(("Body", "Item"))]
    assert len(bodies) >= 10
    for name in bodies:
        assert document["components"]["schemas"][name]["additionalProperties"] is False


def test_every_call_says_whether_it_needs_a_key_and_what_it_does(document: dict[str, Any]):
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            needed = scope_of(method.upper(), re.sub("{.*?}", "x", path))
            assert ("security" in operation) == (needed is not None)
            assert " " in operation["summary"]
            assert len(operation["summary"]) <= 110
            assert operation["summary"][-1] not in ".;:"


def test_the_examples_work_one_after_the_other(service: Service, document: dict[str, Any]):
    """As a reader of /docs sends them, with the token of the answer before where one is asked for."""
    token: str = ""
    with httpx.Client(base_url=service.url, timeout=60) as http:
        for method, path in documentation.EXAMPLES:
            operation = document["paths"][path][method.lower()]
            body = operation["requestBody"]["content"]["application/json"]["example"]
            names = {each["name"]: each.get("example") for each in operation.get("parameters", ())}
            text = re.sub('"the [^"]*"', f'"{token}"', json.dumps(body))
            answer = http.request(method, path.format_map(names), content=text)
            assert answer.is_success, answer.text
            found = answer.json()
            assert not found.get("rejected"), found
            first = [each["pull"] for each in found.get("pulls", ())[:1]]
            token = found.get("decision") or "".join(first) or token
