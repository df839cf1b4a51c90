"""What constraints of plug-ins remember of keys: notes, kept where the store has what keys were shown.

A note is a text that is written with a choice. It is an exposure: it counts as the value "constraint/number"
of a field without a name, which no arm has, and its text stands in its name. So notes are bounded, forgotten,
erased and copied with exposures, by the same scripts. Of two choices that read the same notes the second one
to write is refused, since its number is taken, and is made again.
"""

from __future__ import annotations

import contextlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from app.frequency_caps.caps import MAX_EXPOSURES
from app.frequency_caps.exposures import field_value
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.storage.frequency_caps import FrequencyCapStore
from app.storage.types import LearnerId

MAX_NOTE_BYTES = 300
NO_FIELD = ""


class Note(NamedTuple):
    """What was noted with a choice, and when it was, in ms by the clock of the store."""

    text: str
    at_ms: int


class KeyNotes(NamedTuple):
    """The notes of a constraint on a key, the oldest first. ``last``: the number of the newest; 0: none."""

    constraint: str
    key: LearnerId
    span_ms: int
    notes: Sequence[Note]
    last: int


class WrittenNote(NamedTuple):
    """A note as an exposure of its key: its name, and what it counts as."""

    key: LearnerId
    name: str
    counted: str


class NoteStore:
    """See the module. Nothing is remembered in this process: each read is one round trip."""

    def __init__(self, store: FrequencyCapStore, metrics: Metrics) -> None:
        self._store = store
        self._unlimited = metrics.unlimited.labels("noted")

    async def read(self, constraint: str, key: LearnerId, *, span_ms: int) -> KeyNotes:
        """What was noted of a key in the last ``span_ms``. Raises Unavailable."""
        exposures = await self._store.take(key, [], within_ms=span_ms, most=0, kept=MAX_EXPOSURES)
        numbered_notes = list[tuple[int, Note]]()
        for name, (counted, at_ms) in zip(exposures.names, exposures.shown, strict=True):
            field, value = field_value(counted) or ("", "")
            owner, _, number = str(value).rpartition("/")
            if field == NO_FIELD and owner == constraint:
                text = urlsafe_b64decode(name.rpartition(".")[2]).decode()
                numbered_notes.append((int(number), Note(text, at_ms)))
        numbered_notes.sort()
        return KeyNotes(
            constraint,
            key,
            span_ms,
            [note for _, note in numbered_notes],
            numbered_notes[-1][0] if numbered_notes else 0,
        )

    async def write(self, read: KeyNotes, decision: str, text: str) -> WrittenNote | None:
        """Write a note after those that were read; None: another one was written since, and nothing is now.

        Where the store has no room nothing is noted, and that is counted. Raises Unavailable: it is not known
        whether it is noted.
        """
        if len(text.encode()) > MAX_NOTE_BYTES:
            raise ValueError(f"a note has at most {MAX_NOTE_BYTES} bytes")
        counted = msgspec.json.encode((NO_FIELD, f"{read.constraint}/{read.last + 1}")).decode()
        written = WrittenNote(read.key, f"{decision}.{urlsafe_b64encode(text.encode()).decode()}", counted)
        outcome = await self._store.take(
            read.key, [written[1:]], within_ms=read.span_ms, most=1, kept=MAX_EXPOSURES
        )
        if not outcome.remembered:
            self._unlimited.inc()
        return written if outcome.allowed else None

    async def take_back(self, written: WrittenNote) -> None:
        """Nobody saw the choice. While the store is away it cannot be taken back: then it counts."""
        with contextlib.suppress(Unavailable):
            await self._store.drop(written.key, [written[1:]])
