"""Entries of the reward log as a worker has them."""

from __future__ import annotations

from app.records.log_entries import Content, DecodedEntry, decoded, encode
from app.storage.types import LearnerId, LogEntry


def entry_of(
    number: int | str,
    learner: LearnerId,
    content: Content | bytes,
    *,
    first: bool = True,
    came: tuple[tuple[int, float], ...] = (),
) -> DecodedEntry:
    """As it comes out of the store. ``number``: or its whole id."""
    entry_id = number if isinstance(number, str) else f"1-{number}"
    payload = content if isinstance(content, bytes) else encode(content)
    return decoded(LogEntry(entry_id, learner, payload, first, came))
