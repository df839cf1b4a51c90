"""Which arms quotas blocked for a logged choice, as the row of its decision stores it.

Quotas are in blocks of ``BLOCK``. What a block stands for is stored once a day, and is kept as long as rows
that name it. A row names the blocks, and which quotas of each had nothing left: some 30 characters for a
block, at most ``MOST_BLOCKS`` of them. So nothing else is stored for a choice, or for a time slice of an even
pace.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from app.platform.documents import Answer

BLOCK = 64
MOST_BLOCKS = 16
NAME_BYTES = 6
DAY_MS = 86_400_000
NOT_KEPT = "?"  # of arms that were left out one after the other, or too many: it is not known which


class Counted(NamedTuple):
    """What one quota is for: a filter, or else an arm."""

    filter: Mapping[str, Any] | None
    arm: str | None


class Barred(Answer, frozen=True):
    """The arms that one of ``filters`` lets in, and these ``arms``."""

    filters: list[Mapping[str, Any]]
    arms: list[str]


def today() -> int:
    return time.time_ns() // 1_000_000 // DAY_MS


def packed(block: Sequence[Counted], day: int) -> tuple[str, bytes]:
    """The name of a block for a day, and the quotas that it names."""
    data = msgspec.msgpack.encode(block)
    return blake2b(data + str(day).encode(), digest_size=NAME_BYTES).hexdigest(), data


def block_name(bandit_uid: str, name: str) -> str:
    """Its name in the store."""
    return f"left-out:{bandit_uid}:{name}"


def text_of(masks: Iterable[tuple[str, int]]) -> str:
    """Names of blocks, and which of their quotas were out, as bits."""
    return " ".join(f"{name}.{mask:x}" for name, mask in masks)


def joined(texts: Iterable[str]) -> str:
    """What several of a choice left out together: unknown if one is, or if they name too many blocks."""
    parts = [part for text in texts for part in text.split(" ") if part]
    return NOT_KEPT if NOT_KEPT in parts or len(parts) > MOST_BLOCKS else " ".join(parts)


def names_in(text: str) -> list[str]:
    """The blocks that a text names."""
    return [] if text in {"", NOT_KEPT} else [part.partition(".")[0] for part in text.split(" ")]


def barred_of(text: str, blocks: Mapping[str, bytes | None]) -> Barred | None:
    """The blocked arms that a text of a row names; None if that is not known, or not any more."""
    if text == NOT_KEPT:
        return None
    out = list[Counted]()
    for part in text.split(" ") if text else ():
        name, _, mask = part.partition(".")
        data = blocks.get(name)
        if data is None:
            return None
        counted = msgspec.msgpack.decode(data, type=list[Counted])
        out += [item for number, item in enumerate(counted) if int(mask, 16) >> number & 1]
    filters = [item.filter for item in out if item.filter is not None]
    return Barred(filters, [item.arm for item in out if item.arm is not None])
