"""Entity tags: ``ETag`` of answers and ``If-Match`` of requests (RFC 9110)."""

from __future__ import annotations

import re

from fastapi import Request

from app.api.problems import Part
from app.errors import Invalid, PreconditionFailed

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"\s*{_TAG}\s*(?:,\s*{_TAG}\s*)*")
MAX_CHARS = 8_192
ANY = "*"


def if_match(request: Request) -> frozenset[str] | None:
    """The tags of If-Match, one of which must be the current one; None: any will do. Raises Invalid.

    A weak tag is never one of ours, so it matches nothing.
    """
    values = request.headers.getlist("if-match")
    text = ",".join(values)
    if not values or text.strip() == ANY:
        return None
    if len(text) > MAX_CHARS or not _TAGS.fullmatch(text):
        raise Invalid('must be * or entity tags in quotes: "…"', path=(Part.HEADER, "if-match"))
    return frozenset(re.findall(_TAG, text))


def check(etag: str, allowed: frozenset[str] | None) -> None:
    """Raise PreconditionFailed unless the current tag is among those that are allowed."""
    if allowed is not None and etag not in allowed:
        raise PreconditionFailed("it is no longer what If-Match names: read it again")
