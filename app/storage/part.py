"""The base of all parts of ``Store``: one client, and the number of partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.platform.errors import Invalid
from app.storage.memory import StoreMemory
from app.storage.redis_client import RedisClient
from app.storage.types import LogEntry
from app.storage.types.decisions import LearnerId


class RedisPart:
    """Base of every part. A part is one concern and calls no other part.

    Each call of a part is one round trip, unless its docstring says otherwise.
    """

    def __init__(self, redis: RedisClient, partitions: int, memory: StoreMemory) -> None:
        self._redis = redis
        self._memory = memory
        self.partitions = partitions

    def _partition(self, learner: LearnerId) -> int:
        return learner.partition(self.partitions)


def check_positive(name: str, value: int) -> None:
    """Raise Invalid for numbers below 1, which Redis would refuse half way in a script, with earlier
    writes kept.
    """
    if value < 1:
        raise Invalid(f"{name} must be at least 1", path=(name,))


def log_entry(entry_id: bytes, fields: Mapping[bytes, bytes]) -> LogEntry:
    """Decode an entry. An entry written by somebody else lacks our fields: it is read, and cannot be
    folded.
    """
    bandit, learner, came = fields.get(b"b", b""), fields.get(b"l", b""), fields.get(b"c")
    return LogEntry(
        entry_id.decode(),
        LearnerId(bandit.decode("utf-8", "replace"), learner.decode("utf-8", "replace")),
        fields.get(b"p", b""),
        came is None,
        _came(came) if came else (),
        fields.get(b"o", b"").decode("utf-8", "replace"),
    )


def _came(text: bytes) -> tuple[tuple[int, float], ...]:
    """The places and values of signals, as append_rewards.lua keeps them: "A1B0.5"."""
    pairs = re.findall(rb"([A-Z])([^A-Z]*)", text)
    return tuple((letter[0] - ord("A"), _number(value)) for letter, value in pairs)


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
