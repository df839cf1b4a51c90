"""The kinds of keys of a store of 2.x, and the form of each in version 3.

A kind is a row of ``KINDS``. A key is copied as it is, left out, or converted part by part. A converter gets
the parts of its type, and returns the new part, or None to leave it out:

    hash     (field, value)    -> (field, value)
    zset     (member)          -> member
    stream   (fields)          -> fields; an entry keeps its number, so none is left out
    string   (value)           -> value
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from shortlist_upgrade import answers, bandits, entries, states
from shortlist_upgrade.bandits import Bandit

OLD, NEW = b"shortlist:", b"shortlist3:"
POOL = b"_pool"  # the learner that summed those of a bandit in a partition
_BYTES_OF_EXPOSURES = b"counted"  # a member that said how many bytes were counted
_GONE_IN_SPACES = (b":made",)

Convert = Callable[..., Any]


class Key(NamedTuple):
    """A key, with its bandit: None for others, and for deleted ones."""

    name: bytes
    bandit: Bandit | None


@dataclass(frozen=True)
class Kind:
    """A kind of keys. ``named``: the reported name of deleted data; "": none."""

    how: Literal["copy", "skip", "hash", "zset", "stream", "string", "quotas"] = "copy"
    convert: Convert = lambda *_: None
    named: str = ""


def _stored_version(field: bytes, value: bytes) -> tuple[bytes, bytes]:
    return field, bandits.new_version(value)


def _move(field: bytes, value: bytes) -> tuple[bytes, bytes]:
    return field, bandits.new_move(value)


def _state(field: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    return None if field == POOL else (field, states.new_state(value))


def _tail(member: bytes) -> bytes | None:
    return None if member.startswith(b"%d.%s:" % (len(POOL), POOL)) else member


def _change(member: bytes) -> bytes | None:
    return None if member.lstrip(b"-")[bandits.UID_LENGTH :] == POOL else member


def _space(field: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    return None if field.endswith(_GONE_IN_SPACES) else (field, value)


def _dedupe_key(field: bytes, value: bytes) -> tuple[bytes, bytes]:
    return field, entries.new_dedupe_key(field, value)


def _waiting(field: bytes, value: bytes) -> tuple[bytes, bytes]:
    return field, entries.new_decision(value)


def _arm(field: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Its revision, when its id came, which is not known, and its features."""
    return field, value[:8] + bytes(8) + value[8:]


def _exposure(member: bytes) -> bytes | None:
    return None if member == _BYTES_OF_EXPOSURES else member


# By what the name has behind the prefix: the first letter of the hash tag, and the word behind it. Others
# are copied.
KINDS: Mapping[bytes, Kind] = {
    b"r:workers": Kind("skip"),
    b"r:bandits": Kind("hash", _stored_version),
    b"r:versions": Kind("hash", _stored_version),
    b"r:moves": Kind("hash", _move),
    b"c:features": Kind("hash", _arm),
    b"q:quotas": Kind("quotas"),
    b"q:quota": Kind("skip"),  # written with the others of the bandit
    b"q:shares": Kind("skip"),
    b"q:changes": Kind("skip"),
    b"p:log": Kind("stream", entries.new_entry),
    b"p:dead": Kind("stream", entries.new_entry),
    b"p:changes": Kind("zset", _change),
    b"p:spaces": Kind("hash", _space),
    b"p:states": Kind("hash", _state),
    b"p:tails": Kind("zset", _tail),
    b"p:effects": Kind("hash", states.new_arm_sums),
    b"p:kept": Kind("skip", named="what learners knew before a move"),
    b"p:turns": Kind("skip", named="slots of explore"),
    b"p:event": Kind("string", answers.new_answer),
    b"p:had": Kind("zset", _exposure),
    b"p:seen-first": Kind("skip"),  # of decisions of 0.1
    b"p:seen-until": Kind("hash", _dedupe_key),
    b"p:decisions": Kind("hash", _waiting),
    # how many bytes were counted
    b"p:ledger": Kind("skip"),
    b"r:campaign-bytes": Kind("skip"),
    b"r:move-bytes": Kind("skip"),
    b"k:size": Kind("skip"),
}
_COPIED = Kind()
_OF_LEARNERS = {b"p:states", b"p:tails", b"p:effects"}
_NOTES = b"p:had"


class Kinds:
    """The kind of each key. ``found``: the bandits of the store by uid."""

    def __init__(self, bandits: Mapping[str, Bandit]) -> None:
        self._bandits = bandits

    def of(self, key: bytes) -> tuple[Key, Kind]:
        tag, _, after_tag = key.removeprefix(OLD).partition(b"}:")
        word, _, after_tag = after_tag.partition(b":")
        name = tag[1:2] + b":" + word
        kind = KINDS.get(name)
        if kind is None:
            return Key(key, None), _COPIED
        bandit = self._bandits.get(after_tag[: bandits.UID_LENGTH].decode("ascii", "replace"))
        if bandit is not None and bandit.drops_learners and name in _OF_LEARNERS:
            kind = Kind("skip", named="learners that were dropped")
        elif bandit is not None and bandit.remembers and name == _NOTES:
            kind = Kind("skip", named="notes of constraints of plug-ins")
        return Key(key, bandit), kind


def new_name(key: bytes) -> bytes:
    return NEW + key.removeprefix(OLD)
