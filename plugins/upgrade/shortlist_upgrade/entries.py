"""Entries of the reward log, dead letters and waiting decisions: from the forms of 2.x to those of version 3.

What became of which field says each ``Struct`` of 2.x here; the new ones are arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shortlist_upgrade import states

MOVED = b"_moved"  # stands for all learners of a bandit
REWARD, STATE, FORGET, MOVE = 1, 2, 3, 4
_FIRST, _REPLACES = b"1", b"r"

Fields = dict[bytes, bytes]


class RewardTerms(msgspec.Struct, array_like=True):
    """``pooled`` and ``shifted`` are gone."""

    default: float = 0.0
    decided_ms: int = 0
    half_life_s: float = 0.0
    pooled: bool = False
    shifted: bool = False


class SignalTerms(msgspec.Struct, array_like=True):
    """``defaults``: float64."""

    place: int | None
    defaults: bytes = b""
    sums: bool = False


class EffectTerms(msgspec.Struct, array_like=True):
    """``served``, ``expected``: float32."""

    served: bytes
    expected: bytes = b""
    arm: str = ""
    revision: int = 0
    examined: float = 1.0


class RewardPayload(msgspec.Struct, array_like=True):
    """Its kind follows from what is empty. ``corrects`` and ``taught`` are gone."""

    features: bytes
    value: float = 0.0
    terms: RewardTerms | None = None
    state: bytes = b""
    signal: SignalTerms | None = None
    space: int = 0
    corrects: bool = False
    effect: EffectTerms | None = None
    taught: Any = None


class RewardSource(msgspec.Struct, array_like=True):
    """The field "d" of an entry; an old entry has none."""

    kind: str = "other"
    id: str = ""
    arm: str = ""
    revision: int = 0
    decided_ms: int | None = None
    logged: bool = False
    context: bytes | None = None
    examined: float | None = None


class LoggedDecision(msgspec.Struct, array_like=True):
    """A decision that waits for rewards. ``sources``: none of version 0.1.0."""

    bandit_uid: str
    learner: str
    id: str
    issued_ms: int
    expires_ms: int
    arms: list[str]
    payloads: list[bytes]
    known_entry: int | None = None
    places: list[int] | None = None
    sources: list[bytes] | None = None


_payload = msgspec.msgpack.Decoder(RewardPayload).decode
_source = msgspec.msgpack.Decoder(RewardSource).decode
_encode = msgspec.msgpack.Encoder().encode


def new_entry(fields: Mapping[bytes, bytes]) -> Fields:
    """The fields of an entry of the log, or of a dead letter. One that cannot be read stays a dead letter."""
    fields_kept = {name: value for name, value in fields.items() if name in {b"b", b"l", b"p", b"o", b"r"}}
    try:
        payload = _payload(fields[b"p"])
    except msgspec.DecodeError:
        return fields_kept
    if payload.features:
        kind, came = fields[b"f"][:1], fields[b"f"][1:]
        fields_kept[b"p"] = _encode(_reward(payload, fields.get(b"d"), is_sum=kind == b"0" and not came))
        if kind == _REPLACES or came:
            fields_kept[b"c"] = came
        elif kind != _FIRST:
            fields_kept[b"c"] = b"" if payload.signal is not None else b"A" + fields.get(b"s", b"0")
    elif payload.corrects or fields[b"l"] == MOVED:
        # A correction is of a move that the log had before it: said again, it changes nothing, and the log
        # keeps its numbers.
        fields_kept[b"l"], fields_kept[b"p"] = MOVED, _encode([MOVE, payload.space])
    else:
        fields_kept[b"p"] = _encode([STATE, states.new_state(payload.state)] if payload.state else [FORGET])
    return fields_kept


def new_decision(data: bytes) -> bytes:
    """A waiting decision, in the form of version 3."""
    old = msgspec.msgpack.decode(data, type=LoggedDecision)
    sources: Sequence[bytes | None] = old.sources or [None] * len(old.payloads)
    defaults = [
        _reward(_payload(payload), source, is_sum=False)
        for payload, source in zip(old.payloads, sources, strict=True)
    ]
    return _encode([old.expires_ms, old.known_entry or 0, defaults, old.places])


def new_dedupe_key(field: bytes, value: bytes) -> bytes:
    """The value of a field of ``seen-until``."""
    if not field.startswith(b"seen-first:") or value[:1].isalpha():
        return value
    return b"A" + value


def _reward(payload: RewardPayload, data: bytes | None, *, is_sum: bool) -> list[Any]:
    """The entry of a reward. ``is_sum``: a reward without a signal, the later one of a sum."""
    terms, signal, effect = payload.terms or RewardTerms(), payload.signal, payload.effect
    source = RewardSource() if data is None else _source(data)
    arm, revision = source.arm, source.revision
    if data is None and effect is not None and effect.arm:
        arm, revision = effect.arm, effect.revision
    examined = source.examined
    if examined is None and effect is not None and effect.examined != 1.0:
        examined = effect.examined
    defaults = [terms.default] if terms.default else []
    if signal is not None:
        defaults = _numbers(signal.defaults, "d")
    return [
        REWARD,
        *(payload.features, payload.value, source.kind, source.id, arm, revision),
        terms.decided_ms if source.decided_ms is None else source.decided_ms,
        *(source.logged, payload.space, source.context, examined),
        [] if effect is None else _numbers(effect.served, "f"),
        _numbers(effect.expected, "f") if effect is not None and effect.arm else [],
        terms.half_life_s,
        0 if signal is None else signal.place,
        is_sum if signal is None else signal.sums,
        defaults,
    ]


def _numbers(data: bytes, kind: str) -> list[float]:
    return list(struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data))
