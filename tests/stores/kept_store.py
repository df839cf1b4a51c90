"""A store as text: every key with its type, its time to live and its plain value, and answers about it.

Plain values, since what the server's own DUMP gives is read by servers of its own version alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import redis

from waiting import wait_until_sync

Json = Any

VOLATILE = {
    "detail",
    "elapsed_ms",
    "index",
    "warnings",
}  # index: what was measured; detail, warnings: sentences, which versions may change
SKIPPED = {b"shortlist:{registry}:workers"}  # who works at this moment

RELATIVE, ABSOLUTE = 1e-9, 1e-12


def to_text(value: bytes) -> Json:
    """Printable ASCII as it is, everything else in base64."""
    if all(32 <= byte < 127 for byte in value):
        return value.decode("ascii")
    return {"base64": base64.b64encode(value).decode("ascii")}


def to_bytes(value: Json) -> bytes:
    return value.encode("ascii") if isinstance(value, str) else base64.b64decode(value["base64"])


def dump(store: redis.Redis) -> Iterator[str]:
    """One line of JSON for each key, sorted by key."""
    for key in sorted(set(store.scan_iter(count=1_000)) - SKIPPED):
        kind = store.type(key).decode()
        line = {
            "key": to_text(key),
            "type": kind,
            "ttl_ms": store.pttl(key),
            "value": _read(store, key, kind),
        }
        yield json.dumps(line, separators=(",", ":"))


def _read(store: redis.Redis, key: bytes, kind: str) -> Json:
    if kind == "string":
        return to_text(store.get(key))
    if kind == "set":
        return sorted(map(to_text, store.smembers(key)), key=str)
    if kind == "list":
        return [to_text(item) for item in store.lrange(key, 0, -1)]
    if kind == "hash":
        return [[to_text(name), to_text(value)] for name, value in sorted(store.hgetall(key).items())]
    if kind == "zset":
        return [[to_text(member), score] for member, score in store.zrange(key, 0, -1, withscores=True)]
    if kind == "stream":
        entries = store.xrange(key)
        assert entries[-1][0] == store.xinfo_stream(key)["last-generated-id"], "the newest entry is there"
        return [[to_text(number), _words(fields)] for number, fields in entries]
    raise ValueError(f"{key!r} is a {kind}")


def _words(fields: dict[bytes, bytes]) -> list[Json]:
    return [to_text(word) for pair in fields.items() for word in pair]


def load(store: redis.Redis, lines: list[str]) -> None:
    """Write what ``dump`` read; what is left of a time to live counts from now."""
    for line in map(json.loads, lines):
        key, value = to_bytes(line["key"]), line["value"]
        match line["type"]:
            case "string":
                store.set(key, to_bytes(value))
            case "set":
                store.sadd(key, *map(to_bytes, value))
            case "list":
                store.rpush(key, *map(to_bytes, value))
            case "hash":
                store.hset(key, mapping={to_bytes(name): to_bytes(item) for name, item in value})
            case "zset":
                store.zadd(key, {to_bytes(member): score for member, score in value})
            case "stream":
                for number, words in value:
                    plain = list(map(to_bytes, words))
                    store.xadd(key, dict(zip(plain[::2], plain[1::2], strict=True)), id=to_bytes(number))
        if line["ttl_ms"] >= 0:
            store.pexpire(key, line["ttl_ms"])


@dataclass
class Caller:
    """Calls of a service; ``{name}`` in a body stands for the decision that was named so."""

    http: httpx.Client
    names: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Json = None, name: str | None = None) -> Json:
        """Status and answer, without what differs from run to run."""
        if body is None:
            answer = self.http.request(method, path)
        else:
            text = json.dumps(body)
            for known, decision in self.names.items():
                text = text.replace(f"{{{known}}}", decision)
            headers = {"content-type": "application/json"}
            answer = self.http.request(method, path, content=text, headers=headers)
        found = answer.json() if answer.content else None
        if name is not None and answer.is_success:
            self.names[name] = found["decision"]
        kept = isinstance(body, dict) and "event_id" in body  # the same decision, token and all
        return {
            "status": answer.status_code,
            "answer": _stable(found, VOLATILE if kept else VOLATILE | {"decision"}),
        }


def _stable(answer: Json, volatile: set[str]) -> Json:
    if isinstance(answer, dict):
        return {name: _stable(value, volatile) for name, value in answer.items() if name not in volatile}
    if isinstance(answer, list):
        return [_stable(value, volatile) for value in answer]
    return answer


def settle(http: httpx.Client, store: redis.Redis, *, due: bool = True) -> None:
    """Wait until rewards are applied; before that, if ``due``, until nothing is due by the clock any more."""

    def nothing_due() -> bool:
        return not any(store.keys(f"shortlist:{{p:*}}:{name}") for name in ("due", "idle"))

    if due:
        wait_until_sync(nothing_due, what="what is due by the clock is done")
    wait_until_sync(lambda: http.get("/readyz").json().get("backlog") == 0, what="rewards are applied")


def differences(found: Json, expected: Json, place: str = "") -> list[str]:
    """Where two answers differ; numbers with a fraction may differ by rounding. New fields may be added."""
    if isinstance(expected, dict) and isinstance(found, dict):
        items = ((name, value) for name, value in expected.items() if name not in VOLATILE)
        lists = [differences(found.get(name), value, f"{place}.{name}") for name, value in items]
        return [line for lines in lists for line in lines]
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        lists = [differences(one, other, f"{place}[{number}]") for number, (one, other) in pairs]
        return [line for lines in lists for line in lines]
    if isinstance(expected, float) and isinstance(found, float | int) and not isinstance(found, bool):
        same = abs(found - expected) <= ABSOLUTE + RELATIVE * abs(expected)
    else:
        same = type(found) is type(expected) and found == expected
    return [] if same else [f"{place}: {found!r} instead of {expected!r}"]
