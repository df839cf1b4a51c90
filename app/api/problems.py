"""Problem documents (RFC 9457): the one shape of every error, and what /openapi.json says of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from app.platform import errors
from app.platform.documents import Answer
from app.platform.errors import FieldPath, Invalid, ShortlistError
from app.platform.plugins import is_loaded
from shortlist.errors import InvalidArgument

PROBLEM = "application/problem+json"
_QUOTED = re.compile(r'"[^"]*"')
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 422: "invalid"}
# Calls of packages that come with the service: where one is not loaded, their 404 names it.
_OF_PACKAGES = {
    "shortlist-campaigns": re.compile(
        r"/v1/(slates|centers|sample)(/.*)?|/v1/catalogues/[^/]+/(centers|sample)"
    ),
    "shortlist-embeddings": re.compile(
        r"/v1/catalogues/[^/]+/embeddings|/v1/bandits/[^/]+/embeddings(/[^/]+)?"
    ),
    "shortlist-evaluation": re.compile(r"/v1/bandits/[^/]+/evaluations(/.*)?"),
    "shortlist-personalizer": re.compile(r"/personalizer(/.*)?"),
}
_MEANINGS = {
    400: "The body cannot be read as blocks.",
    404: "It is not found.",
    409: "Another one exists, it is in use, or there is nothing to choose from.",
    415: "The body is compressed: send it uncompressed.",
    412: "The resource has changed since this ETag; nothing was changed.",
    413: "The body, a line or a batch is too large.",
    422: "A field breaks its rule; nothing was changed.",
    429: "The rate of the API key, or a limit of what is stored, is reached.",
    501: "The service lacks an optional package, which the answer names.",
    503: "The store does not answer; safe to try again.",
}
_CONTENT = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}


class Part(StrEnum):
    """A part of a request. A path with one in front is a location; any other path is a field's.

    The fields of a GET are its query, those of all other requests their body.
    """

    BODY = "body"
    HEADER = "header"
    PATH = "path"
    QUERY = "query"


class Kind(NamedTuple):
    """The answer to a class of errors."""

    status: int
    title: str
    headers: Mapping[str, str] = {}


# A class without an entry is answered as its base.
KINDS: Mapping[type[Exception], Kind] = {
    errors.ShortlistError: Kind(500, "Internal error"),
    errors.NotFound: Kind(404, "Not found"),
    errors.Conflict: Kind(409, "Conflict"),
    errors.NoArms: Kind(409, "No eligible arm"),
    errors.NotFitted: Kind(409, "Features are not fitted yet"),
    errors.NotPossibleHere: Kind(422, "Not possible here"),
    errors.NotChangeable: Kind(409, "Field is immutable"),
    errors.TooDifferent: Kind(409, "The features have too little in common"),
    errors.EventUsed: Kind(409, "The event id was used by another request"),
    errors.PreconditionFailed: Kind(412, "Changed since this ETag"),
    errors.Invalid: Kind(422, "Invalid request"),
    errors.DimensionMismatch: Kind(422, "A vector of the wrong length"),
    errors.BadRequest: Kind(400, "Bad request"),
    errors.Unauthorized: Kind(401, "Unauthorized"),
    errors.PassExpired: Kind(401, "Pass expired"),
    errors.Forbidden: Kind(403, "Forbidden"),
    errors.TooManyRequests: Kind(429, "Too many requests"),
    errors.TooLarge: Kind(413, "Too large"),
    errors.UnsupportedEncoding: Kind(415, "Unsupported encoding", {"Accept-Encoding": "identity"}),
    errors.QuotaReached: Kind(429, "Storage limit reached"),
    errors.TooManyQuotas: Kind(422, "Too many quotas"),
    errors.NotInstalled: Kind(501, "Not installed"),
    errors.Unavailable: Kind(503, "Temporarily unavailable", {"Retry-After": "1"}),
    errors.StoreFull: Kind(503, "The store is full", {"Retry-After": "60"}),
    errors.StartupError: Kind(500, "The service cannot start"),
}


def kind_of(error: ShortlistError) -> Kind:
    return next(KINDS[base] for base in type(error).__mro__ if base in KINDS)


def headers_of(error: ShortlistError) -> Mapping[str, str]:
    """Headers of an answer with this problem."""
    if isinstance(error, errors.TooManyRequests):
        return {"Retry-After": str(error.retry_after_s)}
    return kind_of(error).headers


class FieldError(Answer, frozen=True, forbid_unknown_fields=True):
    """``loc``: where in the request, such as ["body", "arms", 3, "id"]."""

    schema_name = "FieldError"

    loc: FieldPath
    message: str


class Problem(Answer, frozen=True, forbid_unknown_fields=True):
    """RFC 9457; `code` is a stable word. What was sent is never repeated."""

    schema_name = "Problem"

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldError]


def schemas() -> dict[str, Any]:
    """Schemas of all parts of a problem document, by name."""
    return msgspec.json.schema_components([Problem], ref_template="#/components/schemas/{name}")[1]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that can be answered with problems of these statuses."""
    return {status: {"description": _MEANINGS[status], "content": _CONTENT} for status in statuses}


