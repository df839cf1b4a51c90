"""The Python client has every endpoint of /openapi.json, with every field that it takes and gives."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from app.api import request_limits as limits
from app.platform import errors
from openapi_document import openapi_document
from shortlist_campaigns import campaign_limits
from shortlist_client import answers, batches, endpoints, routes
from shortlist_client.errors import BY_CODE
from shortlist_client.routes import JSON, RAW, ROUTES, Route

# As POST …/log/explain, which takes tokens of any length, and as POST /v1/decisions/activate.
TWICE = {("GET", "/v1/bandits/{bandit}/log/{decision}"), ("POST", "/v1/activations")}
OPERATIONS = sorted({(route.method, route.path) for route in ROUTES})


def schema_of(name: str) -> Any:
    """A type of the service."""
    return openapi_document()["components"]["schemas"][name]


def differences(schema: Mapping[str, Any], kind: Any, where: str) -> Iterator[str]:
    """What a schema has and a type has not, and the other way round, down to the fields of fields."""
    if "$ref" in schema:
        schema = schema_of(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        schemas = [each for each in schema["anyOf"] if each.get("type") != "null"]
        if len(schemas) == 1:
            yield from differences(schemas[0], without_none(kind), where)
        elif dataclasses.is_dataclass(kind):  # it is one of several answers
            yield from min((list(differences(each, kind, where)) for each in schemas), key=len)
        return
    kind = without_none(kind)
    if words := schema.get("enum"):
        known = (
            set(get_args(kind)) if get_origin(kind) is Literal else set(words)
        )  # an answer may be any word
        yield from (f"{where} lacks {word!r}" for word in set(words) - known)
    elif schema.get("type") == "array":
        (item, *_) = get_args(kind) or (Any,)
        yield from differences(schema.get("items", {}), item, f"{where}[]")
    elif "properties" in schema:
        yield from of_fields(schema, kind, where)


def of_fields(schema: Mapping[str, Any], kind: Any, where: str) -> Iterator[str]:
    fields, needed = fields_of(kind)
    yield from (f"{where} lacks {name}" for name in schema["properties"].keys() - fields.keys())
    yield from (
        f"{where}.{name} is not of the service" for name in fields.keys() - schema["properties"].keys()
    )
    required = set(schema.get("required", ()))
    wrong = (needed - required) if dataclasses.is_dataclass(get_origin(kind) or kind) else needed ^ required
    yield from (f"{where}.{name}: required or not?" for name in wrong)
    for name in schema["properties"].keys() & fields.keys():
        yield from differences(schema["properties"][name], fields[name], f"{where}.{name}")


def fields_of(kind: Any) -> tuple[dict[str, Any], set[str]]:
    """The fields of a class of ``answers`` or ``bodies`` with their types, and those that must be there."""
    plain = get_origin(kind) or kind
    if is_typeddict(plain):
        marked = get_type_hints(plain, include_extras=True)
        needed = {name for name, hint in marked.items() if plain.__total__ or get_origin(hint) is Required}
        return get_type_hints(plain), needed
    assert dataclasses.is_dataclass(plain), f"{kind} stands for an object"
    hints = get_type_hints(plain)
    if plain is answers.Page:
        hints["items"] = tuple[get_args(kind)[0], ...]
    fields = [field for field in dataclasses.fields(plain) if not field.metadata.get("header")]
    names = {field.name: field.metadata.get("name", field.name) for field in fields}
    needed = {names[field.name] for field in fields if field.default is dataclasses.MISSING}
    return {names[field.name]: hints[field.name] for field in fields}, needed


def without_none(kind: Any) -> Any:
    """The one type that stands for objects, lists or words among those of a union."""
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    parts = [part for part in get_args(kind) if part is not type(None)]
    return max(parts, key=lambda part: (get_origin(part) is not None, is_typeddict(part)))


def sorted_out(schema: Mapping[str, Any], body: Any) -> tuple[set[str], set[str]]:
    """What a body lacks of a schema, and what else is wrong with it."""
    found = set(differences(schema, body, "body"))
    lacks = {each for each in found if " lacks " in each}
    return lacks, found - lacks


def routes_of(method: str, path: str) -> list[Route[Any]]:
    return [route for route in ROUTES if (route.method, route.path) == (method, path)]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_client_takes_and_gives_every_field(method: str, path: str):
    operation = openapi_document()["paths"][path][method.lower()]
    found = routes_of(method, path)
    for content_type, content in operation.get("requestBody", {}).get("content", {}).items():
        bodies = [route.body for route in found if route.content_type == content_type]
        assert bodies, f"no route sends {content_type}"
        if content_type == JSON:  # what one of several calls does not take, another takes
            lacks, wrong = zip(*(sorted_out(content["schema"], body) for body in bodies), strict=True)
            assert (set.intersection(*lacks), set.union(*wrong)) == (set(), set())
    given = {
        each["name"]: each["schema"] for each in operation.get("parameters", ()) if each["in"] == "query"
    }
    known = {
        name: kind for route in found if route.query for name, kind in get_type_hints(route.query).items()
    }
    assert given.keys() == known.keys()
    assert [lack for name in given for lack in differences(given[name], known[name], name)] == []
    success = min(status for status in operation["responses"] if status.startswith("2"))
    content = operation["responses"][success].get("content", {})
    if "anyOf" in content.get(JSON, {}).get("schema", {}):  # each has a call of its own
        assert len({route.answer for route in found}) == len(content[JSON]["schema"]["anyOf"])
    for route in found:
        if route.answer is bytes:
            assert RAW in content
        elif JSON in content:
            assert list(differences(content[JSON]["schema"], route.answer, "answer")) == []
        else:
            assert route.answer is (str if "text/plain" in content else type(None))  # files are streamed


def test_every_route_of_the_client_is_one_of_the_service_and_is_used():
    served = {(verb.upper(), path) for path, verbs in openapi_document()["paths"].items() for verb in verbs}
    assert {*OPERATIONS, *TWICE} == served
    source = Path(endpoints.__file__).read_text()
    named = {name for name, value in vars(routes).items() if isinstance(value, Route)}
    assert named == set(re.findall(r"routes\.([A-Z_]+)", source))
    assert len(named) == len(ROUTES)


def test_every_error_of_the_service_is_one_of_the_client():
    kinds = [errors.ShortlistError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    codes = {kind.code for kind in kinds if kind is not errors.StartupError} - {"internal"}
    assert codes == BY_CODE.keys()
    for kind in kinds:
        if kind.code in BY_CODE and kind.__name__ == BY_CODE[kind.code].__name__:
            below = {each.__name__ for each in kind.__subclasses__() if each.code != kind.code}
            assert below == {each.__name__ for each in BY_CODE[kind.code].__subclasses__()}


def test_batches_are_within_the_limits_of_the_service():
    allowed = {
        "ARMS": (limits.MAX_ARMS, limits.MAX_BODY_BYTES),
        "IDS": (limits.MAX_ARMS, limits.MAX_IDS_BYTES),
        "REWARDS": (limits.MAX_REWARDS, limits.MAX_BODY_BYTES),
        "OBSERVATIONS": (limits.MAX_REWARDS, limits.MAX_BODY_BYTES),
        "CHOICES": (limits.MAX_BATCH, limits.MAX_BODY_BYTES),
        "ACTIVATIONS": (limits.MAX_BATCH, limits.MAX_BODY_BYTES),
        "RESULTS": (campaign_limits.MAX_ASKED, campaign_limits.MAX_IDS_BYTES),
    }
    assert (batches.MOST_NUMBERS, batches.MOST_ROWS) == (limits.MAX_VALUES, limits.MAX_JSON_VECTORS)
    for name, (items, size) in allowed.items():
        most = getattr(batches, name)
        assert most.items == items
        assert most.size <= size // 2
    assert batches.CHOICES.arms == limits.MAX_BATCH_ARMS


@pytest.mark.rest
def test_the_walk_sees_what_is_missing():
    item, answer = schema_of("ChooseItem"), schema_of("ChoiceView")
    found = set(differences(item | {"properties": {}}, routes.CHOOSE.body, "body"))
    assert "body.key is not of the service" in found
    extended = item | {"properties": {**item["properties"], "mood": {}}}
    assert list(differences(extended, routes.CHOOSE.body, "body")) == ["body lacks mood"]
    policies = {"enum": ["sub_ts", "best"]}
    assert list(differences(policies, Literal["sub_ts"], "policy")) == ["policy lacks 'best'"]
    choice = answer | {"properties": {**answer["properties"], "mood": {}}}
    assert list(differences(choice, routes.CHOOSE.answer, "answer")) == ["answer lacks mood"]
