"""Notes of constraints on a key, in a real store."""

from __future__ import annotations

from typing import Any

import pytest

from app.frequency_caps.notes import NoteStore
from app.platform.metrics import Metrics
from app.storage.frequency_caps import FrequencyCapStore
from app.storage.store import Store
from app.storage.types import Exposures, LearnerId

pytestmark = pytest.mark.anyio

ANN = LearnerId("0123456789abcdef", "ann")
SPAN_MS = 86_400_000


class WhereTheClockWentBack(FrequencyCapStore):
    """A store has what was written last by its clock at last."""

    def __init__(self, store: FrequencyCapStore) -> None:
        self.store = store

    async def take(self, *args: Any, **options: Any) -> Exposures:
        exposures = await self.store.take(*args, **options)
        return exposures._replace(shown=exposures.shown[::-1], names=exposures.names[::-1])


async def test_a_note_that_is_taken_back_is_not_read(store: Store):
    notes = NoteStore(store.frequency_caps, Metrics())
    for number in range(2):
        written = await notes.write(await notes.read("one", ANN, span_ms=SPAN_MS), f"d{number}", f"{number}")
        assert written is not None
    await notes.take_back(written)
    assert [note.text for note in (await notes.read("one", ANN, span_ms=SPAN_MS)).notes] == ["0"]


async def test_each_constraint_reads_its_own_notes_the_oldest_first(store: Store):
    """By their numbers; there are more than nine, so these do not sort as texts."""
    notes = NoteStore(WhereTheClockWentBack(store.frequency_caps), Metrics())
    for number in range(12):
        for constraint in ("one", "other"):
            read = await notes.read(constraint, ANN, span_ms=SPAN_MS)
            assert await notes.write(read, f"d{number}", f"{constraint} {number}") is not None
    for constraint in ("one", "other"):
        read = await notes.read(constraint, ANN, span_ms=SPAN_MS)
        assert [note.text for note in read.notes] == [f"{constraint} {number}" for number in range(12)]
