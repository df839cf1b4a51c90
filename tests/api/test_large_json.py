"""Large bodies of numbers or of arms: read in pieces, in a thread, as small ones are, errors included."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from pydantic import TypeAdapter

from api_client import Api, Json
from app.api import large_json
from app.api.arms import ArmIdsBody, ArmsBody
from app.api.choose import ChooseBatchBody, ChooseBody
from app.api.decisions import ActivationsBody
from app.api.large_json import PIECE
from app.api.limits import MAX_LINE_BYTES
from app.api.mips import MipsBody, VectorsMipsBody
from app.api.problems import kind_of
from app.api.rewards import RewardsBody
from app.api.sampling import SampleBody
from app.api.strict_json import LARGE, StrictModel, whole
from app.errors import Invalid, ShortlistError, TooLarge

pytestmark = pytest.mark.anyio

WIDE = PIECE // 2


def numbers(*shape: int) -> list[Any]:
    found: list[Any] = np.random.default_rng(shape).standard_normal(shape).tolist()
    return found


def pieces(model: type[StrictModel], body: Any) -> Any:
    assert model.in_pieces is not None
    return model.in_pieces(body if isinstance(body, bytes) else json.dumps(body).encode())


def refused_alike(model: type[StrictModel], body: bytes) -> bool:
    """Whether a large body is refused as a small one is: its status, and of its errors the first."""
    found = []
    for read in (model.in_pieces, partial(whole, model)):
        assert read is not None
        with pytest.raises(ShortlistError) as error:
            read(body)
        found.append((kind_of(error.value).status, [item[0] for item in error.value.errors]))
    (status, large), (expected, small) = found
    return status == expected and bool(large) and large[0] in small


def arms(count: int, dim: int) -> list[Json]:
    return [{"id": f"a{n}", "features": row} for n, row in enumerate(numbers(count, dim))]


@pytest.mark.parametrize("shape", [(1, 1), (300, 100), (10_000, 2), (30, 4_096)])
def test_the_same_arms_are_read(shape: tuple[int, int]):
    some = arms(*shape)
    some[-1] |= {"tags": ["x"], "metadata": {"a": [1, {"b": None}]}}
    assert pieces(ArmsBody, {"arms": some}) == ArmsBody.model_validate_json(json.dumps({"arms": some}))


@pytest.mark.parametrize(
    "changed",
    [
        lambda some: {"arms": [*some, {"id": "x", "features": [1, "2"]}]},
        lambda some: {"arms": [*some, {"id": "x y", "features": [1]}]},
        lambda some: {"arms": [*some, {"id": "x"}]},
        lambda some: {"arms": [*some, {"id": "x", "features": [1], "unknown": 1}]},
        lambda some: {"arms": [*some, {"id": "x", "features": [1], "metadata": {"a": 2**70}}]},
        lambda some: {"arms": [*some, []]},
        lambda _: {"arms": arms(10_001, 1)},
        lambda some: {"arms": some, "unknown": 1},
        lambda _: {"arms": []},
        lambda some: {"arms": {"a": some}},
        lambda some: {"others": some},
    ],
)
def test_errors_of_arms_are_those_of_a_small_body(changed: Callable[[list[Json]], Json]):
    body = json.dumps(changed(arms(9_000, 3))).encode()
    assert refused_alike(ArmsBody, body)


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
    assert refused_alike(VectorsMipsBody, body)


@pytest.mark.parametrize(
    "tail", [b"", b"]", b"]]", b"]}", b",]]}", b"]]}x", b",NaN]]}", b",1e999]]}", b",\xff]]}"]
)
def test_broken_json_is_refused(tail: bytes):
    body = b'{"query": [1], "vectors": [[' + b"1.5," * PIECE + b"2" + tail
    with pytest.raises(ShortlistError):
        pieces(VectorsMipsBody, body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"query":[1],"vectors":[%b]}' % b",".join([b"1"] * 20 * PIECE),
        b'{"query":[1],"vectors":[[%b]]}' % b",".join([b"1.5"] * 20 * PIECE),
        b'{"vectors":[[1]],"query":[%b]}' % b",".join([b"0"] * 20 * PIECE),
        b'{"query":[1],"vectors":[%b]}' % b",".join([b"[1.5,2]"] * 10 * PIECE),
        b'{"query":[1],"vectors":[[1]],"value_range":[%b]}' % b",".join([b"0"] * 20 * PIECE),
        b'{"query":[1],"vectors":[[1]],"vectors":[%b]}' % b",".join([b"0"] * 20 * PIECE),
    ],
)
def test_nothing_looks_through_a_large_body_in_one_go(monkeypatch: pytest.MonkeyPatch, body: bytes):
    """Not even its outline, for which the lock is held as well."""
    sizes = list[int]()
    for name in ("_outline", "_list_of"):
        monkeypatch.setattr(large_json, name, partial(Watched, sizes, getattr(large_json, name)))
    decoder = msgspec.json.Decoder
    monkeypatch.setattr(msgspec.json, "Decoder", partial(Watched, sizes, decoder))
    monkeypatch.setattr(large_json, "whole", Watched(sizes, lambda: whole))
    with contextlib.suppress(ShortlistError):
        pieces(VectorsMipsBody, body)
    assert sizes
    assert max(sizes) < PIECE + 1_000


class Watched:
    """What parses texts; their sizes are noted."""

    def __init__(self, sizes: list[int], make: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self._sizes, self._made = sizes, make(*arguments, **options)

    def decode(self, text: bytes) -> Any:
        self._sizes.append(len(text))
        return self._made.decode(text)

    def validate_json(self, text: bytes) -> Any:
        self._sizes.append(len(text))
        return self._made.validate_json(text)

    def __call__(self, model: type[StrictModel], text: bytes) -> Any:
        self._sizes.append(len(text))
        return self._made(model, text)


def test_a_list_may_be_followed_by_much_space_and_come_before_other_fields():
    rows = numbers(500, 30)
    text = b'{"vectors"\n:\t%b \n, "k": 3, "query" :[%b\n]\r\n,"value_range": [-9, 9] \n}'
    body = pieces(VectorsMipsBody, text % (json.dumps(rows).encode(), b"1.5 ," * 29 + b"2"))
    np.testing.assert_array_equal(body.vectors, rows)
    assert (len(body.query), body.query[-1], body.k, body.value_range) == (30, 2.0, 3, [-9.0, 9.0])


@pytest.mark.parametrize(
    "fields",
    [
        b'"query":[1],"vectors":[[1]],"vectors":[[%b]]',
        b'"query":[1],"query":[%b],"vectors":[[1]]',
        b'"query":{"vectors":[[%b]]},"vectors":[[1]]',
        b'"query":[1],"vectors":{"vectors":[[%b]]}',
        b'"query":[1],"vectors":[[1]],"method":[%b]',
        b'"query":[1],"vectors":[[1]],"k":[%b]',
        b'"query":[1],"vectors":[[1]],"k":%b',
        b'"query":[1],"vectors":[[%b,{"k":[]}]]',
    ],
)
def test_a_list_in_the_wrong_place_is_refused(fields: bytes):
    with pytest.raises(ShortlistError) as error:
        pieces(VectorsMipsBody, b"{%b}" % (fields % b",".join([b"1"] * PIECE)))
    assert kind_of(error.value).status in (413, 422)
    assert error.value.errors


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


WITHIN = {"id": "x", "features": [1.0], "metadata": {"a": '}, {"id": "y"', "b": [{"c": "]},"}, {}]}}


@pytest.mark.parametrize("gap", ["", " ", "\n\t "])
def test_a_list_is_cut_only_between_its_items(gap: str):
    """Ends of objects within strings and within metadata look like ends of items."""
    some = [{**WITHIN, "id": f"a{n}", "tags": ["}," * 60] * (n % 3)} for n in range(2_000)]
    rows = f"{gap},{gap}".join(json.dumps(item) for item in some)
    body = f'{gap}{{{gap}"arms"{gap}:{gap}[{gap}{rows}{gap}]{gap}}}{gap}'.encode()
    assert len(body) > 3 * PIECE
    assert pieces(ArmsBody, body).model_dump() == ArmsBody.model_validate_json(body).model_dump()


def test_items_of_many_false_ends_are_read():
    """As many ends of objects within an item that it is hopeless to guess the one that is its own."""
    metadata = {f"é{n}": [[], {}, 1] for n in range(128)}
    some = [{"id": f"a{n}", "features": [1.0], "metadata": metadata} for n in range(120)]
    for ascii_alone in (True, False):
        body = json.dumps({"arms": some}, ensure_ascii=ascii_alone, separators=(",", ":")).encode()
        assert len(body) > 4 * PIECE
        assert pieces(ArmsBody, body).model_dump() == ArmsBody.model_validate_json(body).model_dump()


def test_an_item_may_be_larger_than_a_piece_and_not_larger_than_its_limit():
    def body(size: int) -> bytes:
        some: list[Json] = [{"decision": "x", "value": 1}] * 3_000
        some[1_500] = {"decision": "},{" * size, "value": 1}
        return json.dumps({"rewards": some}).encode()

    assert len(pieces(RewardsBody, body(PIECE)).rewards) == 3_000
    with pytest.raises(TooLarge) as error:
        pieces(RewardsBody, body(MAX_LINE_BYTES))
    assert error.value.errors[0][0] == ("rewards",)


@pytest.mark.parametrize(
    "tail", [b"", b",", b",]", b",]}", b"]", b"]}x", b'],"x":1}', b"]]}", b",,{}]}", b"{}]}"]
)
def test_broken_lists_are_refused(tail: bytes):
    item = b'{"decision":"x","value":1}'
    body = b'{"rewards":[' + b",".join([item] * 9_000)
    with pytest.raises(Invalid):
        pieces(RewardsBody, body + tail)
    assert len(pieces(RewardsBody, body + b"]}").rewards) == 9_000


@pytest.mark.parametrize(
    ("model", "opening", "loc"),
    [
        (ChooseBody, b"{", ("u0",)),
        (MipsBody, b"{", ("u0",)),
        (VectorsMipsBody, b"{", None),
        (SampleBody, b"{", ("u0",)),
        (ChooseBatchBody, b'{"requests":[{},{', ("requests", 1, "u0")),
        (RewardsBody, b'{"rewards":[{"decision":"x","value":1},{', ("rewards", 1, "u0")),
        (ArmsBody, b'{"arms":[{"id":"x","features":[]},{', ("arms", 1, "u0")),
        (ArmsBody, b"{", ("u0",)),
    ],
)
def test_unknown_fields_are_not_counted(
    model: type[StrictModel], opening: bytes, loc: Any, monkeypatch: pytest.MonkeyPatch
):
    """The first one is named, and the object that has it is not validated."""
    closing = b"}]}" if b"[" in opening else b"}"
    body = opening + b",".join(b'"u%d":0' % n for n in range(PIECE)) + closing
    monkeypatch.setattr(large_json, "whole", None)
    with pytest.raises(ShortlistError) as error:
        pieces(model, body)
    assert [item[0] for item in error.value.errors] == [loc or ()]


def test_of_what_is_no_name_nothing_is_repeated():
    with pytest.raises(Invalid) as error:
        pieces(ChooseBody, b'{"%b":1}' % (b"c4nary " * PIECE))
    assert error.value.errors == [(("?",), "Extra inputs are not permitted")]


@pytest.mark.parametrize(
    ("model", "body", "loc", "status"),
    [
        (ChooseBody, b'{"exclude":[%b]}', ("exclude",), 413),
        (ArmIdsBody, b'{"ids":[%b]}', ("ids",), 413),
        (MipsBody, b'{"query":[%b]}', ("query",), 413),
        (ChooseBatchBody, b'{"requests":[{},{"exclude":[%b]}]}', ("requests", 1, "exclude"), 422),
        (ActivationsBody, b'{"decisions":[%b]}', ("decisions",), 413),
        (ArmsBody, b'{"arms":[{"id":"a","features":[%b]}]}', ("arms", 0, "features", 0), 422),
    ],
)
def test_a_list_with_too_much_in_it_ends_early(
    model: type[StrictModel], body: bytes, loc: Any, status: int, monkeypatch: pytest.MonkeyPatch
):
    """Nothing larger than a few pieces is parsed, and one error is made, not one for each item."""
    monkeypatch.setattr(large_json, "whole", None)
    with pytest.raises(ShortlistError) as error:
        pieces(model, body % b",".join([b'"a"'] * 2 * PIECE))
    assert (kind_of(error.value).status, [item[0] for item in error.value.errors]) == (status, [loc])


@pytest.mark.parametrize("items", [b"{}", b"0", b"[]", b'{"decision":"x"}'])
def test_one_bad_item_of_a_large_list_is_named(items: bytes):
    with pytest.raises(Invalid) as error:
        pieces(RewardsBody, b'{"rewards":[%b]}' % b",".join([items] * 9_000))
    assert {item[0][:2] for item in error.value.errors} == {("rewards", 0)}


async def test_large_bodies_are_read_in_threads_of_their_own(api: Api, monkeypatch: pytest.MonkeyPatch):
    """Those that are very large in another one, so that the others need not wait for them."""
    threads = set()

    def seen(model: type[StrictModel], data: bytes) -> Any:
        threads.add((len(data) > LARGE, threading.current_thread().name.rpartition("_")[0]))
        return whole(model, data)

    monkeypatch.setattr(large_json, "whole", seen)
    await api.catalogue("c", {"a": [1.0]})
    await api.bandit("b", "c")
    ids = [f"x{n:0100d}" for n in range(1_000)]
    await api.ok("POST", "/v1/bandits/b/choose", {"exclude": ids})
    assert threads == {(True, "large-bodies")}
    assert len(json.dumps({"ids": ids})) > LARGE
    body = {"query": [1.0], "vectors": [[1.5]] * 500_000}
    await api.ok("POST", "/v1/mips", body)
    assert threads == {(True, "large-bodies"), (False, "very-large-bodies")}
