"""Ids that callers give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import StringConstraints

from app.errors import FieldPath, Invalid

IDENTIFIER = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
Identifier = Annotated[str, StringConstraints(pattern=f"^{IDENTIFIER}$")]


def refuse_repeats(ids: Iterable[str], message: str, at: FieldPath, field: FieldPath = ()) -> None:
    """Raise Invalid at the first id that was there before.

    ``at`` is where the ids are, ``field`` where the id is in each: the error is at (*at, position, *field).
    """
    seen: set[str] = set()
    for position, one in enumerate(ids):
        if one in seen:
            raise Invalid(message, path=(*at, position, *field))
        seen.add(one)
