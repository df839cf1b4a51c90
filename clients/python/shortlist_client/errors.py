"""Every error that a call can end with. Its text is one line that says what, and where.

    ShortlistError
    ├── InvalidArgument              what was given cannot be sent; nothing was sent (also a ValueError)
    ├── ConnectionFailed             nobody answers at the address, or the connection broke
    │   └── TimedOut                 nobody answered in time
    ├── UnexpectedAnswer             who answers is no Shortlist service, or one of another version
    ├── RewardRejected               the service refused this reward, for the reason ``code``
    ├── RewardsUnsent                of a reward sender: the rewards that the service did not take
    └── ServiceError                 the service answered with a problem document
        ├── BadRequest          400  bad_request
        ├── Unauthorized        401  unauthorized
        │   └── PassExpired     401  pass_expired
        ├── Forbidden           403  forbidden
        ├── NotFound            404  not_found
        ├── Conflict            409  conflict
        │   ├── NoArms          409  no_arms
        │   ├── NotFitted       409  not_fitted
        │   ├── NotChangeable   409  not_changeable
        │   ├── TooDifferent    409  too_different
        │   └── EventUsed       409  event_used
        ├── PreconditionFailed  412  precondition_failed
        ├── TooLarge            413  too_large
        ├── UnsupportedEncoding 415  unsupported_encoding
        ├── Invalid             422  invalid
        │   ├── DimensionMismatch    dimension_mismatch
        │   ├── NotPossibleHere      not_possible_here
        │   └── TooManyQuotas        too_many_quotas
        ├── TooManyRequests     429  too_many_requests
        ├── QuotaReached        429  quota_reached
        ├── NotInstalled        501  not_installed
        └── Unavailable         503  unavailable
            └── StoreFull            store_full

A code that is not in this list, of a newer service, is a ``ServiceError``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shortlist_client.phrases import counted

if TYPE_CHECKING:
    from shortlist_client.bodies import RewardItem

Location = tuple[str | int, ...]
SHOWN = 3


class ShortlistError(Exception):
    """Base of all errors of this client."""


class InvalidArgument(ShortlistError, ValueError):
    pass


class ConnectionFailed(ShortlistError):
    pass


class TimedOut(ConnectionFailed):
    pass


class UnexpectedAnswer(ShortlistError):
    pass


class RewardRejected(ShortlistError):
    """``code`` is the service's word for why, such as expired."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the reward was rejected: {code}")
        self.code = code


class RewardsUnsent(ShortlistError):
    """``unsent`` rewards are still to be sent; ``rejected`` ones the service refuses, each with its code."""

    def __init__(
        self, unsent: Sequence[RewardItem], rejected: Sequence[tuple[RewardItem, str]], cause: object = None
    ) -> None:
        parts = []
        if unsent:
            parts.append(f"{counted(len(unsent), 'reward is', 'rewards are')} not sent ({cause})")
        if rejected:
            were = counted(len(rejected), "reward was", "rewards were")
            parts.append(f"{were} rejected ({_codes(rejected)})")
        super().__init__("; ".join(parts))
        self.unsent = tuple(unsent)
        self.rejected = tuple(rejected)


@dataclass(frozen=True, slots=True)
class FieldError:
    """``loc`` is the place of the field in the request, from "body", "query" or "path" on."""

    loc: Location
    message: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.loc))}: {self.message}" if self.loc else self.message


class ServiceError(ShortlistError):
    """The fields of the problem document; ``done`` items of a batch were applied before the one refused."""

    code: str = ""

    def __init__(self, call: str, problem: dict[str, Any], *, status: int, request_id: str = "") -> None:
        self.call = call
        self.status = status
        self.code = str(problem.get("code", ""))
        self.title = str(problem.get("title", ""))
        self.detail = str(problem.get("detail", ""))
        self.errors = [
            FieldError(tuple(error.get("loc", ())), str(error.get("message", "")))
            for error in problem.get("errors", ())
        ]
        self.request_id = request_id
        self.done = 0
        super().__init__(call, self.code)

    def __str__(self) -> str:
        fields = "; ".join(map(str, self.errors[:SHOWN])) + "; …" * (len(self.errors) > SHOWN)
        told = f". The first {self.done:,} of the batch were applied, nothing after them" if self.done else ""
        return f"{self.call}: {self.status} {self.code}: {fields or self.detail}{told}"

    def moved(self, by: int, *, applied: bool = True) -> None:
        """Count places in a list of the body from ``by``: that many items were in the batches before.

        ``applied``: they were, and nothing after them.
        """
        self.done = by if applied else 0
        self.errors = [FieldError(_moved(error.loc, by), error.message) for error in self.errors]


class BadRequest(ServiceError):
    code = "bad_request"


class Unauthorized(ServiceError):
    code = "unauthorized"


class PassExpired(Unauthorized):
    code = "pass_expired"


class Forbidden(ServiceError):
    code = "forbidden"


class NotFound(ServiceError):
    code = "not_found"


class Conflict(ServiceError):
    code = "conflict"


class NoArms(Conflict):
    code = "no_arms"


class NotFitted(Conflict):
    code = "not_fitted"


class NotChangeable(Conflict):
    code = "not_changeable"


class TooDifferent(Conflict):
    code = "too_different"


class EventUsed(Conflict):
    code = "event_used"


class PreconditionFailed(ServiceError):
    code = "precondition_failed"


class TooLarge(ServiceError):
    code = "too_large"


class UnsupportedEncoding(ServiceError):
    code = "unsupported_encoding"


class Invalid(ServiceError):
    code = "invalid"


class DimensionMismatch(Invalid):
    code = "dimension_mismatch"


class NotPossibleHere(Invalid):
    code = "not_possible_here"


class TooManyQuotas(Invalid):
    code = "too_many_quotas"


class TooManyRequests(ServiceError):
    code = "too_many_requests"


class QuotaReached(ServiceError):
    code = "quota_reached"


class NotInstalled(ServiceError):
    code = "not_installed"


class Unavailable(ServiceError):
    code = "unavailable"


class StoreFull(Unavailable):
    code = "store_full"


def _tree(kind: type[ServiceError]) -> Iterator[type[ServiceError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


BY_CODE = {kind.code: kind for kind in _tree(ServiceError) if kind.code}


def problem_error(
    call: str, problem: dict[str, Any], *, status: int | None = None, request_id: str = ""
) -> ServiceError:
    """The error of a problem document. Raises KeyError, TypeError: it is none."""
    kind = BY_CODE.get(problem["code"], ServiceError)
    return kind(call, problem, status=problem["status"] if status is None else status, request_id=request_id)


def _moved(loc: Location, by: int) -> Location:
    place = loc[2] if len(loc) > 2 else None
    return (*loc[:2], place + by, *loc[3:]) if isinstance(place, int) else loc


def _codes(rejected: Sequence[tuple[RewardItem, str]]) -> str:
    return ", ".join(sorted({code for _, code in rejected}))
