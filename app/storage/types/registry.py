"""Catalogues and bandits, event logs and jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

KeptJob = Literal["kept", "full", "missing"]


@dataclass(frozen=True, slots=True)
class Registry:
    """All catalogues and bandits: name -> record. The version grows with every change.

    ``quotas``: of bandits that have some, or had: their uid -> a number that grows when they change.
    """

    catalogues: Mapping[str, bytes] = field(default_factory=dict)
    bandits: Mapping[str, bytes] = field(default_factory=dict)
    version: int = 0
    quotas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MoveWrite:
    """A bandit gets another catalogue.

    ``number``   of the move, from 1; ``record``: what is kept of it, opaque
    ``left``, ``joined``   the catalogues by name; ``joined_uid``: only if the name has this uid
    ``needed_until_ms``    until when decisions of before can be rewarded, with features of ``left_uid``
    ``prior``    the next version of its learned prior, with its number, and when it was made; b"": none.
                 It is left out where another one has that number
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
    """What a change does to the versions that are kept of a bandit: ``kept`` by number, and ``dropped``."""

    kept: Mapping[int, bytes]
    dropped: Sequence[int] = ()
    move: MoveWrite | None = None


@dataclass(frozen=True, slots=True)
class StoredEventLog:
    """What ``EventLogs.read`` found: ``events`` begin at ``position``, the number of events before them.

    ``state`` is that of the newest snapshot, at ``position``; None when the read was from a given position
    on, or there is no snapshot yet.
    """

    record: bytes
    position: int
    state: bytes | None
    events: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class StoredJob:
    """``head``: what its process says of it. ``is_alive``: whether that process has a lease on it.

    ``result``: b"" where there is none, or it was not asked for.
    """

    id: str
    head: bytes
    is_alive: bool
    result: bytes = b""
