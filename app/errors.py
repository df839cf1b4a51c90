"""Every error that Shortlist raises on purpose, and the problem document each one becomes.

    ShortlistError
    ├── NotFound             404  not_found           no such catalogue, arm, bandit or learner
    ├── Conflict             409  conflict            another thing of that name exists, or it is in use
    │   ├── NoArms           409  no_arms             fewer than one eligible arm
    │   ├── NotChangeable    409  not_changeable      a field that stays as it was made
    │   └── EventUsed        409  event_used          the event id was sent with another request before
    ├── Invalid              422  invalid             a field breaks its rule; nothing was changed
    │   └── DimensionMismatch     dimension_mismatch  a vector of the wrong length
    ├── PreconditionFailed   412  precondition_failed it is no longer what If-Match names
    ├── BadRequest           400  bad_request         a request that means two things at once
    ├── Unauthorized         401  unauthorized        an API key is needed, or this one is not known
    ├── Forbidden            403  forbidden           the key has not the scope, or the origin is not listed
    ├── QuotaReached         429  quota_reached       it is as much as it may be; deleting makes room
    ├── TooLarge             413  too_large           a body or a batch above its stated limit
    ├── NotInstalled         501  not_installed       the service lacks an optional package, which it names
    ├── Unavailable          503  unavailable         the store does not answer; safe to try again
    │   └── StoreFull             store_full          it holds as much of this kind as it may; some expires
    └── StartupError          -                       the service cannot start; the message says why

Algorithms raise errors of their own (``shortlist.errors``), which become ``invalid``.

No error message contains a value that the caller sent: it names the field, and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Self

Location = tuple[str | int, ...]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")


def shown(name: str) -> str:
    """The name of an unknown field in an error: as it was sent if it looks like a name, else not repeated."""
    return name if _NAME.fullmatch(name) else "?"


class ShortlistError(Exception):
    """Base of all errors; ``status``, ``code`` and ``title`` are those of the problem document."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str, *, loc: Location = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors: list[tuple[Location, str]] = [(loc, detail)] if loc else []

    @classmethod
    def many(cls, errors: Sequence[tuple[Location, str]]) -> Self:
        """One error that names several fields."""
        error = cls(errors[0][1] if len(errors) == 1 else f"{len(errors)} fields break their rules")
        error.errors = list(errors)
        return error


class NotFound(ShortlistError):
    status, code, title = 404, "not_found", "Not found"


class Conflict(ShortlistError):
    status, code, title = 409, "conflict", "Conflict"


class NoArms(Conflict):
    code, title = "no_arms", "No eligible arm"


class NotChangeable(Conflict):
    code, title = "not_changeable", "It stays as it was made"


class EventUsed(Conflict):
    code, title = "event_used", "The event id is of another request"


class PreconditionFailed(ShortlistError):
    status, code, title = 412, "precondition_failed", "Changed meanwhile"


class Invalid(ShortlistError):
    status, code, title = 422, "invalid", "Invalid request"


class DimensionMismatch(Invalid):
    code, title = "dimension_mismatch", "A vector of the wrong length"


class BadRequest(ShortlistError):
    status, code, title = 400, "bad_request", "Bad request"


class Unauthorized(ShortlistError):
    status, code, title = 401, "unauthorized", "Unauthorized"


class Forbidden(ShortlistError):
    status, code, title = 403, "forbidden", "Forbidden"


class TooLarge(ShortlistError):
    status, code, title = 413, "too_large", "Too large"


class QuotaReached(ShortlistError):
    status, code, title = 429, "quota_reached", "As much is held as may be"


class NotInstalled(ShortlistError):
    status, code, title = 501, "not_installed", "Not installed"


class Unavailable(ShortlistError):
    status, code, title = 503, "unavailable", "Temporarily unavailable"
    retry_after_s: ClassVar[int] = 1


class StoreFull(Unavailable):
    code, title = "store_full", "The store holds as much as it may"
    retry_after_s: ClassVar[int] = 60


class StartupError(ShortlistError):
    code, title = "startup", "The service cannot start"


@contextmanager
def within(place: Location) -> Iterator[None]:
    """Errors are of one item of a batch: fields of the body become fields of the item at ``place``."""
    try:
        yield
    except ShortlistError as error:
        error.errors = [((*place, *loc[1:]), text) for loc, text in error.errors or [((), error.detail)]]
        raise
