"""Spans of time, as query parameters and bodies say them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query

from app.errors import Invalid

From = Annotated[datetime | None, Query(alias="from")]
To = Annotated[datetime | None, Query(alias="to")]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def span(start: datetime | None, end: datetime | None) -> tuple[int | None, int | None]:
    """(from, to) in ms since 1970, half open. Times without a zone are UTC.

    Raises Invalid.
    """
    from_ms, to_ms = (None if moment is None else _ms(moment) for moment in (start, end))
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise Invalid("from must not be after to", path=("from",))
    return from_ms, to_ms


def _ms(moment: datetime) -> int:
    """The first ms that is not before then."""
    known = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return -((_EPOCH - known) // _MS)
