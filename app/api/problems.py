"""Problem documents (RFC 9457): the one shape of every error."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from app.errors import Invalid, ShortlistError, Unavailable
from shortlist.errors import InvalidArgument

PROBLEM = "application/problem+json"
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 422: "invalid"}


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


def problem_of(error: ShortlistError) -> bytes:
    errors: list[dict[str, object]] = [{"loc": list(loc), "message": text} for loc, text in error.errors]
    return problem(error.status, error.code, error.title, error.detail, errors)


def problem_response(error: ShortlistError | InvalidArgument) -> Response:
    """The response to an error; an argument of an algorithm is a field of the body."""
    if isinstance(error, InvalidArgument):
        error = Invalid.many([(("body", *path), str(error)) for path in error.paths])
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, Unavailable) else None
    return Response(problem_of(error), error.status, headers, PROBLEM)


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

    async def known(request: Request, error: Exception) -> Response:  # noqa: ARG001
        assert isinstance(error, ShortlistError)  # noqa: S101 - registered for this class only
        return problem_response(error)

    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(ShortlistError, known)
