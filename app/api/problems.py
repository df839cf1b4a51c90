"""Problem documents (RFC 9457): the one shape of every error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from app import errors
from app.errors import FieldPath, Invalid, ShortlistError
from shortlist.errors import InvalidArgument

PROBLEM = "application/problem+json"
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 422: "invalid"}


class Part(StrEnum):
    """A part of a request. A path that begins with one is a location; any other is that of a field.

    The fields of a GET are its query, those of all other requests their body.
    """

    BODY = "body"
    HEADER = "header"
    PATH = "path"
    QUERY = "query"


class Kind(NamedTuple):
    """How a class of errors is answered."""

    status: int
    title: str
    retry_after_s: int | None = None


# A class that is not here is answered as the one that it is made from.
KINDS: Mapping[type[Exception], Kind] = {
    errors.ShortlistError: Kind(500, "Internal error"),
    errors.NotFound: Kind(404, "Not found"),
    errors.Conflict: Kind(409, "Conflict"),
    errors.NoArms: Kind(409, "No eligible arm"),
    errors.NotChangeable: Kind(409, "It stays as it was made"),
    errors.EventUsed: Kind(409, "The event id is of another request"),
    errors.PreconditionFailed: Kind(412, "Changed meanwhile"),
    errors.Invalid: Kind(422, "Invalid request"),
    errors.DimensionMismatch: Kind(422, "A vector of the wrong length"),
    errors.BadRequest: Kind(400, "Bad request"),
    errors.Unauthorized: Kind(401, "Unauthorized"),
    errors.Forbidden: Kind(403, "Forbidden"),
    errors.TooLarge: Kind(413, "Too large"),
    errors.QuotaReached: Kind(429, "As much is held as may be"),
    errors.NotInstalled: Kind(501, "Not installed"),
    errors.Unavailable: Kind(503, "Temporarily unavailable", 1),
    errors.StoreFull: Kind(503, "The store holds as much as it may", 60),
    errors.StartupError: Kind(500, "The service cannot start"),
}


def kind_of(error: ShortlistError) -> Kind:
    return next(KINDS[base] for base in type(error).__mro__ if base in KINDS)


def problem(
    status: int, code: str, title: str, detail: str, errors: list[dict[str, object]] | None = None
) -> bytes:
    """The body of a problem document."""
    return msgspec.json.encode(
        {
            "type": f"/problems/{code}",
            "title": title,
            "status": status,
            "detail": detail,
            "code": code,
            "errors": errors or [],
        }
    )


def problem_of(error: ShortlistError, fields: Part = Part.BODY) -> bytes:
    """The problem document of an error. ``fields``: the part of the request that has its fields."""
    named: list[dict[str, object]] = [
        {"loc": _location(path, fields), "message": text} for path, text in error.errors
    ]
    kind = kind_of(error)
    return problem(kind.status, error.code, kind.title, error.detail, named)


@contextmanager
def from_path(name: str) -> Iterator[None]:
    """The field of this name is in the path of the request."""
    try:
        yield
    except ShortlistError as error:
        error.errors = [
            ((Part.PATH, *path) if path[:1] == (name,) else path, text) for path, text in error.errors
        ]
        raise


def _location(path: FieldPath, fields: Part) -> FieldPath:
    return path if path and isinstance(path[0], Part) else (fields, *path)


def problem_response(error: ShortlistError | InvalidArgument, method: str = "POST") -> Response:
    """The response to an error of a request; an argument of an algorithm is a field of the request."""
    if isinstance(error, InvalidArgument):
        error = Invalid.many([(path, str(error)) for path in error.paths])
    kind = kind_of(error)
    headers = None if kind.retry_after_s is None else {"Retry-After": str(kind.retry_after_s)}
    fields = Part.QUERY if method in {"GET", "HEAD"} else Part.BODY
    return Response(problem_of(error, fields), kind.status, headers, PROBLEM)


def _methods(request: Request) -> str:
    """The value of the header Allow. It names the methods of all routes of the path, not of one alone."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    found = (route.methods or () for route in routes if route.matches(request.scope)[0] != Match.NONE)
    return ", ".join(sorted({method for methods in found for method in methods}))


def install(app: FastAPI) -> None:
    """Make the framework's own errors problem documents too."""

    async def framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
        title = HTTPStatus(error.status_code).phrase
        code = _CODES.get(error.status_code, title.lower().replace(" ", "_"))
        body = problem(error.status_code, code, title, f"this request is not possible here: {title}")
        headers = {"Allow": _methods(request)} if code == "method_not_allowed" else error.headers
        return Response(body, error.status_code, headers, PROBLEM)

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, ShortlistError)  # noqa: S101 - registered for this class only
        return problem_response(error, request.method)

    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(ShortlistError, known)
