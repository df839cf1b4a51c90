"""Bodies of more than 64 KiB: refused for what can be seen at once, and read item by item."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from api_client import Api, Json
from app.api import strict_json
from app.api.arms import ArmIdsBody, ArmsBody
from app.api.choose import ChooseBatchBody, ChooseBody
from app.api.mips import VectorsMipsBody
from app.api.rewards import RewardsBody
from app.api.strict_json import LARGE_BODY_BYTES, StrictModel, read_body, validate_whole
from app.platform.errors import Invalid, ShortlistError, TooLarge
from shortlist_campaigns.sampling_calls import SampleBody
from shortlist_campaigns.slate_calls import SlateBody

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

FILLER = " " * LARGE_BODY_BYTES


def text(body: Any) -> bytes:
    return (json.dumps(body) + FILLER).encode()


def arms(count: int, dim: int = 3) -> list[Json]:
    return [{"id": f"a{n}", "features": [n / 7, *[0.5] * (dim - 1)], "tags": ["x"]} for n in range(count)]


async def refusal(model: type[StrictModel], data: bytes) -> ShortlistError:
    with pytest.raises(ShortlistError) as error:
        await read_body(model, data)
    return error.value


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (ArmsBody, {"arms": arms(1)}),
        (ArmsBody, {"arms": [*arms(2_000), *arms(1, 4_096)]}),
        (ArmIdsBody, {"ids": [f"a{n}" for n in range(9_000)]}),
        (ChooseBody, {"key": "u", "k": 3, "exclude": ["a", "b"], "filter": {"x": 1}, "context": [1.0]}),
        (ChooseBody, {"k": 3, "candidates": None}),
        (ChooseBatchBody, {"requests": [{"exclude": [f"a{n}" for n in range(10_000)], "k": 2}, {}]}),
        (RewardsBody, {"rewards": [{"decision": "x" * 200_000, "value": 1}] * 2}),
        (VectorsMipsBody, {"k": 7, "vectors": [[1.0, 2.0], [3.0]], "query": [1], "value_range": [-9, 9]}),
        (
            SampleBody,
            {"log_factors": [[None, "-Infinity", 1.5]] * 3, "log_prior": [0.0, None, 1], "draws": 3},
        ),
        (SlateBody, {"id": "s", "arms": ["a", "b"], "k": 1, "noise_std": 1.0}),
    ],
)
async def test_a_large_body_is_read_as_a_small_one(model: type[StrictModel], body: Json):
    assert await read_body(model, text(body)) == validate_whole(model, json.dumps(body).encode())


WRONG: list[tuple[type[StrictModel], Callable[[], Any], list[Any]]] = [
    (ArmsBody, lambda: {"arms": [*arms(3), {"id": "x", "features": [1, "2"]}]}, ["arms", 3, "features", 1]),
    (ArmsBody, lambda: {"arms": [*arms(3), {"id": "x y", "features": [1]}]}, ["arms", 3, "id"]),
    (ArmsBody, lambda: {"arms": [*arms(3), {"features": [1]}]}, ["arms", 3, "id"]),
    (ArmsBody, lambda: {"arms": [*arms(3), {"id": "x", "features": [1], "no": 1}]}, ["arms", 3, "no"]),
    (ArmsBody, lambda: {"arms": [*arms(3), []]}, ["arms", 3]),
    (ArmsBody, lambda: {"arms": arms(3), "no": 1}, ["no"]),
    (ArmsBody, lambda: {"arms": []}, ["arms"]),
    (ArmsBody, lambda: {"arms": {"a": 1}}, ["arms"]),
    (ArmsBody, lambda: {"others": []}, ["others"]),
    (ArmsBody, dict, ["arms"]),
    (ArmsBody, list, []),
    (ChooseBatchBody, lambda: {"requests": [{}, {"k": 0}]}, ["requests", 1, "k"]),
    (ChooseBatchBody, lambda: {"requests": [{"exclude": ["a"] * 30_000}]}, ["requests", 0, "exclude"]),
    (VectorsMipsBody, lambda: {"query": [1], "vectors": [[1.0], [True]]}, ["vectors", 1, 0]),
    (VectorsMipsBody, lambda: {"query": [1], "vectors": [[1.0], []]}, ["vectors", 1]),
    (VectorsMipsBody, lambda: {"query": [1], "vectors": [[1.0], [1e300]]}, ["vectors", 1, 0]),
    (VectorsMipsBody, lambda: {"query": ["x"], "vectors": [[1.0]]}, ["query", 0]),
    (VectorsMipsBody, lambda: {"query": [1], "k": 0, "vectors": [[1.0]]}, ["k"]),
    (SampleBody, lambda: {"log_factors": [[1.0], ["Infinity"]]}, ["log_factors", 1, 0]),
    (ChooseBody, lambda: {"filter": {"x": "y" * 2**18}}, ["filter"]),
]


@pytest.mark.parametrize(("model", "make", "where"), WRONG, ids=range(len(WRONG)))
async def test_what_is_wrong_in_a_large_body_is_named(
    model: type[StrictModel], make: Callable[[], Any], where: list[Any]
):
    error = await refusal(model, text(make()))
    assert isinstance(error, Invalid)
    assert error.errors[0][0] == tuple(where)


TOO_MUCH: list[tuple[type[StrictModel], bytes, list[Any]]] = [
    (ArmsBody, text({"arms": arms(10_001, 1)}), ["arms"]),
    (ChooseBody, text({"exclude": ["a"] * 10_001}), ["exclude"]),
    (VectorsMipsBody, text({"query": [0.12345] * 300_000, "vectors": [[1]]}), ["query"]),
    (VectorsMipsBody, text({"query": [1], "vectors": [[0.12345] * 300_000]}), ["vectors", 0]),
    (VectorsMipsBody, b'{"query":[1],"vectors":[%b]}' % b",".join([b"[1]"] * 1_000_001), []),
]


@pytest.mark.parametrize(("model", "data", "where"), TOO_MUCH, ids=range(len(TOO_MUCH)))
async def test_what_is_too_much_is_named(model: type[StrictModel], data: bytes, where: list[Any]):
    error = await refusal(model, data)
    assert isinstance(error, TooLarge)
    assert error.errors[0][0] == tuple(where)


@pytest.mark.parametrize(
    "tail",
    [
        b"", b",",
        b",]", b",]}", b",{}]}x", b',{"id":"\\ud800"}]}', b',{"id":"\xff"}]}', b",NaN]}", b",1e999]}",
        b"," + b"[" * 30_000 + b"]" * 30_000 + b"]}", b"]}}", b"]]",
    ],
)  # fmt: skip
async def test_a_large_body_that_is_no_json_is_refused(tail: bytes):
    assert isinstance(
        await refusal(ArmsBody, json.dumps({"arms": arms(2_000)}).encode()[:-2] + tail), Invalid
    )


async def test_the_unknown_and_the_long_are_refused_unparsed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(strict_json, "validate_whole", None)
    unknown = b",".join(b'"u%d":0' % n for n in range(20_000))
    for model, where in ((ChooseBody, ()), (ArmsBody, ()), (ChooseBatchBody, ("requests", 0))):
        data = b"{%b}" % unknown if not where else b'{"requests":[{%b}]}' % unknown
        error = await refusal(model, data)
        assert error.errors == [((*where, "u0"), "Extra inputs are not permitted")]
    error = await refusal(ChooseBody, b'{"c4nary!":1,"key":"%b"}' % (b"x" * LARGE_BODY_BYTES))
    assert error.errors[0][0] == ("?",)
    error = await refusal(ChooseBody, b'{"exclude":[%b]}' % b",".join([b"[[[[]]]]"] * 10_001))
    assert isinstance(error, TooLarge)
    assert error.errors[0][0] == ("exclude",)


async def test_a_large_upsert_is_all_or_nothing(api: Api):
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 30}, 201)
    some = arms(3_000, 30)
    wrong = [*some[:-1], {**some[-1], "features": [1.0] * 29}]
    refused = await api.refused("PUT", "/v1/catalogues/c/arms", {"arms": wrong}, code="dimension_mismatch")
    assert refused["errors"][0]["loc"] == ["body", "arms", 2_999, "features"]
    assert (await api.ok("GET", "/v1/catalogues/c"))["size"] == 0
    assert (await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": some}))["added"] == 3_000
