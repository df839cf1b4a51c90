"""Every error raised on purpose. The HTTP status of each is in ``app.api.problems``.

Algorithms raise errors of their own (``shortlist.errors``), which become ``invalid``.

No error message contains a value of the caller: it names the field, and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import ClassVar, Self

FieldPath = tuple[str | int, ...]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")


def shown(name: str) -> str:
    """The name of an unknown field in an error: as it was sent if it looks like a name, else not repeated."""
    return name if _NAME.fullmatch(name) else "?"


def shown_time(at_ms: int) -> str:
    """A time in a message, in ms since 1970: to the minute, in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M} UTC"


class ShortlistError(Exception):
    """Base of all errors. ``code`` is a stable word.

    ``path``: of the wrong field: ("rules", "pin", 2, "arm"); (): the whole.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, detail: str, *, path: FieldPath | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors: list[tuple[FieldPath, str]] = [] if path is None else [(path, detail)]

    @classmethod
    def many(cls, errors: Sequence[tuple[FieldPath, str]]) -> Self:
        """One error that names several fields."""
        error = cls(errors[0][1] if len(errors) == 1 else f"{len(errors)} fields break their rules")
        error.errors = list(errors)
        return error


class NotFound(ShortlistError):
    code = "not_found"  # no catalogue, arm, bandit or learner of this name


class Conflict(ShortlistError):
    code = "conflict"  # another thing of that name exists, or it is in use


class NoArms(Conflict):
    code = "no_arms"  # fewer than one eligible arm


class NotFitted(Conflict):
    code = "not_fitted"  # the arms of this catalogue wait for a basis


class NotChangeable(Conflict):
    code = "not_changeable"  # a field that stays as it was made


class TooDifferent(Conflict):
    code = "too_different"  # the features of a catalogue say hardly anything of those of another


class EventUsed(Conflict):
    code = "event_used"  # the event id was sent with another request before


class PreconditionFailed(ShortlistError):
    code = "precondition_failed"  # it is no longer what the caller saw


class Invalid(ShortlistError):
    code = "invalid"  # a field breaks its rule; nothing was changed


class DimensionMismatch(Invalid):
    code = "dimension_mismatch"  # a vector of the wrong length


class NotPossibleHere(Invalid):
    code = "not_possible_here"  # the arms of this catalogue are in an engine, not in memory


class BadRequest(ShortlistError):
    code = "bad_request"  # a request that means two things at once


class Unauthorized(ShortlistError):
    code = "unauthorized"  # an API key is needed, or this one is not known


class PassExpired(Unauthorized):
    code = "pass_expired"  # the pass of a visitor was genuine once


class Forbidden(ShortlistError):
    code = "forbidden"  # the key lacks the scope, the pass is of somebody else, the origin is not listed


class TooManyRequests(ShortlistError):
    """``retry_after_s``: until when the rate of the API key is exceeded, rounded up."""

    code = "too_many_requests"

    def __init__(self, detail: str, *, retry_after_s: int) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class TooLarge(ShortlistError):
    code = "too_large"  # a batch above its stated limit


class UnsupportedEncoding(ShortlistError):
    code = "unsupported_encoding"  # the body is compressed


class QuotaReached(ShortlistError):
    code = "quota_reached"  # it is as much as it may be, until some is deleted


class TooManyQuotas(Invalid):
    code = "too_many_quotas"  # of this bandit, or of those by a filter


class NotInstalled(ShortlistError):
    code = "not_installed"  # the service lacks an optional package, which it names


class Unavailable(ShortlistError):
    code = "unavailable"  # the store does not answer; safe to try again


class StoreFull(Unavailable):
    code = "store_full"  # it holds as much of this kind as it may; some expires


class StartupError(ShortlistError):
    code = "startup"  # the message says why


@contextmanager
def within(prefix: FieldPath) -> Iterator[None]:
    """Errors are of one item of a batch: their paths become paths below ``prefix``."""
    try:
        yield
    except ShortlistError as error:
        error.errors = [((*prefix, *path), text) for path, text in error.errors or [((), error.detail)]]
        raise


@contextmanager
def named_by(field: str) -> Iterator[None]:
    """Name this field of the body in a NotFound, and not the path of the call."""
    try:
        yield
    except NotFound as error:
        error.errors = [((field,), error.detail)]
        raise
