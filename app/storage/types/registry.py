"""Catalogues and bandits, event logs and jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

KeptJob = Literal["kept", "full", "missing"]


@dataclass(frozen=True, slots=True)
class Registry:
    """All catalogues and bandits: name -> record. The version grows with every change.

    ``quotas``: uid of each bandit with present or past quotas -> a number which grows with their changes.
    """

    catalogues: Mapping[str, bytes] = field(default_factory=dict)
    bandits: Mapping[str, bytes] = field(default_factory=dict)
    version: int = 0
    quotas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MoveWrite:
    """A bandit gets another catalogue.

    ``number``   of the move, from 1; ``record``: opaque
    ``left``, ``joined``   the catalogues by name; ``joined_uid``: required uid of ``joined``
    ``needed_until_ms``    until when decisions of before can be rewarded, with features of ``left_uid``
    ``prior``    the next version of its learned prior, with its number, and when it was made; b"": none.
                 Left out where another version has the number
    """

    number: int
    record: bytes
    left: str
    left_uid: str
    needed_until_ms: int
    joined: str
    joined_uid: str
    prior: bytes = b""
    prior_number: int = 0
    prior_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class BanditChange:
    """A change of a bandit's kept versions: ``kept`` are added by number, ``dropped`` go."""

    kept: Mapping[int, bytes]
    dropped: Sequence[int] = ()
    move: MoveWrite | None = None


@dataclass(frozen=True, slots=True)
class StoredEventLog:
    """An event log as read by ``EventLogs.read``: ``events`` begin at ``position``, the number of events
    before them. ``state``: of the newest snapshot, at ``position``; None for a read from a given position
    on, and without a snapshot.
    """

    record: bytes
    position: int
    state: bytes | None
    events: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class StoredJob:
    """``head``: the report of the job's process.

    ``is_alive``: the process has a lease on the job. ``result``: b"" without a result, and where the caller
    did not ask for the result.
    """

    id: str
    head: bytes
    is_alive: bool
    result: bytes = b""
