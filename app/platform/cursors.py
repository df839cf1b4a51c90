"""Cursors of lists. They mean nothing to clients, and one from no list is refused."""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from app.platform.errors import Invalid

T = TypeVar("T")
NUMBER = re.compile(r"[0-9]{1,18}")


def encode_cursor(position: str) -> str:
    return base64.urlsafe_b64encode(position.encode()).rstrip(b"=").decode("ascii")


def decode_cursor(cursor: str) -> str:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        position = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (ValueError, binascii.Error):
        raise foreign() from None
    if encode_cursor(position) != cursor:
        raise foreign()
    return position


def decode_number(cursor: str) -> int:
    """The cursor of a list that is ordered by a number below 2^63."""
    return number_in(decode_cursor(cursor))


def number_in(position: str) -> int:
    """The number of a position. Raises Invalid."""
    if not NUMBER.fullmatch(position):
        raise foreign()
    return int(position)


def foreign() -> Invalid:
    """The refusal of a cursor that the list has not made."""
    return Invalid("the cursor does not belong to this list", path=("cursor",))


def page_by_name(
    items: Sequence[T], name: Callable[[T], str], cursor: str | None, limit: int
) -> tuple[Sequence[T], str | None]:
    """The ``limit`` items after the cursor, in ascending order of name, and the cursor of the next page."""
    ordered = sorted(items, key=name)
    start = 0 if cursor is None else bisect_right(ordered, decode_cursor(cursor), key=name)
    page = ordered[start : start + limit]
    more = start + limit < len(ordered)
    return page, encode_cursor(name(page[-1])) if more else None
