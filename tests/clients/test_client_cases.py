"""The shared table of cases: what each call sends, and what it makes of every answer; in both clients."""

import dataclasses
import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from shortlist_client import AsyncClient, Client, Retry, errors

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "clients/cases/cases.json").read_text("utf-8")
)
AT_ONCE = Retry(first_wait_s=0.0)
FAILURES = {"never sent": httpx.ConnectError, "broken": httpx.ReadError, "silence": httpx.ReadTimeout}


class Wire:
    """Answers as a case says, and holds the requests to it."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.left = list(case["exchanges"])
        self._events: set[str] = set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert self.left, f"{request.method} {request.url} was sent"
        exchange = self.left.pop(0)
        expected = exchange["request"]
        assert (request.method, request.url.path) == (expected["method"], expected["path"])
        assert dict(parse_qsl(request.url.query.decode())) == expected.get("query", {})
        assert expected.get("headers", {}).items() <= dict(request.headers).items()
        body = json.loads(request.content) if request.content else None
        self._compare(body, expected.get("body"))
        if failure := exchange.get("failure"):
            raise FAILURES[failure]("it failed")
        answer = exchange["answer"]
        content = json.dumps(answer["body"]) if "body" in answer else answer.get("text", "")
        return httpx.Response(answer["status"], headers=answer.get("headers", {}), text=content)

    def _compare(self, body: Any, expected: Any) -> None:
        if isinstance(expected, dict) and expected.get("event_id") == "$event":
            self._events.add(body["event_id"])
            assert len(self._events) == 1
            assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", body["event_id"])
            body = body | {"event_id": "$event"}
        if isinstance(body, dict) and "rewards" in body:
            body = {**body, "rewards": list(map(_timed, body["rewards"], expected["rewards"]))}
        assert body == expected


def _timed(item: Any, expected: Any) -> Any:
    """A reward without its time, which is now, unless the case says another."""
    if "at" in expected:
        return item
    assert abs(item["at"] - time.time() * 1_000) < 60_000
    return {name: value for name, value in item.items() if name != "at"}


def arguments(case: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    options = {
        name: math.nan if value == {"$number": "NaN"} else value for name, value in case["options"].items()
    }
    return case["arguments"], options


def check(case: Mapping[str, Any], wire: Wire, result: Any, error: errors.ShortlistError | None) -> None:
    """Everything was sent, and came to what the case says."""
    expected = case.get("raises")
    if expected is None:
        assert error is None, error
        assert_has(result, case.get("gives"))
    else:
        assert type(error).__name__ == expected["error"], error
        for name in {"code", "status"} & expected.keys():
            assert getattr(error, name) == expected[name]
        if "errors" in expected:
            assert isinstance(error, errors.ServiceError)
            found = [{"loc": list(each.loc), "message": each.message} for each in error.errors]
            assert found == expected["errors"]
        assert all(words in str(error) for words in expected.get("says", ())), error
        assert "\n" not in str(error)
        assert "sl_secret" not in str(error)
    assert wire.left == []


def assert_has(found: Any, expected: Any) -> None:
    """``found`` has these fields; lists are as long."""
    if isinstance(expected, dict):
        fields = dataclasses.asdict(found) if dataclasses.is_dataclass(found) else found
        for name, value in expected.items():
            assert_has(fields[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_has(one, other)
    else:
        assert found == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_client_for_threads(case: Mapping[str, Any]):
    wire, result, failed = Wire(case), None, None
    given, options = arguments(case)
    http = httpx.Client(transport=httpx.MockTransport(wire))
    client = Client("http://service", **case.get("client", {}), retry=AT_ONCE, http=http)
    try:
        result = getattr(client, case["call"])(*given, **options)
    except errors.ShortlistError as error:
        failed = error
    check(case, wire, result, failed)


@pytest.mark.anyio
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
async def test_the_client_for_asyncio(case: Mapping[str, Any]):
    wire, result, failed = Wire(case), None, None
    given, options = arguments(case)
    http = httpx.AsyncClient(transport=httpx.MockTransport(wire))
    client = AsyncClient("http://service", **case.get("client", {}), retry=AT_ONCE, http=http)
    try:
        result = await getattr(client, case["call"])(*given, **options)
    except errors.ShortlistError as error:
        failed = error
    check(case, wire, result, failed)


def test_the_cases_have_names_of_their_own():
    assert len({case["name"] for case in CASES}) == len(CASES)
