"""A store as text: every key with its type, its time to live and its plain value.

Plain values, since what the server's own DUMP gives is read by servers of its own version alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "store_of_2_0"
COMMANDS = {"string": "SET", "set": "SADD", "list": "RPUSH", "hash": "HSET"}


def kept_lines() -> list[str]:
    """The store that ``make_store_of_2_0.py`` made."""
    return (FOLDER / "content.jsonl").read_text("utf-8").splitlines()


def kept_answers() -> Any:
    return json.loads((FOLDER / "answers.json").read_text("utf-8"))


def load(store: Any, lines: Iterable[str]) -> None:
    """Write what was kept; what is left of a time to live counts from now."""
    for line in map(json.loads, lines):
        key, kind = to_bytes(line["key"]), line["type"]
        words = list(_bytes_in(line["value"]))
        if kind == "stream":
            for number, fields in line["value"]:
                store.execute_command("XADD", key, to_bytes(number), *map(to_bytes, fields))
        elif kind == "zset":
            for member, score in line["value"]:
                store.execute_command("ZADD", key, repr(score), to_bytes(member))
        else:
            store.execute_command(COMMANDS[kind], key, *words)
        if line["ttl_ms"] >= 0:
            store.pexpire(key, line["ttl_ms"])


def content(store: Any) -> dict[bytes, tuple[str, bool, Any]]:
    """Each key: its type, whether it expires, and its value."""
    return {key: _content_of(store, key) for key in store.scan_iter(count=1_000)}


def _content_of(store: Any, key: bytes) -> tuple[str, bool, Any]:
    kind = store.type(key).decode()
    match kind:
        case "string":
            value = store.get(key)
        case "set":
            value = store.smembers(key)
        case "list":
            value = store.lrange(key, 0, -1)
        case "hash":
            value = store.hgetall(key)
        case "zset":
            value = store.zrange(key, 0, -1, withscores=True)
        case _:
            value = store.xrange(key)
    return kind, store.pttl(key) >= 0, value


def to_bytes(value: Any) -> bytes:
    return value.encode("ascii") if isinstance(value, str) else base64.b64decode(value["base64"])


def _bytes_in(value: Any) -> Iterator[bytes]:
    if isinstance(value, list):
        for item in value:
            yield from _bytes_in(item)
    elif not isinstance(value, int | float):
        yield to_bytes(value)
