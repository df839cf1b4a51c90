"""Large bodies of numbers or of arms: read in pieces, in a thread, as small ones are, errors included."""

import asyncio
import json
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from api_client import Api, Json
from pydantic import TypeAdapter

from app.api import large_json
from app.api.arms import ArmsBody
from app.api.large_json import PIECE
from app.api.mips import VectorsMipsBody
from app.api.sampling import SampleBody
from app.api.strict_json import LARGE, StrictModel, whole
from app.errors import ShortlistError

pytestmark = pytest.mark.anyio

WIDE = PIECE // 2


def numbers(*shape: int) -> list[Any]:
    found: list[Any] = np.random.default_rng(shape).standard_normal(shape).tolist()
    return found


def pieces(model: type[StrictModel], body: Any) -> Any:
    assert model.in_pieces is not None
    return model.in_pieces(body if isinstance(body, bytes) else json.dumps(body).encode())


def errors(read: Any, body: bytes) -> Any:
    """The status, and where the first error is."""
    with pytest.raises(ShortlistError) as error:
        read(body)
    return error.value.status, [item[0] for item in error.value.errors][:1]


def arms(count: int, dim: int) -> list[Json]:
    return [{"id": f"a{n}", "features": row} for n, row in enumerate(numbers(count, dim))]


@pytest.mark.parametrize("shape", [(1, 1), (300, 100), (10_000, 2), (3, 4 * WIDE)])
def test_the_same_arms_are_read(shape: tuple[int, int]):
    some = arms(*shape)
    some[-1] |= {"tags": ["x"], "metadata": {"a": [1, {"b": None}]}}
    assert pieces(ArmsBody, {"arms": some}) == ArmsBody.model_validate_json(json.dumps({"arms": some}))


@pytest.mark.parametrize(
    "change",
    [
        {"arms": [*arms(9_000, 3), {"id": "x", "features": [1, "2"]}]},
        {"arms": [*arms(9_000, 3), {"id": "x y", "features": [1]}]},
        {"arms": [*arms(9_000, 3), {"id": "x"}]},
        {"arms": [*arms(9_000, 3), {"id": "x", "features": [1], "unknown": 1}]},
        {"arms": [*arms(9_000, 3), {"id": "x", "features": [1], "metadata": {"a": 2**70}}]},
        {"arms": [*arms(9_000, 3), []]},
        {"arms": arms(10_001, 1)},
        {"arms": arms(9_000, 3), "unknown": 1},
        {"arms": []},
        {"arms": {"a": arms(9_000, 3)}},
        {"others": arms(9_000, 3)},
    ],
)
def test_errors_of_arms_are_those_of_a_small_body(change: Json):
    body = json.dumps(change).encode()
    assert errors(ArmsBody.in_pieces, body) == errors(partial(whole, ArmsBody), body)


@pytest.mark.parametrize("shape", [(1, 1), (3, WIDE), (300, 100), (WIDE, 1), (1, 3 * WIDE)])
def test_the_same_numbers_are_read(shape: tuple[int, int]):
    vectors, query = numbers(*shape), numbers(shape[1])
    body = pieces(VectorsMipsBody, {"k": 7, "vectors": vectors, "query": query, "value_range": [-9, 9]})
    np.testing.assert_array_equal(body.vectors, vectors)
    np.testing.assert_array_equal(body.query, query)
    assert (body.k, body.value_range, body.method) == (7, [-9.0, 9.0], "bounded_me")


def test_probability_zero_has_both_its_names():
    rows = [[None, "-Infinity", 1.5] * 40] * 300
    body = pieces(SampleBody, {"log_factors": rows, "draws": 3})
    found = np.array(body.log_factors)
    assert found.shape == (300, 120)
    assert np.isnan(found[:, 0]).all()
    assert (found[:, 1] == -np.inf).all()


def test_rows_of_several_lengths_stay_as_they_are():
    rows = [[1.0, 2.0], [3.0], [4.0] * WIDE, [5.0, 6.0]]
    assert list(map(list, pieces(VectorsMipsBody, {"query": [1.0], "vectors": rows}).vectors)) == rows


