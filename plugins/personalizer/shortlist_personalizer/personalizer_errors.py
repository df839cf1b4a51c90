"""Errors in Personalizer's shape: ``{"error": {"code", "message", "target"}}``."""

from __future__ import annotations

from collections.abc import Sequence

from shortlist.errors import InvalidArgument
from shortlist_service.errors import ShortlistError
from shortlist_service.routes import Answer, Problem, Response, document_of, encoded

_CODES = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "ResourceNotFound",
    429: "TooManyRequests",
    500: "InternalServerError",
    503: "ServiceUnavailable",
}
# Fields of our API, by what a client of Personalizer calls them.
_FIELDS = {
    "candidates": "actions",
    "context": "contextFeatures",
    "event_id": "eventId",
    "requests": "slots",
    "rewards": "reward",
}


class ErrorDetail(Answer, frozen=True, omit_defaults=True):
    """``target``: the field that is wrong, such as ``actions[3].id``."""

    code: str
    message: str
    target: str | None = None


class ErrorAnswer(Answer, frozen=True):
    error: ErrorDetail


def response_of(problem: Problem) -> Response:
    """The answer of a call whose problem document is ``problem``."""
    # Personalizer answers 400 to every request that it cannot do; its only 409 is of a model that fails.
    status = 400 if problem.status in {409, 413, 415, 422} else problem.status
    target = _target(problem.errors[0].loc) if problem.errors else None
    # In place of the detail, which has the name of our field.
    message = f"{target}: {problem.errors[0].message}" if target else problem.detail
    detail = ErrorDetail(_CODES.get(status, "BadRequest"), message.replace("event_id", "eventId"), target)
    return Response(encoded(ErrorAnswer(detail)), status, media_type="application/json")


def refuse(error: ShortlistError | InvalidArgument, method: str) -> Response:  # noqa: ARG001
    """The answer of an error of a call."""
    return response_of(document_of(error))


def _target(path: Sequence[str | int]) -> str | None:
    if path[-1] == "event_id":
        return "eventId"  # of a slot too: a client has one of all slots
    target = ""
    for part in path[1:]:  # the first says which part of the request it is
        if isinstance(part, int):
            target += f"[{part}]"
        else:
            target += f".{_FIELDS.get(part, part)}" if target else _FIELDS.get(part, part)
    return target or None
