"""Quotas: what was shown is counted, in place of what processes had a share of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

FIRST_CHANGE = "1-1"  # the same whenever it is written: a run that was killed is repeated
_UID_LENGTH = 16
_TERMS = (b"uid", b"most", b"per", b"from", b"to")


def rule_of(record: bytes) -> dict[str, Any]:
    """The rule of a stored quota."""
    rule: dict[str, Any] = msgspec.msgpack.decode(record[_UID_LENGTH:])
    return rule


def is_counted(rule: Mapping[str, Any]) -> bool:
    """Version 3 counts one arm, or the arms with one value of one field."""
    if rule.get("arm") is not None:
        return True
    ((name, asked), *others) = (rule.get("filter") or {"$and": []}).items()
    if others or name.startswith("$"):
        return False
    if not isinstance(asked, dict):
        return True
    operators = list(asked.items())
    if [operator for operator, _ in operators] == ["$in"]:
        return len(operators[0][1]) == 1
    return [operator for operator, _ in operators] == ["$eq"]


def new_quotas(
    stem: bytes, records: Mapping[bytes, bytes], counts: Mapping[bytes, Mapping[bytes, bytes]]
) -> Iterator[Sequence[Any]]:
    """The commands that write the quotas of a bandit under ``stem``. ``counts``: what is stored of each."""
    for quota, fields in counts.items():
        rule = rule_of(records[quota])
        new = {name: fields[name] for name in _TERMS if name in fields}
        new |= {b"pace": rule.get("pace", "none"), b"counts": rule.get("counts", "shown")}
        if b"window" in fields:
            # The granted amount, not the known spending: a killed process has told nothing.
            new |= {
                b"window": fields[b"window"],
                b"shown": fields[b"granted"],
                b"rewarded": fields[b"rewarded"],
            }
        yield "DEL", stem + b"quota:" + quota
        yield "HSET", stem + b"quota:" + quota, *(part for pair in new.items() for part in pair)
    yield "DEL", stem + b"changes"
    for quota, record in list(records.items())[:1]:
        yield "XADD", stem + b"changes", FIRST_CHANGE, "q", quota, "u", "0", "w", "0", "r", record, "b", ""
