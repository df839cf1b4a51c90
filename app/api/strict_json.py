"""The route class of every JSON endpoint: strict in what it reads, cheap on the way.

Endpoints are written as FastAPI endpoints, and FastAPI documents them in /openapi.json from their signature.
At request time this class takes over: the body is parsed and validated in one step from its bytes (pydantic,
strict), so NaN, Infinity, numbers beyond float64, lone surrogates, broken UTF-8 and deep nesting are errors
that name a field, and nothing is coerced. What that is worth: docs/decisions/0003-strict-json-routes.md.

An endpoint takes: parameters named in its path, at most one pydantic model as body, query parameters marked
with ``Query()`` (with an ``alias`` where the name is a word of Python), services (``Provided``), and
``Request``. It returns a model, a msgspec struct, or a ``Response``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.params import Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from app.api.limits import MAX_BODY_BYTES
from app.api.problems import Part, problem_response, problems
from app.api.services import PROVIDED
from app.errors import FieldPath, Invalid, ShortlistError, TooLarge, shown
from app.services.bounded.long_work import LongWork
from app.services.bounded.yielding import drained, one_by_one, yield_to_others
from shortlist.errors import InvalidArgument

JSON = "application/json"
# Up to this many bytes a body is parsed on the event loop, which takes a few milliseconds at most.
LARGE = 2**16
# Bodies of up to this many bytes are not kept waiting by larger ones.
VERY_LARGE = 2**21
# Lists of up to this many items are encoded in one go.
FEW = 16
SENT_AT_ONCE = 2**17
DIGITS = 18  # of a content-length; more digits could take Python long to read
_readers = LongWork(threads=2, waiting=256, name="large-bodies")
_reader = LongWork(threads=1, waiting=64, name="very-large-bodies")
_encode = msgspec.json.Encoder().encode

M = TypeVar("M", bound="StrictModel")


class StrictModel(BaseModel):
    """Base of all request bodies.

    ``max_bytes``   a larger body is refused before it is read
    ``in_pieces``   parses a body of more than ``LARGE`` bytes, in a thread; see ``large_json``. Every model
                    has it that allows bodies so large.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    max_bytes: ClassVar[int] = MAX_BODY_BYTES
    in_pieces: ClassVar[Callable[[bytes], Any] | None] = None


def reply(result: Any, status: int = 200) -> Response:
    """A JSON response."""
    content = (
        result.__pydantic_serializer__.to_json(result) if isinstance(result, BaseModel) else _encode(result)
    )
    return Response(content, status, media_type=JSON)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An item of a list that is JSON already, in pieces."""

    pieces: Sequence[bytes]


async def reply_with(name: str, items: Iterable[Any], **others: Any) -> Response:
    """A JSON response of a list that may be long, under its name, and ``others``.

    The list is encoded, and sent, a piece at a time: other requests are answered meanwhile. Items may be
    made on the way.
    """
    if isinstance(items, Sequence) and len(items) <= FEW and not any(map(_is_encoded, items)):
        return reply({name: items, **others})
    pieces, piece, separator = list[bytes](), bytearray(b'{"' + name.encode() + b'":['), b""
    async for item in one_by_one(items):
        piece += separator
        separator = b","
        if isinstance(item, Encoded):
            pieces += (bytes(piece), *item.pieces)
            piece.clear()
            continue
        piece += _encode(item)
        if len(piece) > SENT_AT_ONCE:
            pieces.append(bytes(piece))
            piece.clear()
    rest = _encode(others)[1:]
    piece += b"]" + (b"," if others else b"") + rest
    return _InPieces([*pieces, bytes(piece)])


def _is_encoded(item: Any) -> bool:
    return isinstance(item, Encoded)


class _InPieces(Response):
    """A JSON response that is sent in pieces, of which the client sees nothing."""

    def __init__(self, pieces: list[bytes]) -> None:
        length = str(sum(map(len, pieces)))
        super().__init__(None, 200, {"content-length": length}, JSON)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in drained(self._pieces):  # to give back hundreds of megabytes at the end takes long
            await yield_to_others()
            more = bool(self._pieces)
            await send({"type": "http.response.body", "body": piece, "more_body": more})


def invalid(error: ValidationError, where: FieldPath = (), *, first: int = 0) -> ShortlistError:
    """An error that names every field that is wrong, and repeats nothing of what was sent.

    TooLarge for a list of the body that has too many items, else Invalid. ``where`` is the path of what was
    validated; of a part of a list, ``first`` is the place of the part's first item.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)
    for item in found:
        if item["type"] == "too_long" and len(item["loc"]) == 1 and not where:
            return TooLarge(item["msg"].removeprefix("Value error, "), path=item["loc"])
    return Invalid.many(
        [
            ((*where, *public(item["loc"], first)), item["msg"].removeprefix("Value error, "))
            for item in found[:20]
        ]
    )


def public(loc: tuple[int | str, ...], first: int = 0) -> FieldPath:
    """An unknown field is named as it was sent, if it looks like a name; anything else is not repeated."""
    named = tuple(part if isinstance(part, int) else shown(part) for part in loc)
    return (first + named[0], *named[1:]) if named and isinstance(named[0], int) else named