def problem(status: int, code: str, title: str, detail: str, errors: Sequence[FieldError] = ()) -> bytes:
    """The body of a problem document."""
    return msgspec.json.encode(Problem(f"/problems/{code}", title, status, detail, code, [*errors]))


def document_of(error: ShortlistError | InvalidArgument, fields: Part = Part.BODY) -> Problem:
    """The problem document of an error. ``fields``: the part of the request with its fields."""
    error = as_ours(error)
    named = [
        FieldError(path if path and isinstance(path[0], Part) else (fields, *path), text)
        for path, text in error.errors
    ]
    kind = kind_of(error)
    return Problem(f"/problems/{error.code}", kind.title, kind.status, _detail_of(error), error.code, named)


def problem_of(error: ShortlistError, fields: Part = Part.BODY) -> bytes:
    """``document_of``, as it is sent."""
    return msgspec.json.encode(document_of(error, fields))


def _detail_of(error: ShortlistError) -> str:
    """The sentence about the error, with the name of its field: many people read ``detail`` alone."""
    if len(error.errors) == 1 and error.errors[0][1] == error.detail:
        names = [str(name) for name in error.errors[0][0] if not isinstance(name, Part)]
        field = ".".join(names)
        # The last name of a nested field does not tell which one it is: many are called `id`.
        # What stands in quotes is a value: "auto" is one of many fields, and the name of one.
        words = re.findall(r"\w+", _QUOTED.sub("", error.detail))
        is_named = field in error.detail if len(names) > 1 else field in words
        if names and not is_named:
            return f"{field}: {error.detail}"
    return error.detail


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


def problem_response(error: ShortlistError | InvalidArgument, method: str = "POST") -> Response:
    """The response to an error of a request."""
    error = as_ours(error)
    fields = Part.QUERY if method in {"GET", "HEAD"} else Part.BODY
    return Response(problem_of(error, fields), kind_of(error).status, headers_of(error), PROBLEM)


def as_ours(error: ShortlistError | InvalidArgument) -> ShortlistError:
    """The error as an error of a request: an argument of an algorithm is a field of the request."""
    if isinstance(error, InvalidArgument):
        return Invalid.many([(path, str(error)) for path in error.paths])
    return error


def _routes(request: Request, path: str) -> list[Route]:
    """All routes of a path, whatever the method."""
    scope = {**request.scope, "path": path}
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    return [route for route in routes if route.matches(scope)[0] != Match.NONE]


def _methods(request: Request) -> str:
    routes = _routes(request, request.scope["path"])
    return ", ".join(sorted({method for route in routes for method in route.methods or ()}))


def _detail(request: Request, status: int) -> str:
    """The sentence about a request without a route."""
    path = request.scope["path"]
    if status == 404 and path.endswith("/") and (routes := _routes(request, path.rstrip("/"))):
        return f"there is nothing at this path: leave out the / at its end, as in {routes[0].path}"
    if status == 405:
        return f"this path does not take that method, but {_methods(request)}"
    if status == 404:
        for package, paths in _OF_PACKAGES.items():
            if paths.fullmatch(path) and not is_loaded(package):
                return f"this call is of the package {package}, which this service has not loaded"
        return "there is nothing at this path; /docs lists what there is"
    return f"this request is not possible here: {HTTPStatus(status).phrase}"


def of_the_framework(request: Request, error: HTTPException) -> Response:
    """The framework's own errors as problem documents."""
    title = HTTPStatus(error.status_code).phrase
    code = _CODES.get(error.status_code, title.lower().replace(" ", "_"))
    body = problem(error.status_code, code, title, _detail(request, error.status_code))
    headers = error.headers
    if error.status_code == 405:  # of all routes of the path, not of one alone
        headers = {"Allow": _methods(request)}
    return Response(body, error.status_code, headers, PROBLEM)