@pytest.mark.parametrize(
    "change",
    [
        {"vectors": [[1.0]] * 20_000 + [["1"]]},
        {"vectors": [[1.0]] * 20_000 + [[1.0, None]]},
        {"vectors": [[1.0]] * 20_000 + [[]]},
        {"vectors": [[1.0]] * 20_000 + [5]},
        {"vectors": [[1.0]] * 1_000_001},
        {"vectors": [[0.0] * WIDE + [1e300]]},
        {"vectors": [[0.0] * WIDE + [True]]},
        {"vectors": [[0.0] * WIDE + [[1.0, 2.0]]]},
        {"vectors": [[0.0] * 1_000_001]},
        {"vectors": ["0" * 2 * PIECE]},
        {"vectors": []},
        {"vectors": {}},
        {"query": [1.0] * WIDE + ["x"]},
        {"query": [1.0] * 1_000_001},
        {"query": "1" * 2 * PIECE},
        {"query": None},
        {"k": 0},
        {"unknown": [1.0] * WIDE},
    ],
)
def test_errors_are_those_of_a_small_body(change: Json):
    body = json.dumps({"query": [1.0], "vectors": [[1.0]], **change}).encode()
    assert errors(VectorsMipsBody.in_pieces, body) == errors(partial(whole, VectorsMipsBody), body)


@pytest.mark.parametrize(
    "tail", [b"", b"]", b"]]", b"]}", b",]]}", b"]]}x", b",NaN]]}", b",1e999]]}", b",\xff]]}"]
)
def test_broken_json_is_refused(tail: bytes):
    body = b'{"query": [1], "vectors": [[' + b"1.5," * PIECE + b"2" + tail
    with pytest.raises(ShortlistError):
        pieces(VectorsMipsBody, body)


def test_a_long_row_of_nothing_is_empty():
    with pytest.raises(ShortlistError, match="at least 1"):
        pieces(VectorsMipsBody, b'{"query": [1], "vectors": [[' + b" " * 2 * PIECE + b"]]}")


def test_no_piece_is_long(monkeypatch: pytest.MonkeyPatch):
    """So the interpreter's lock is never held for long: others run between two pieces."""
    sizes, checked = [], large_json._checked

    def seen(kind: TypeAdapter[Any], text: bytes, *place: Any) -> Any:
        sizes.append(len(text))
        return checked(kind, text, *place)

    monkeypatch.setattr(large_json, "_checked", seen)
    for shape in ((2, 4 * WIDE), (500, 300), (3 * WIDE, 1)):
        pieces(VectorsMipsBody, {"query": numbers(shape[1]), "vectors": numbers(*shape)})
    assert max(sizes) < PIECE + 100
    assert len(sizes) > 30


async def test_a_large_upsert_is_all_or_nothing(api: Api):
    await api.catalogue("c", {"a": [1.0] * 50})
    some = arms(1_000, 50)
    assert len(json.dumps(some)) > LARGE
    twice = await api.call("PUT", "/v1/catalogues/c/arms", {"arms": [*some, some[0]]})
    assert twice.status_code == 422
    assert twice.json()["errors"][0]["loc"] == ["body", "arms", 1_000, "id"]
    short = await api.call("PUT", "/v1/catalogues/c/arms", {"arms": [*some, {"id": "x", "features": [1]}]})
    assert short.status_code == 422
    assert (await api.ok("GET", "/v1/catalogues/c"))["size"] == 1
    assert (await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": some}))["added"] == 1_000
    assert (await api.ok("GET", "/v1/catalogues/c/arms/a999"))["features"] == some[999]["features"]


@pytest.mark.parametrize("path", ["/v1/mips", "/v1/sample"])
async def test_others_are_answered_while_a_large_body_is_read(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str
):
    """The first piece waits until another request was answered, which a read on the event loop never sees."""
    rows = numbers(LARGE // 1000, 100)
    body = {"query": rows[0], "vectors": rows} if path == "/v1/mips" else {"log_factors": rows}
    begun, answered, checked = threading.Event(), threading.Event(), large_json._checked

    def waits(*arguments: Any) -> Any:
        begun.set()
        assert answered.wait(30)
        return checked(*arguments)

    monkeypatch.setattr(large_json, "_checked", waits)
    call = asyncio.create_task(api.call("POST", path, body))
    assert await asyncio.to_thread(begun.wait, 30)
    await api.catalogue("other", {"a": [1.0]})
    assert not call.done()
    answered.set()
    assert (await call).status_code == 200
