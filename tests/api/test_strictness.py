"""No coercion, no clamping, no unknown field: every field of every body against what it must not take."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from endpoints import WRITES, Endpoint, Kind, at, create_one_of_each, fields, replaced, with_token

from api_client import Api, Json, running
from openapi_document import openapi_document

pytestmark = pytest.mark.anyio

CANARY = "c4nary"
OBJECTS = {"list", "dict", "half_life"}  # what is wrong may be within
LONG = "7" * 4_000


@dataclass(frozen=True)
class Raw:
    """Text that goes into the body as it is."""

    text: str


STRINGS = ("5", "", " ", CANARY + "!", "null", "1.0")
NOT_NUMBERS: tuple[Any, ...] = (*STRINGS, True, False, [], [1], {}, {"a": 1})
BEYOND = (
    Raw("NaN"),
    Raw("Infinity"),
    Raw("-Infinity"),
    Raw("1e999"),
    Raw("-1e999"),
    Raw(LONG),
    Raw("-" + LONG),
)
WRONG: dict[Kind, tuple[Any, ...]] = {
    "int": (*NOT_NUMBERS, *BEYOND, 1.0, 1.5, -1, Raw("1e1"), Raw("1.0"), 2**63, 2**64, 10**30),
    "float": (*NOT_NUMBERS, *BEYOND, 1e300, -1e300, 10**30),
    "exploration": (*NOT_NUMBERS, *BEYOND, -1, 1e7, "Theory"),
    "half_life": (*STRINGS, True, [], *BEYOND, 0, -1, 1e300, {"arms": "1"}, {"keys": 0}, {"other": 1}),
    "id": (
        5, 1.5, True, [], {}, "", " ", f" {CANARY}", f"{CANARY} ", f"{CANARY}\n", f"{CANARY}/x", f"-{CANARY}",
        f"_{CANARY}", f".{CANARY}", f"{CANARY}é", f"{CANARY}\u0000", f"{CANARY}\u2028", "ａ", "٣", "a" * 129,
        Raw(f'"{CANARY}\\ud800"'), Raw(f'"{CANARY}\\udc00\\ud800"'), Raw(f'"{CANARY}\t"'), *BEYOND,
    ),
    "text": (5, 1.5, True, [], {}, "", Raw(f'"{CANARY}\\ud800"'), Raw(f'"{CANARY}\n"'), *BEYOND),
    "word": (5, 1.5, True, [], {}, *STRINGS, CANARY, "GLOBAL", "exact ", Raw(f'"{CANARY}\\ud800"'), *BEYOND),
    "list": (5, 1.5, True, {}, {"0": 1}, *STRINGS, *BEYOND, [None], [[]], [True], [{CANARY + "!": 1}]),
    "bool": (5, 0, 1, 1.0, *STRINGS, "true", "false", [], [True], {}, *BEYOND),
    "time": (True, [], [1], {}, "", " ", CANARY, "2026-13-01", "12:00", "null", Raw("1e300"), *BEYOND),
    "dict": (5, 1.5, True, [], [[]], *STRINGS, *BEYOND),
}  # fmt: skip
# A field of each kind meets all of these; the others those that tell a strict field from one that converts.
TELLING: dict[Kind, tuple[Any, ...]] = {
    "int": ("5", True, [1], Raw("NaN"), Raw(LONG), 1.0, -1, 2**63),
    "float": ("1.0", True, {}, Raw("NaN"), Raw("1e999"), Raw(LONG), 1e300),
    "exploration": ("1.0", False, Raw("Infinity"), -1, 1e7, "Theory"),
    "half_life": ("1.0", True, [1], Raw("NaN"), {"arms": Raw(LONG)}, {"keys": 0}, {"other": 1}),
    "id": (5, True, "", f"{CANARY} ", f"{CANARY}/x", f"{CANARY}é", "a" * 129, Raw(f'"{CANARY}\\ud800"')),
    "text": (5, True, "", Raw(f'"{CANARY}\\ud800"'), Raw(f'"{CANARY}\n"')),
    "word": (5, True, "", CANARY, "GLOBAL", "exact "),
    "list": (5, {"0": 1}, "null", [None], [[]], [{CANARY + "!": 1}]),
    "bool": (0, 1.0, "true", "", []),
    "time": (True, [1], "", "2026-13-01", "12:00", Raw("1e300")),
    "dict": (5, True, [], "null", [[]]),
}
FIRST = {kind: (str(endpoint), path) for endpoint, path, kind in reversed([*fields()])}


@dataclass
class Target:
    api: Api
    token: str


@pytest.fixture(scope="module")
async def target(shared_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    folder: Path = tmp_path_factory.mktemp("strictness")
    async with running(shared_store_url, folder) as api:
        yield Target(api, await create_one_of_each(api))


def encoded(body: Any) -> bytes:
    """JSON text of a body with raw pieces in it."""
    pieces: list[str] = []

    def keep(value: Any) -> str:
        assert isinstance(value, Raw)
        pieces.append(value.text)
        return f"@@{len(pieces) - 1}@@"

    text = json.dumps(body, default=keep)
    for number, piece in enumerate(pieces):
        text = text.replace(f'"@@{number}@@"', piece)
    return text.encode()


async def refuse(
    target: Target, endpoint: Endpoint, body: bytes, place: list[str | int], *, inside: bool = False
) -> None:
    """The field is named, or the text as a whole when it is not JSON; ``inside``: or what is in the field."""
    document = await target.api.refused(
        endpoint.method, endpoint.path, content=body, code="invalid", canary=CANARY
    )
    assert document["errors"]
    assert LONG[:20] not in json.dumps(document)
    for error in document["errors"]:
        loc = error["loc"][: len(place)] if inside else error["loc"]
        assert loc in (place, ["body"]), document


@pytest.mark.parametrize("endpoint", WRITES, ids=str)
async def test_a_field_takes_what_it_is_documented_to_take(target: Target, endpoint: Endpoint):
    before = await target.api.stored()
    body = with_token(endpoint.body or {}, target.token)
    for path, kind in endpoint.kinds.items():
        values = (WRONG if FIRST[kind] == (str(endpoint), path) else TELLING)[kind]
        for value in values if path in endpoint.nullable else (*values, None):
            changed = encoded(replaced(body, path, value))
            await refuse(target, endpoint, changed, ["body", *at(path)], inside=kind in OBJECTS)
    assert await target.api.stored() == before


@pytest.mark.parametrize("endpoint", WRITES, ids=str)
async def test_an_unknown_field_is_refused_at_every_level(target: Target, endpoint: Endpoint):
    before = await target.api.stored()
    body = with_token(endpoint.body or {}, target.token)
    parents = {""} | {path for path, kind in endpoint.kinds.items() if path in {"index", "reward"}}
    parents |= {path.rsplit(".", 1)[0] for path in endpoint.kinds if path.count(".") == 2}
    for parent in parents:
        for name in ("extra", "Dim", "seed ", CANARY + "-" + "x" * 40, "é", "__proto__", ""):
            path = f"{parent}.{name}" if parent else name
            changed = encoded(replaced(body, path.rstrip(".") or name, CANARY) if name else {**body, "": 1})
            shown = name if name in {"extra", "Dim", "__proto__"} else "?"
            place: list[str | int] = ["body", *(at(parent) if parent and name else []), shown]
            await refuse(target, endpoint, changed, place)
    assert await target.api.stored() == before


async def test_what_is_of_no_kind_is_told_all_kinds(target: Target):
    """Of each field that may be of several kinds, where ``true`` is of none."""
    bandit, words = {"catalogue": "c", "policy": "sub_ts"}, {"integer": "number"}
    asked: list[tuple[str, Json, list[str]]] = [
        (
            "PUT bandits/x",
            {**bandit, "holdout": {"share": 1, "serve": True}},
            ["random", "candidates", "object"],
        ),
        ("PUT bandits/x", {**bandit, "signals": {"s": {"noise": True}}}, ["number", "auto"]),
        ("PUT catalogues/x", {"features": {"embedding": {"dim": 9, "reduce": True}}}, ["number", "object"]),
        ("POST bandits/b/choose", {"candidates": [True]}, ["id", "object"]),
        ("POST bandits/b/choose", {"context": True}, ["list", "object"]),
        ("POST activations", {"decisions": [True]}, ["token", "object"]),
        ("POST bandits/b/evaluations", {"policy": {"weights": True}}, ["object", "list", "null"]),
    ]
    for name, schema in openapi_document()["components"]["schemas"]["BanditBody"]["properties"].items():
        kinds = schema.get("anyOf", [])
        if len([kind for kind in kinds if kind.get("type") != "null"]) > 1:
            told = [kind.get("enum") or [kind.get("const") or kind.get("type", "object")] for kind in kinds]
            asked.append(
                ("PUT bandits/x", {**bandit, name: True}, [words.get(w, w) for ws in told for w in ws])
            )
    assert len(asked) == 14
    for call, body, said in asked:
        method, path = call.split()
        detail = (await target.api.refused(method, f"/v1/{path}", body))["detail"]
        assert all(word in detail for word in said), detail


@pytest.mark.parametrize("endpoint", [each for each in WRITES if each.method != "PATCH"], ids=str)
async def test_a_required_field_is_required(target: Target, endpoint: Endpoint):
    before = await target.api.stored()
    required = {"dim", "arms", "ids", "catalogue", "policy", "requests", "rewards", "observations"}
    for name in required & set(endpoint.body or {}):
        body = {key: value for key, value in (endpoint.body or {}).items() if key != name}
        await refuse(target, endpoint, encoded(body), ["body", name])
    for path in set(endpoint.kinds) & {
        "arms.0.id", "arms.0.features", "rewards.0.decision", "rewards.0.value",
        "observations.0.id", "observations.0.arm", "observations.0.value",
    }:  # fmt: skip
        body = with_token(endpoint.body or {}, target.token)
        *parents, last = at(path)
        inner: Any = body
        for part in parents:
            inner = inner[part]
        del inner[last]
        await refuse(target, endpoint, encoded(body), ["body", *at(path)])
    assert await target.api.stored() == before


@pytest.mark.parametrize("endpoint", [each for each in WRITES if "list" in each.kinds.values()], ids=str)
async def test_a_batch_is_not_empty(target: Target, endpoint: Endpoint):
    for path, kind in endpoint.kinds.items():
        if kind == "list" and "." not in path and path not in {"exclude", "include"}:
            body = with_token(endpoint.body or {}, target.token)
            await refuse(target, endpoint, encoded(replaced(body, path, [])), ["body", path])


@pytest.mark.parametrize("endpoint", [*WRITES], ids=str)
async def test_the_table_is_right_and_whole_numbers_are_numbers(target: Target, endpoint: Endpoint):
    """The request of the table is accepted as it is: so what the tests above change is what is refused."""
    body = with_token(endpoint.body or {}, target.token)
    answer = await target.api.call(endpoint.method, endpoint.path, body)
    assert answer.status_code in {200, 201, 202}, answer.text
    if "rewards" in body:
        assert answer.json()["rejected"] == []


@pytest.mark.rest
async def test_a_feature_is_a_finite_number(target: Target):
    before = await target.api.stored()
    endpoint = Endpoint("PUT", "", "/v1/catalogues/c/arms")

    def body(position: int, value: Any) -> bytes:
        features: list[Any] = [1.0, 2.0, 3.0]
        features[position] = value
        arms = [{"id": "fine", "features": [1, 2, 3]}, {"id": "new", "features": features}]
        return encoded({"arms": arms})

    for position in (0, 2):
        for value in (*BEYOND, "x", True, None, [1], {}):
            place = ["body", "arms", 1, "features", position]
            await refuse(target, endpoint, body(position, value), place)
    assert await target.api.stored() == before
    await target.api.ok("PUT", "/v1/catalogues/c/arms", content=body(0, Raw("-0")))


async def test_a_vector_of_the_wrong_length_is_a_dimension_mismatch(target: Target):
    before = await target.api.stored()
    for length in (0, 1, 2, 4, 3_000):
        arms = [{"id": "fine", "features": [1, 2, 3]}, {"id": CANARY, "features": [0.5] * length}]
        document = await target.api.refused(
            "PUT",
            "/v1/catalogues/c/arms",
            {"arms": arms},
            code="dimension_mismatch",
            loc=["body", "arms", 1, "features"],
            canary=CANARY,
        )
        assert "3" in document["detail"]
    assert await target.api.stored() == before


METADATA = (
    "NaN", "Infinity", "-Infinity", "1e999", LONG, "9" * 5_000, str(2**64), str(-(2**63) - 1),
    f'"{CANARY}\\ud800"', f'"\\udfff{CANARY}"', f'{{"{CANARY}\\ud800": 1}}', f'"{CANARY}\n"',
    "[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000,
    json.dumps(CANARY * 3_000), "[" + "0," * 9_000 + "0]", "tru", "'a'", "0x10", "01", "+1", ".5", "1.", "",
    json.dumps([{f"{CANARY}{n}": n} for n in range(256)]),
)  # fmt: skip


@pytest.mark.rest
async def test_metadata_is_small_and_plain(target: Target):
    before = await target.api.stored()
    endpoint = Endpoint("PUT", "", "/v1/catalogues/c/arms")
    for text in METADATA:
        arm = f'{{"arms": [{{"id": "new", "features": [1, 2, 3], "metadata": {{"x": {text}}}}}]}}'
        await refuse(target, endpoint, arm.encode(), ["body", "arms", 0, "metadata"])
    assert await target.api.stored() == before


@pytest.mark.rest
async def test_plain_metadata_comes_back_as_it_was(target: Target):
    metadata = {
        "": "", "é\u0000\U0001f600": "\u2028\u0000\"\\", "int": [2**63 - 1, -(2**63), 2**64 - 1, 0],
        "float": [0.1, 1e308, 5e-324, -0.0], "deep": None, "bool": [True, False], "empty": [{}, []],
    }  # fmt: skip
    inner: Any = 1
    for _ in range(100):
        inner = [inner]
    metadata["deep"] = inner
    metadata["many"] = [{str(n): n} for n in range(256 - len(metadata) - 1)]
    tags = ["", "\u0000", "é" * 128, "a", "a"]
    arm = {"id": "plain", "features": [1e6, -1e6, 5e-324], "tags": tags, "metadata": metadata}
    await target.api.ok("PUT", "/v1/catalogues/c/arms", {"arms": [arm]})
    got = await target.api.ok("GET", "/v1/catalogues/c/arms/plain")
    assert got == arm
    assert json.dumps(got["metadata"], sort_keys=True) == json.dumps(metadata, sort_keys=True)
