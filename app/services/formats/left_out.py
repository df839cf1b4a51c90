"""Which arms a logged choice could not have, because of quotas: stored once, and named by its decisions.

A name is that of what it stands for, and of a day: what is stored on a day lives as long as the log of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

NAME_BYTES = 12
DAY_MS = 86_400_000
NOT_KEPT = "?"  # of arms that were left out one after the other: which ones is not known any more
MOST_FILTERS = 90  # in one set: a filter has at most 100 conditions


class LeftOut(msgspec.Struct, frozen=True, array_like=True):
    """Arms that one of ``filters`` lets in, and these ``arms``."""

    filters: list[dict[str, Any]] = []
    arms: list[str] = []

    def without(self, asked: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The filter of a request, of the arms that were left."""
        if not self.filters:
            return None if asked is None else dict(asked)
        return {"$and": [*([dict(asked)] if asked else []), {"$not": {"$or": self.filters}}]}


def packed(left_out: LeftOut) -> tuple[str, bytes]:
    """The name for today, and what it stands for."""
    data = msgspec.msgpack.encode(left_out)
    day = time.time_ns() // 1_000_000 // DAY_MS
    return blake2b(data + str(day).encode(), digest_size=NAME_BYTES).hexdigest(), data


def left_out_name(bandit_uid: str, name: str) -> str:
    """Its name in the store."""
    return f"left-out:{bandit_uid}:{name}"


def left_out_of(sets: Mapping[str, bytes | None], name: str) -> LeftOut | None:
    """What a name stands for; None if that is not known any more, or too much."""
    if not name:
        return LeftOut()
    data = sets.get(name)
    found = None if data is None else msgspec.msgpack.decode(data, type=LeftOut)
    return found if found is not None and len(found.filters) <= MOST_FILTERS else None


def names_of(names: Sequence[str]) -> set[str]:
    """Those that stand for something."""
    return set(names) - {"", NOT_KEPT}
