"""Quotas of bandits: how often arms may be shown in a window of time, and which quotas are closed.

Notation
    window      [start, end) in ms by the clock of the store
    closed      of a quota, until a time: no exposure counted by the quota is allowed before
    change      of a quota, or of when it is closed. Its number is the id of an entry of a stream; "": none

A window never comes back: when the clock of the store goes back, the latest one goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

QuotaEvent = Literal["show", "activate", "refund", "reward", "read"]


class QuotaTerms(NamedTuple):
    """The terms of a quota for the store. ``per_ms``, ``to_ms`` 0: none. ``uid``: of this incarnation."""

    uid: str
    most: int
    per_ms: int
    from_ms: int
    to_ms: int
    pace: str
    counts: str


class QuotaCount(NamedTuple):
    """A quota with a number of times to count, below 0 to refund. ``start``: of a refund's window, else
    ''.
    """

    quota: str
    uid: str
    times: int
    start: int | str = ""


class QuotaWindow(NamedTuple):
    """The counts of a window. ``start_ms`` -1: the quota does not hold, or is missing."""

    start_ms: int
    ends_ms: int
    shown: int
    rewarded: int


class QuotaChange(NamedTuple):
    """``until_ms``, ``was_ms``: closed until then, now and before. ``record``, ``before``: of the quota
    itself, b"" without one; None: only the closing time has changed.
    """

    number: str
    quota: str
    until_ms: int
    was_ms: int
    record: bytes | None = None
    before: bytes | None = None


class QuotaChanges(NamedTuple):
    """The time in ms and all changes since a change; None: the change is unknown by now."""

    now_ms: int
    changes: Sequence[QuotaChange] | None


class QuotasNow(NamedTuple):
    """All quotas at a time in ms. ``number``: of the last change. ``closed``: until when each was, or is."""

    now_ms: int
    number: str
    records: Mapping[str, bytes]
    closed: Mapping[str, int]


class QuotaAnswer(NamedTuple):
    """``counted``: of each event. ``windows``: of each quota, by its id and uid, as they are then."""

    counted: Sequence[bool]
    changes: QuotaChanges
    windows: Mapping[tuple[str, str], QuotaWindow]
