"""Requests that nobody would make, drawn from a seed: valid ones with something else in one place or several.

Values are typical, extreme, of another type, words of the documentation, and names, tokens and ids that
answers have given, so that a good part of the requests reaches the work behind the checks.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from endpoints import ALL, IMPORT, Endpoint

NUMBERS = (
    0, 1, -1, 2, 3, 5, 10, 100, 0.5, -0.5, 0.1, 0.05, 0.999999, 1e-9, 1e-300, 5e-324, -0.0, 1e6, 1e9, 1e300,
    -1e300, 1.7e308, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 1e-12, 1.0, 3.0, 20_000,
)  # fmt: skip
NAMES = (
    "c", "b", "u", "v", "s", "s-done", "a0", "a1", "a4", "p0", "p1", "ann", "bob", "_global", "new", "other",
    "explorer", "unused", "zz", "a" * 128,
)  # fmt: skip
STRANGE = (
    "", " ", "é", "\u0000", "\u2028", "\ud800", "a/b", "..", "%00", "NaN", "Infinity", "-Infinity", "1e5",
    "٣", "x" * 5_000, "_pool", "*", "{p:0}", "'", '"', "\\", "\r\n",
)  # fmt: skip
QUERIES = (
    "wait=applied", "include=precision", "limit=1", "limit=0", "limit=-1", "limit=1e3",
    "limit=99999999999999999999", "cursor=AAAA", "cursor=", "cursor=%ff", "n=2", "dim=3", "dim=0", "k=2",
    "zz=1", "query=1,2,3",
)  # fmt: skip
HEADERS = (
    ("Content-Type", "application/json; charset=utf-8"), ("Content-Type", "text/plain"), ("Content-Type", ""),
    ("Content-Type", "application/octet-stream"), ("X-Request-ID", "x" * 300), ("X-Request-ID", "ok-1"),
    ("Accept", "image/png"), ("Authorization", "Bearer nonsense"), ("Expect", "nothing"),
    ("Content-Encoding", "gzip"),
)  # fmt: skip
JSON = "application/json"
PLACES = {"TOKEN": "decision", "QUERY": "query", "PULL": "pull"}
REMEMBERED = 200


@dataclass(frozen=True)
class Request:
    """Ready to be sent."""

    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]


class Fuzz:
    """``request`` draws the next one; ``learn`` takes an answer, whose words are used from then on."""

    def __init__(self, seed: int, words: list[str]) -> None:
        self._random = random.Random(seed)
        self._words = words
        self._learned: list[str] = []
        self._given: dict[str, list[str]] = {"decision": [], "query": [], "pull": []}

    def request(self) -> Request:
        draw = self._random
        endpoint = draw.choice(ALL)
        headers = dict([draw.choice(HEADERS)]) if draw.random() < 0.05 else {}
        body = self._body(endpoint)
        if body is not None:
            headers = {"Content-Type": JSON, **headers}
        method = draw.choice(("GET", "POST", "PUT", "DELETE")) if draw.random() < 0.02 else endpoint.method
        return Request(method, self._path(endpoint), body, headers)

    def learn(self, answer: bytes) -> None:
        try:
            document = json.loads(answer)
        except ValueError:
            return
        found = [(steps, value) for steps, value in _places(document) if isinstance(value, str)]
        self._learned = (self._learned + [value for _, value in found])[-REMEMBERED:]
        for steps, value in found:
            if steps[-1] in self._given:
                self._given[steps[-1]] = [*self._given[steps[-1]], value][-REMEMBERED:]

    def _path(self, endpoint: Endpoint) -> str:
        draw = self._random
        path = endpoint.path
        if draw.random() < 0.3:
            parts = [self._name() if part.startswith("{") else part for part in endpoint.template.split("/")]
            path = "/".join(quote(part, safe="", errors="replace") for part in parts)
        if draw.random() < 0.15:
            path += "?" + "&".join(draw.choices(QUERIES, k=draw.randint(1, 2)))
        return path

    def _body(self, endpoint: Endpoint) -> bytes | None:
        draw = self._random
        if endpoint is IMPORT:
            arms = [{"id": self._name(), "features": [1, 2, 3]} for _ in range(draw.randint(0, 3))]
            return b"\n".join(_encoded(self._mutated(arm)) for arm in arms)
        if endpoint.body is None:
            return None if draw.random() < 0.95 else b"{}"
        body: Any = copy.deepcopy(endpoint.body)
        for _ in range(draw.choice((0, 0, 1, 1, 1, 2, 2, 3, 5))):
            body = self._mutated(self._filled(body))
        data = _encoded(self._filled(body))
        if draw.random() < 0.04:
            data = data[: draw.randint(0, len(data))] + draw.randbytes(draw.randint(0, 3))
        return data

    def _filled(self, body: Any) -> Any:
        """With tokens and ids that were given out, where there are places for them."""
        for steps, value in list(_places(body)):
            given = self._given.get(PLACES.get(value, "")) if isinstance(value, str) else None
            if given:
                body = _with(body, steps, self._random.choice(given))
        return body

    def _mutated(self, body: Any) -> Any:
        draw = self._random
        steps, value = draw.choice(list(_places(body)))
        kind = draw.random()
        if kind < 0.1:
            return _with(body, steps, None, remove=True)
        if kind < 0.2 and isinstance(value, list):
            return _with(body, steps, value * draw.choice((0, 2, 3, 40)))
        if kind < 0.25 and isinstance(value, dict):
            return _with(body, steps, {**value, self._name(): self._value()})
        if kind < 0.75:
            return _with(body, steps, self._alike(value))
        return _with(body, steps, self._value())

    def _alike(self, value: Any) -> Any:
        draw = self._random
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return draw.choice([number for number in NUMBERS if isinstance(number, int)])
        if isinstance(value, float):
            return draw.choice(NUMBERS)
        if isinstance(value, str):
            return draw.choice(self._words) if draw.random() < 0.5 else self._name()
        if isinstance(value, list):
            return [self._alike(item) for item in value]
        return self._value()

    def _value(self) -> Any:
        draw = self._random
        simple = (None, True, False, [], {}, [[]], [{}], [1, 2, 3], [0.5] * 200, {"a": 1}, _deep(60))
        return draw.choice(
            (draw.choice(NUMBERS), draw.choice(simple), self._name(), draw.choice(self._words))
        )

    def _name(self) -> str:
        draw = self._random
        return draw.choice(draw.choice((NAMES, NAMES, self._learned or NAMES, STRANGE)))


def _places(value: Any, steps: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield steps, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in list(items)[:50]:
        yield from _places(inner, (*steps, step))


def _with(body: Any, steps: tuple[Any, ...], value: Any, *, remove: bool = False) -> Any:
    if not steps:
        return value
    body = copy.deepcopy(body)
    inner = body
    for step in steps[:-1]:
        inner = inner[step]
    if remove:
        del inner[steps[-1]]
    else:
        inner[steps[-1]] = value
    return body


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _encoded(body: Any) -> bytes:
    return json.dumps(body).encode()
