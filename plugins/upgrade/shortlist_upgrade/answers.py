"""Answers that are kept for events: from the two formats of 2.0 to the one of version 3."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

_PLAIN, _COMPRESSED = b"\x01", b"\x02"  # the first byte
_UPPER, _LOWER = 2, 6  # bytes of a number
_NUMBER_BYTES, _TAG_BYTES, _ARMS = 4, 16, 5  # of a token, before and behind its fields; place of its arms
_LATER: Sequence[Any] = (
    None,
    [],
    None,
    None,
    None,
    None,
    None,
)  # what the fields after the first seven are where absent


class Record(msgspec.Struct, array_like=True):
    """Behind the first byte. ``numbers``: scores, then propensities. ``asked``: 0.1 had none."""

    token: bytes
    numbers: bytes
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    stale_s: float | None = None
    eligible: int | None = None
    pinned: list[int] = []
    group: str | None = None
    asked: bytes = b""
    prior_version: int | None = None
    effects_version: int | None = None


def new_answer(data: bytes) -> bytes | None:
    """The answer as version 3 keeps it; None of one of 0.1, which does not say what was asked."""
    if data[:1] not in {_PLAIN, _COMPRESSED}:
        return None
    old = msgspec.msgpack.decode(data[1:], type=Record)
    if not old.asked:
        return None
    token, numbers = old.token, old.numbers
    if data[:1] == _COMPRESSED:
        token, numbers = _decompressed(token, numbers)
    values = struct.unpack(f"<{len(numbers) // 8}d", numbers)
    arms = len(msgspec.msgpack.decode(token[_NUMBER_BYTES:-_TAG_BYTES])[_ARMS])
    later: list[Any] = [values[arms:] or None, old.pinned, old.stale_s, old.eligible, old.group]
    later += [old.prior_version, old.effects_version]
    while later and later[-1] == _LATER[len(later) - 1]:
        later.pop()
    first = old.policy, old.learner_version, old.catalogue_version, old.exact
    return msgspec.msgpack.encode([zlib.compress(token, 1), old.asked, values[:arms], *first, *later])


def _decompressed(token: bytes, lower: bytes) -> tuple[bytes, bytes]:
    """The token and the numbers of many arms: their bytes stand place by place, the upper two apart."""
    count, texts = len(lower) // _LOWER, zlib.decompress(token)
    places = lower + texts[len(texts) - _UPPER * count :]
    return texts[: len(texts) - _UPPER * count], b"".join(places[number::count] for number in range(count))
