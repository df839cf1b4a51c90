"""Notes of constraints on a key, in a real store."""

from __future__ import annotations

import pytest

from app.frequency_caps.notes import NoteStore
from app.platform.metrics import Metrics
from app.storage.store import Store
from app.storage.types import LearnerId

pytestmark = pytest.mark.anyio

ANN = LearnerId("0123456789abcdef", "ann")
SPAN_MS = 86_400_000


async def test_each_constraint_reads_its_own_notes_the_oldest_first(store: Store):
    """Most are written in the same millisecond; more than nine, so numbers do not sort as texts."""
    notes = NoteStore(store.frequency_caps, Metrics())
    for number in range(12):
        for constraint in ("one", "other"):
            read = await notes.read(constraint, ANN, span_ms=SPAN_MS)
            assert await notes.write(read, f"d{number}", f"{constraint} {number}") is not None
    for constraint in ("one", "other"):
        read = await notes.read(constraint, ANN, span_ms=SPAN_MS)
        assert [note.text for note in read.notes] == [f"{constraint} {number}" for number in range(12)]