class JsonRoute(Route):
    """The route class of all endpoints: see the module."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._documented = path, endpoint, options
        self._status: int = options["status_code"] or 200
        super().__init__(
            path, endpoint, name=options.get("name"), include_in_schema=options["include_in_schema"]
        )
        self.methods = set(options["methods"] or ["GET"])
        parameters = Parameters.of(endpoint, set(self.param_convertors))
        handle = self._handler(parameters)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            response = await handle(Request(scope, receive))
            await response(scope, receive, send)

        self.max_bytes = None if parameters.body is None else parameters.body[1].max_bytes
        self.app = answer  # without the exit stacks that FastAPI's own dependencies would need

    def documented(self) -> APIRoute:
        """The route as FastAPI knows it, with the problems that follow from what it takes.

        Made when it is asked for: serving does without, and a start would take a tenth of a second longer.
        """
        path, endpoint, options = self._documented
        extra = options["openapi_extra"] or {}
        if self.max_bytes is not None:
            extra = {"requestBody": {"description": f"At most {self.max_bytes:,} bytes."}}
        can = {
            404: "{" in path,
            413: "requestBody" in extra,
            422: path.startswith("/v1/"),
            503: path not in {"/", "/healthz"},
        }
        responses = problems(*(status for status in can if can[status])) | (options["responses"] or {})
        return APIRoute(path, endpoint, **options | {"openapi_extra": extra, "responses": responses})

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        if match is not Match.NONE:
            found["route"] = self
        return match, found

    def _handler(self, parameters: Parameters) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint, status = self.endpoint, self._status
        queries, readers, body = parameters.queries, parameters.readers, parameters.body
        # Health checks, scrapers and browsers may add query parameters of their own.
        strict = self.path.startswith("/v1/")

        async def handle(request: Request) -> Response:
            try:
                if strict and request.scope["query_string"]:
                    _check_query(request, queries)
                arguments = {name: read(request) for name, read in readers}
                if body is not None:
                    name, model = body
                    arguments[name] = await read_body(model, await body_of(request, model.max_bytes))
                result = await endpoint(**arguments)
            except (ShortlistError, InvalidArgument) as error:
                return problem_response(error, request.method)
            return result if isinstance(result, Response) else reply(result, status)

        return handle


def json_router(*, tags: list[str | Enum], prefix: str = "") -> APIRouter:
    """A router whose routes are ``JsonRoute``."""
    kind: Any = JsonRoute  # FastAPI's type is narrower than its use of it
    return APIRouter(prefix=prefix, tags=tags, route_class=kind)


Reader = Callable[[Request], Any]


@dataclass(frozen=True, slots=True)
class Parameters:
    """What an endpoint takes: ``readers`` give all but the body, ``body`` is its name and its model."""

    queries: frozenset[str]
    readers: Sequence[tuple[str, Reader]]
    body: tuple[str, type[StrictModel]] | None

    @classmethod
    def of(cls, endpoint: Callable[..., Any], path_names: Container[str]) -> Parameters:
        hints = get_type_hints(endpoint, include_extras=True)
        queries: set[str] = set()
        readers: list[tuple[str, Reader]] = []
        body: tuple[str, type[StrictModel]] | None = None
        for name, parameter in inspect.signature(endpoint).parameters.items():
            hint = hints[name]
            marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
            query = next((mark for mark in marks if isinstance(mark, Query)), None)
            if hint is Request:
                readers.append((name, _request))
            elif PROVIDED in marks:
                readers.append((name, _service_reader(name)))
            elif name in path_names:
                readers.append((name, _text_reader(Part.PATH, name, hint, None)))
            elif query is not None:
                shown = query.alias or name  # "from" is no name in Python
                readers.append((name, _text_reader(Part.QUERY, shown, hint, parameter.default)))
                queries.add(shown)
            else:
                body = (name, hint)
        return cls(frozenset(queries), readers, body)


def _check_query(request: Request, known: Container[str]) -> None:
    """Raise Invalid for a query parameter that the endpoint does not have, or that is given twice."""
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen or name not in known:
            raise Invalid("a query parameter must be known, and given once", path=public((Part.QUERY, name)))
        seen.add(name)


def _request(request: Request) -> Request:
    return request


def _service_reader(name: str) -> Reader:
    def read(request: Request) -> Any:
        return getattr(request.scope["app"].service, name)

    return read


def _text_reader(place: Literal[Part.PATH, Part.QUERY], name: str, hint: Any, default: Any) -> Reader:
    """Of a parameter that is text in the request."""
    adapter: TypeAdapter[Any] = TypeAdapter(hint)

    def read(request: Request) -> Any:
        text = (request.path_params if place is Part.PATH else request.query_params).get(name)
        if text is None:
            return default
        try:
            return adapter.validate_strings(text)
        except ValidationError as error:
            raise invalid(error, (place, name)) from None

    return read


async def body_of(request: Request, most: int | None = None) -> bytes:
    """A body of at most ``most`` bytes, and of what the settings allow.

    Raises TooLarge: by its Content-Length where it has one, else while it is read.
    """
    allowed = request.scope["app"].service.settings.max_body_mb << 20
    most = allowed if most is None else min(most, allowed)
    length = next((value for name, value in request.scope["headers"] if name == b"content-length"), b"")
    announced = int(length[:DIGITS]) if length.isdigit() else 0
    pieces, size, more = list[bytes](), 0, announced <= most
    while more and size <= most:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
    if max(announced, size) > most:
        raise TooLarge(f"the body must not be larger than {most:,} bytes", path=())
    return b"".join(pieces)


async def read_body(model: type[M], data: bytes) -> M:
    """The body as a model. Raises Invalid, TooLarge, Unavailable (too many large ones at once)."""
    if model.in_pieces is None or len(data) <= LARGE:
        return whole(model, data)
    threads = _readers if len(data) <= VERY_LARGE else _reader
    found: M = await threads.run(partial(model.in_pieces, data))
    return found


def whole(model: type[M], data: bytes) -> M:
    """The body as a model, parsed at once in this thread. Raises Invalid, TooLarge."""
    try:
        found: M = model.__pydantic_validator__.validate_json(data)
    except ValidationError as error:
        raise invalid(error) from None
    return found
