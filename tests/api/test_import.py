"""The import of arms as lines: whatever the chunks, the last line, and the first bad one."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_client import Api, Json, running
from app.api.request_limits import MAX_LINE_BYTES

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

CANARY = "c4nary"
PATH = "/v1/catalogues/c/import"
PROGRESS = {"accept": "application/x-ndjson"}


def line(name: str, *features: float, **rest: Any) -> bytes:
    return json.dumps({"id": name, "features": list(features), **rest}).encode()


async def pieces(body: bytes, cuts: Sequence[int]) -> AsyncIterator[bytes]:
    places = sorted({0, *(cut % (len(body) + 1) for cut in cuts), len(body)})
    for start, stop in itertools.pairwise(places):
        yield body[start:stop]
        await asyncio.sleep(0)


async def arms_of(api: Api, name: str = "c") -> dict[str, list[float]]:
    return {
        arm["id"]: arm["features"] for arm in await api.listed(f"/v1/catalogues/{name}/arms", limit=1_000)
    }


@pytest.fixture
async def empty(api: Api) -> Api:
    await api.catalogue("c", {}, dim=2)
    return api


@pytest.mark.parametrize(
    ("size", "end", "closed", "headers"),
    [
        (1, b"\n", True, {}),
        (1, b"\r\n", False, PROGRESS),
        (7, b"\n\n \t\r\n\n", True, PROGRESS),
        (7, b"\n", False, {}),
        (10**6, b"\r\n", True, {}),
        (10**6, b"\n\n \t\r\n\n", False, {}),
        (10**6, b"\n", False, PROGRESS),
    ],
    ids=str,
)
async def test_lines_in_any_chunks(empty: Api, size: int, end: bytes, closed: bool, headers: dict[str, str]):
    rows = {f"arm-{i}": [i, 0.1 * i] for i in range(20)}
    body = end.join(line(name, *row, tags=["é\U0001f600"], metadata={"n": 1}) for name, row in rows.items())
    body += end if closed else b""
    answer = await empty.call("POST", PATH, content=pieces(body, range(0, len(body), size)), headers=headers)
    assert answer.status_code == 200, answer.text
    last = json.loads(answer.text.splitlines()[-1])
    assert (last["added"], last["updated"], last["version"]) == (20, 0, 1)
    assert await arms_of(empty) == rows
    arm = await empty.ok("GET", "/v1/catalogues/c/arms/arm-7")
    assert (arm["tags"], arm["metadata"]) == (["é\U0001f600"], {"n": 1})


BAD_LINES: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"c4nary", "invalid"),
    "an array": (b"[1, 2]", "invalid"),
    "an unknown field": (line("x", 1, 2, extra=CANARY), "invalid"),
    "a bad id": (line(f"{CANARY}!", 1, 2), "invalid"),
    "a string": (b'{"id": "x", "features": ["1", 2]}', "invalid"),
    "NaN": (b'{"id": "x", "features": [NaN, 2]}', "invalid"),
    "infinity": (b'{"id": "x", "features": [1e999, 2]}', "invalid"),
    "too short": (line("x", 1), "dimension_mismatch"),
    "too long": (line("x", *range(300)), "dimension_mismatch"),
    "a lone surrogate": (b'{"id": "x", "features": [1, 2], "tags": ["\\ud800"]}', "invalid"),
    "a lone surrogate within": (b'{"id": "x", "features": [1, 2], "metadata": {"a": "\\ud800"}}', "invalid"),
    "broken UTF-8": (b'{"id": "x", "features": [1, 2], "tags": ["\xff"]}', "invalid"),
    "NUL": (b"\x00", "invalid"),
    "too deep": (b'{"id": "x", "metadata": ' + b"[" * 100_000, "invalid"),
    "too many tags": (line("x", 1, 2, tags=["t"] * 65), "invalid"),
    "two documents": (line("x", 1, 2) + b" " + line("y", 1, 2), "invalid"),
    "a lone carriage return between": (line("x", 1, 2) + b"\r" + line("y", 1, 2), "invalid"),
    "a digit too many": (b'{"id": "x", "features": [' + b"9" * 4_000 + b", 2]}", "invalid"),
}


PLACES = [(name, 3) for name in BAD_LINES] + [("NaN", good) for good in (0, 999, 1_000, 1_001)]


async def test_what_came_before_a_bad_line_is_applied_and_nothing_after_it(api: Api):
    for number, (name, good) in enumerate(PLACES):
        catalogue = f"c{number}"
        await api.catalogue(catalogue, {}, dim=2)
        bad, code = BAD_LINES[name]
        rows = {f"a{i}": [float(i), 1.0] for i in range(good)}
        body = b"".join(line(arm, *row) + b"\n" for arm, row in rows.items())
        body += bad + b"\n" + line("after", 1, 2) + b"\n"
        path = f"/v1/catalogues/{catalogue}/import"
        document = await api.refused("POST", path, content=body, code=code, canary=CANARY)
        assert f"line {good + 1}" in document["detail"], name
        assert document["errors"][0]["loc"][:2] == ["body", good + 1], name
        assert await arms_of(api, catalogue) == rows, name


async def test_progress_ends_with_the_result_or_the_problem(empty: Api):
    """With progress the status is sent before the lines are read: the last line says how it went."""
    body = b"\n".join(line(f"a{i}", i, 1) for i in range(2_500))
    answer = await empty.call("POST", PATH, content=body, headers=PROGRESS)
    assert answer.headers["content-type"] == "application/x-ndjson"
    steps = [json.loads(step) for step in answer.text.splitlines()]
    assert [step["lines"] for step in steps] == [1_000, 2_000, 2_500]
    assert [step["added"] for step in steps] == [1_000, 2_000, 2_500]
    assert steps[-1]["version"] == 3
    answer = await empty.call("POST", PATH, content=body + b"\nc4nary", headers=PROGRESS)
    *before, problem = [json.loads(step) for step in answer.text.splitlines()]
    assert [step["updated"] for step in before] == [1_000, 2_000]
    assert (problem["status"], problem["code"]) == (422, "invalid")
    assert "line 2501" in problem["detail"]
    assert set(problem) == {"type", "title", "status", "detail", "code", "errors"}
    assert CANARY not in answer.text


async def test_an_id_given_twice_ends_as_its_last_line(empty: Api):
    body = b"\n".join([line("a", 1, 1), line("b", 2, 2), line("a", 3, 3), line("a", 4, 4), line("c", 5, 5)])
    done = await empty.ok("POST", PATH, content=body)
    assert (done["added"], done["updated"]) == (3, 2)
    assert await arms_of(empty) == {"a": [4, 4], "b": [2, 2], "c": [5, 5]}


async def test_arms_that_the_basis_makes_too_large_are_refused_with_what_was_applied(api: Api):
    reduce = {"to": 1, "basis": [[1.0, 1.0]]}
    features = {"embedding": {"dim": 2, "reduce": reduce}}
    await api.ok("PUT", "/v1/catalogues/c", {"features": features}, 201)
    lines = [line("a", 1.0, 2.0), line("a", 2.0, 3.0), line("b", 1e6, 1e6)]
    document = await api.refused("POST", PATH, content=b"\n".join(lines))
    assert document["detail"].endswith("The first 1 lines were applied, nothing after them was")
    assert await arms_of(api) == {"a": [3.0]}


async def test_a_line_has_a_largest_size(empty: Api):
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield line("a", 1, 2) + b"\n"
        yield b'{"id": "'
        while True:
            sent += 1 << 16
            yield b"x" * (1 << 16)

    document = await empty.refused("POST", PATH, content=endless(), status=413, code="too_large")
    assert document["errors"][0]["loc"] == ["body", 2]
    assert sent <= 2 * MAX_LINE_BYTES
    await empty.refused("POST", PATH, content=b" " * (MAX_LINE_BYTES + 1), status=413, code="too_large")
    long = line("b", 1, 2)[:-1] + b" " * MAX_LINE_BYTES + b"}\n"
    await empty.refused("POST", PATH, content=long, status=413, code="too_large")


async def test_an_import_is_not_bound_by_the_body_limit_and_answers_others_meanwhile(
    store_url: str, tmp_path: Path
):
    """6 MiB, with a limit of 1; choices are made in between."""
    async with running(store_url, tmp_path, max_body_mb=1) as api:
        await api.catalogue("c", {"first": [0.0] * 64})
        await api.bandit("b", "c")
        row = line("NAME", *([0.123456789012345] * 64))
        made = 0
        choices = 0
        done = asyncio.Event()

        async def rows() -> AsyncIterator[bytes]:
            nonlocal made
            while made * len(row) < 6 << 20:
                chunk = b"\n".join(row.replace(b"NAME", f"a{made + i}".encode()) for i in range(500))
                made += 500
                yield chunk + b"\n"
                await asyncio.sleep(0)

        async def others() -> None:
            nonlocal choices
            while not done.is_set():
                await api.choose("b")
                choices += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        answer = await api.ok("POST", PATH, content=rows())
        done.set()
        await other
        assert (answer["added"], answer["updated"]) == (made, 0)
        assert (await api.ok("GET", "/v1/catalogues/c"))["size"] == made + 1
        assert choices > 5


async def test_a_client_that_leaves_is_no_failure(empty: Api, caplog: pytest.LogCaptureFixture):
    """Whole lines may be applied, half a line is not, and nobody is woken at night."""
    assert await empty.left("POST", PATH, line("a", 1, 2) + b"\n", line("b", 3, 4)) == []
    assert (await arms_of(empty)).keys() <= {"a"}
    assert await empty.left("PUT", "/v1/catalogues/c/arms", b'{"arms": [') == []
    assert [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}] == []
    metrics = (await empty.call("GET", "/metrics")).text
    assert 'status="500"' not in metrics
    assert 'status="499"' in metrics


@pytest.mark.parametrize("headers", [{}, PROGRESS], ids=["plain", "progress"])
async def test_a_catalogue_deleted_during_its_import(empty: Api, headers: dict[str, str]):
    async def rows() -> AsyncIterator[bytes]:
        yield line("a", 1, 2) + b"\n"
        await empty.ok("DELETE", "/v1/catalogues/c", status=204)
        yield line("b", 1, 2) + b"\n"

    answer = await empty.call("POST", PATH, content=rows(), headers=headers)
    problem = json.loads(answer.text.splitlines()[-1])
    assert (problem["status"], problem["code"]) == (404, "not_found")
    await empty.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    assert await arms_of(empty) == {}


ROWS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.lists(st.integers(-9, 9), min_size=2, max_size=2), st.booleans()),
    max_size=30,
)


@settings(max_examples=40)
@given(rows=ROWS, cuts=st.lists(st.integers(0, 10_000), max_size=12), bad=st.none() | st.integers(0, 30))
async def test_an_import_is_its_lines_one_after_the_other(
    empty: Api, rows: list[Any], cuts: list[int], bad: int | None
):
    """Against a dictionary. An id that comes twice begins a batch, so that lines fall into several."""
    await empty.call("POST", "/v1/catalogues/c/arms/delete", {"ids": list("abcdef")})
    texts = [line(name, *row) + (b"\r\n" if crlf else b"\n\n") for name, row, crlf in rows]
    model: Json = {}
    applied = rows if bad is None else rows[:bad]
    for name, row, _ in applied:
        model[name] = row
    if bad is not None:
        texts.insert(min(bad, len(texts)), b"{}\n")
    answer = await empty.call("POST", PATH, content=pieces(b"".join(texts), cuts))
    assert answer.status_code == (200 if bad is None else 422)
    if bad is None:
        assert answer.json()["added"] == len(model)
        assert answer.json()["updated"] == len(rows) - len(model)
    assert await arms_of(empty) == model
