"""A store as text: the commands that write it, a JSON list of words a line.

A word is printable ASCII, or "=" and the base64 of its bytes. Plain values, since what the server's own DUMP
gives is read by servers of its own version alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "store_of_2_0"


def kept_lines() -> list[str]:
    """The store that ``make_store_of_2_0.py`` made."""
    return (FOLDER / "commands.jsonl").read_text("utf-8").splitlines()


def kept_answers() -> Any:
    return json.loads((FOLDER / "answers.json").read_text("utf-8"))


def load(store: Any, lines: Iterable[str]) -> None:
    """Write what was kept; what is left of a time to live counts from now."""
    for line in lines:
        store.execute_command(*map(to_bytes, json.loads(line)))


def to_bytes(word: str) -> bytes:
    return base64.b64decode(word[1:]) if word.startswith("=") else word.encode("ascii")


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
