"""Ids that callers give."""

from __future__ import annotations

from collections.abc import Iterable

from app.errors import FieldPath, Invalid


def refuse_repeats(ids: Iterable[str], message: str, at: FieldPath, field: FieldPath = ()) -> None:
    """Raise Invalid at the first id that was there before.

    ``at`` is where the ids are, ``field`` where the id is within each. The error is at (*at, place, *field).
    """
    seen: set[str] = set()
    for place, one in enumerate(ids):
        if one in seen:
            raise Invalid(message, path=(*at, place, *field))
        seen.add(one)
