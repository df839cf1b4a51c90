"""The route class of every JSON endpoint: strict in what it reads, cheap on the way.

An endpoint asks for a service by a parameter such as ``bandits: Provided[Bandits]``: the attribute of that
name of the application's ``service``. ``JsonRoute`` fills it in; FastAPI sees nothing to document there.

Endpoints are written as FastAPI endpoints, and FastAPI documents them in /openapi.json from their signature.
At request time this class takes over: the body is parsed and validated in one step from its bytes (pydantic,
strict), so NaN, Infinity, numbers beyond float64, lone surrogates, broken UTF-8 and deep nesting are errors
with the name of a field, and nothing is coerced. For the gain see docs/decisions/0003-strict-json-routes.md.

An endpoint takes: parameters named in its path, at most one pydantic model as body, query parameters marked
with ``Query()`` (with an ``alias`` where the name is a word of Python), services (``Provided``), and
``Request``. It returns a model, a msgspec struct, or a ``Response``.
"""

from __future__ import annotations

import codecs
import inspect
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from fastapi.params import Query
from fastapi.routing import APIRoute
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, ErrorDetails
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import Part, problem_response, problems
from app.api.request_limits import MAX_SMALL_BODY_BYTES, MAX_VALUES
from app.platform.deadlines import yield_to_others
from app.platform.errors import FieldPath, Invalid, ShortlistError, TooLarge, UnsupportedEncoding, shown
from shortlist.errors import InvalidArgument

T = TypeVar("T")
JSON = "application/json"
_JSON_HEADER = (b"content-type", JSON.encode())
# Up to this many bytes a body is parsed in one step, which takes a few milliseconds at most.
LARGE_BODY_BYTES = 2**16
# Of a larger one: of a list, or of an item of the long list; of an object.
MAX_PART_BYTES, MAX_OBJECT_BYTES = 2**21, 2**18
DIGITS = 18  # of a content-length; more digits could take Python long to read
_KIND = "\0"  # begins the words of ``InTurn``, and the name of no field
_WRONG_KINDS = frozenset({"string_type", "model_type"})
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_SMALL = re.compile(r"\b0\.0{6,}\d+")
_CLAUSE_END = re.compile(r"[.;](?: |$)")
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
M = TypeVar("M", bound="StrictModel")
SEVERAL_CALLS = "send it in several calls"
NOTHING_GONE: Mapping[str, str] = MappingProxyType({})
Reader = Callable[[Request], Any]

PROVIDED = Depends(lambda: None)  # never called: ``JsonRoute`` fills these in
Provided = Annotated[T, PROVIDED]


class StrictModel(BaseModel):
    """Base of all request bodies.

    ``max_bytes``   a larger body is refused before it is read
    ``instead``     the alternative named in the detail of that error
    ``long_list``   the field whose items are parsed one by one in a body of more than ``LARGE_BODY_BYTES``
                    bytes, while other requests are answered
    ``alone``       a boolean field: where true, a wrong item of the long list hinders no other, and its error
                    stands in its place. ``right_item`` is then a right item
    ``absent``      read in place of a missing body
    ``max_object_bytes``    of a field that is an object, in such a body
    ``gone``        fields of earlier versions, each with a sentence on its replacement; one of an object, or
                    of the objects of a list, as ``reward.limit``
    ``undivided``   a list which cannot be spread over calls: if too long, the field is wrong
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    max_bytes: ClassVar[int] = MAX_SMALL_BODY_BYTES
    instead: ClassVar[str] = ""
    long_list: ClassVar[str | None] = None
    alone: ClassVar[str | None] = None
    right_item: ClassVar[bytes] = b"{}"
    absent: ClassVar[bytes] = b""
    max_object_bytes: ClassVar[int] = MAX_OBJECT_BYTES
    gone: ClassVar[Mapping[str, str]] = NOTHING_GONE
    undivided: ClassVar[str | None] = None


@dataclass(frozen=True)
class InTurn:
    """Marks a union of an object and a string: a value is of the first possible kind. A third of the time of
    pydantic's own way; and the names of kinds are no parts of paths.

    ``kinds``: all of them in words, for the message about a value of another kind.
    """

    kinds: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        kinds = [(kind, _KIND + self.kinds) for kind in schema["choices"]]
        return {**schema, "mode": "left_to_right", "choices": kinds}


def numeral(pattern: str, message: str) -> BeforeValidator:
    """Query parameters are text; what Python would also read as a number (1_0, +1) is none here."""

    def check(text: object) -> object:
        if isinstance(text, str) and not re.fullmatch(pattern, text):
            raise ValueError(message)
        return text

    return BeforeValidator(check)


def encoded(result: Any) -> bytes:
    """A model, or what msgspec encodes, as JSON."""
    if isinstance(result, BaseModel):
        return result.__pydantic_serializer__.to_json(result)
    return _encode(result)


class JsonResponse(Response):
    """An answer in JSON. Its headers are those that the framework would make of the same, in fewer steps."""

    media_type = JSON

    def __init__(self, body: bytes, status: int) -> None:
        self.status_code, self.body, self.background = status, body, None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), _JSON_HEADER]


def reply(result: Any, status: int = 200) -> Response:
    """A JSON response."""
    return JsonResponse(encoded(result), status)


def invalid(
    error: ValidationError,
    where: FieldPath = (),
    gone: Mapping[str, str] = NOTHING_GONE,
    undivided: str | None = None,
) -> ShortlistError:
    """An error with every wrong field, and without any sent value.

    TooLarge for a too long list of the body, else Invalid. ``where``: the path of the validated value.
    ``gone``, ``undivided``: see ``StrictModel``.
    """
    result = _of_kinds_sent(error.errors(include_url=False, include_input=False, include_context=False))
    for item in result:
        # A too long list is a too large request: clients divide the list, rather than mend a field.
        if item["type"] == "too_long" and len(item["loc"]) == 1 and not where and item["loc"][0] != undivided:
            return TooLarge(item["msg"].removeprefix("Value error, "), path=item["loc"])
        if item["type"] == "extra_forbidden":
            item["msg"] = gone.get(
                ".".join(part for part in item["loc"] if isinstance(part, str)), item["msg"]
            )
    return Invalid.many([((*where, *public(item["loc"])), _readable(item["msg"])) for item in result[:20]])


def _of_kinds_sent(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """The errors without those about other kinds than the sent one."""
    sent, of_others = list[ErrorDetails](), dict[tuple[int | str, ...], ErrorDetails]()
    places = set[tuple[int | str, ...]]()
    for item in errors:
        loc = item["loc"]
        kinds = [at for at, part in enumerate(loc) if isinstance(part, str) and part.startswith(_KIND)]
        if kinds and kinds[-1] == len(loc) - 1 and item["type"] in _WRONG_KINDS:
            item["msg"] = f"must be {str(loc[-1]).removeprefix(_KIND)}"
            of_others.setdefault(loc[:-1], item)
            continue
        sent.append(item)
        places.update(loc[:at] for at in kinds)
    return [*sent, *(item for location, item in of_others.items() if location not in places)]


def _readable(message: str) -> str:
    """The message of pydantic, which writes a bound of 1e-100 with all of its zeros."""
    return _SMALL.sub(lambda number: f"{float(number[0]):g}", message.removeprefix("Value error, "))


def public(loc: tuple[int | str, ...]) -> FieldPath:
    """The path of a field. Unknown names are repeated only if they look like names."""
    return tuple(
        part if isinstance(part, int) else shown(part)
        for part in loc
        if isinstance(part, int) or not part.startswith(_KIND)
    )


class JsonRoute(Route):
    """The route class of all endpoints: see the module. ``refuse`` makes the answer of an error."""

    refuse: Callable[[ShortlistError | InvalidArgument, str], Response] = staticmethod(problem_response)

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._documented = path, endpoint, options
        self._status: int = options["status_code"] or 200
        super().__init__(
            path, endpoint, name=options.get("name"), include_in_schema=options["include_in_schema"]
        )
        self.methods = set(options["methods"] or ["GET"])
        if "GET" in self.methods:
            self.methods.add("HEAD")  # the server leaves out the body
        parameters = Parameters.of(endpoint, set(self.param_convertors))
        self.max_bytes = None if parameters.body is None else parameters.body[1].max_bytes
        self.app = self._application(parameters)  # without the exit stacks of FastAPI's own dependencies

    def documented(self) -> APIRoute:
        """The route as FastAPI knows it, with the problems possible for its parameters.

        Made on demand: serving does without, and a start would take a tenth of a second longer.
        """
        path, endpoint, options = self._documented
        extra = options["openapi_extra"] or {}
        if self.max_bytes is not None:
            extra = {"requestBody": {"description": f"At most {self.max_bytes:,} bytes."}}
        can = {
            404: "{" in path,
            413: "requestBody" in extra,
            415: "requestBody" in extra,
            422: path.startswith("/v1/"),
            503: path not in {"/", "/healthz"},
        }
        responses = problems(*(status for status in can if can[status])) | (options["responses"] or {})
        text = " ".join((endpoint.__doc__ or "").split()).replace("``", "")
        told = {"summary": _CLAUSE_END.split(text)[0], "openapi_extra": extra, "responses": responses}
        return APIRoute(path, endpoint, **options | told)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, result = super().matches(scope)
        if match is not Match.NONE:
            # The gateway counts by route: by path every name of a bandit would be a series.
            result["route"] = self
        return match, result

    def _application(self, parameters: Parameters) -> ASGIApp:
        endpoint, status = self.endpoint, self._status
        queries, readers, body = parameters.queries, parameters.readers, parameters.body
        services = parameters.services
        # Health checks, scrapers and browsers may add query parameters of their own.
        strict = self.path.startswith("/v1/")

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive)
            try:
                if strict and scope["query_string"]:
                    _check_query(request, queries)
                service = scope["app"].service
                arguments = {name: getattr(service, name) for name in services}
                for name, read in readers:
                    arguments[name] = read(request)
                if body is not None:
                    name, model = body
                    arguments[name] = await read_body(model, await body_of(request, model) or model.absent)
                if strict:
                    await yield_to_others()  # many may have come at once, and each take some milliseconds
                response = await endpoint(**arguments)
            except (ShortlistError, InvalidArgument) as error:
                response = self.refuse(error, scope["method"])
            if not isinstance(response, Response):
                response = Response(status_code=204) if status == 204 else reply(response, status)
            await response(scope, receive, send)

        return answer


def json_router(
    *,
    tags: list[str | Enum],
    prefix: str = "",
    refuse: Callable[[ShortlistError | InvalidArgument, str], Response] = problem_response,
) -> APIRouter:
    """A router whose routes are ``JsonRoute``. ``refuse(error, method)``: the answer of an error."""
    kind: Any = type("JsonRoute", (JsonRoute,), {"refuse": staticmethod(refuse)})
    return APIRouter(prefix=prefix, tags=tags, route_class=kind)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of an endpoint. ``services``: their names; ``readers`` give the rest, but for the body;
    ``body``: its name and its model.
    """

    queries: frozenset[str]
    services: Sequence[str]
    readers: Sequence[tuple[str, Reader]]
    body: tuple[str, type[StrictModel]] | None

    @classmethod
    def of(cls, endpoint: Callable[..., Any], path_names: Container[str]) -> Parameters:
        hints = get_type_hints(endpoint, include_extras=True)
        queries, services = set[str](), list[str]()
        readers: list[tuple[str, Reader]] = []
        body: tuple[str, type[StrictModel]] | None = None
        for name, parameter in inspect.signature(endpoint).parameters.items():
            hint = hints[name]
            marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
            query = next((mark for mark in marks if isinstance(mark, Query)), None)
            if hint is Request:
                readers.append((name, lambda request: request))
            elif PROVIDED in marks:
                services.append(name)
            elif name in path_names:
                readers.append((name, _text_reader(Part.PATH, name, hint, None)))
            elif query is not None:
                shown = query.alias or name  # "from" is no name in Python
                readers.append((name, _text_reader(Part.QUERY, shown, hint, parameter.default)))
                queries.add(shown)
            else:
                body = (name, hint)
        return cls(frozenset(queries), services, readers, body)


def _check_query(request: Request, known_names: Container[str]) -> None:
    """Raise Invalid for an unknown query parameter, or one given twice."""
    names_so_far: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in names_so_far or name not in known_names:
            raise Invalid("a query parameter must be known, and given once", path=public((Part.QUERY, name)))
        names_so_far.add(name)


def _text_reader(part: Literal[Part.PATH, Part.QUERY], name: str, hint: Any, default: Any) -> Reader:
    """A reader of a parameter which is text in the request."""
    if part is Part.PATH and hint is str:
        return lambda request: request.path_params[name]
    adapter: TypeAdapter[Any] = TypeAdapter(hint)

    def read(request: Request) -> Any:
        text = (request.path_params if part is Part.PATH else request.query_params).get(name)
        if text is None:
            return default
        try:
            return adapter.validate_strings(text)
        except ValidationError as error:
            raise invalid(error, (part, name)) from None

    return read


def check_encoding(request: Request) -> None:
    """Raise UnsupportedEncoding for a compressed body: its limits could not be told before it is unpacked."""
    for name, value in request.scope["headers"]:
        if name == b"content-encoding" and value.lower() not in {b"", b"identity"}:
            raise UnsupportedEncoding("Content-Encoding must be identity: send the body uncompressed")


def content_type(request: Request) -> str:
    """The media type of a body, in small letters, without parameters; empty where it has none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def body_of(request: Request, model: type[StrictModel] | None = None) -> bytes:
    """The body, within the bounds of its model and the settings.

    Raises TooLarge, by its Content-Length where it has one, else while it is read; UnsupportedEncoding.
    """
    check_encoding(request)
    most = request.scope["app"].service.settings.max_body_mb << 20
    if model is not None:
        most = min(most, model.max_bytes)
    announced = 0
    for name, value in request.scope["headers"]:
        if name == b"content-length" and value.isdigit():
            announced = int(value[:DIGITS])
            break
    pieces: list[bytes] = []
    size, more = 0, announced <= most
    while more and size <= most:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
    if max(announced, size) > most:
        instead = f": {model.instead}" if model is not None and model.instead else ""
        raise TooLarge(f"the body must not be larger than {most:,} bytes{instead}", path=())
    body = b"".join(pieces)
    return body if model is None else body.removeprefix(codecs.BOM_UTF8)  # as RFC 8259 allows


async def read_body(model: type[M], data: bytes, where: FieldPath = ()) -> M:
    """The body as a model. Raises Invalid, TooLarge.

    A large one is looked at first, and refused for its first unknown or too long field; then the
    items of its long list are parsed one by one. So no step takes long, whatever the body is. A small one is
    read so too, if it is wrong and its items are answered by themselves.
    """
    refusal: Invalid | None = None
    if len(data) <= LARGE_BODY_BYTES:
        try:
            return validate_whole(model, data, where)
        except Invalid as error:
            if model.alone is None:
                raise
            refusal = error
    if data.count(b",") > MAX_VALUES:
        raise TooLarge(f"must have at most {MAX_VALUES:,} values", path=where)
    try:
        texts_by_name = _fields(model, data, where)
    except Invalid as error:
        raise refusal or error from None
    is_alone = model.alone is not None and bytes(texts_by_name.get(model.alone, b"")) == b"true"
    if refusal is not None and not is_alone:
        raise refusal
    name = model.long_list
    if name is None or bytes(memoryview(texts_by_name.get(name, b"null"))[:1]) == b"n":  # or null
        # of a field that is given twice the last
        return validate_whole(model, msgspec.json.encode(texts_by_name), where)
    kind = _kind_of_item(model, name)
    texts = _check_length(model, name, texts_by_name[name], where)
    items = []
    for position, text in enumerate(texts):
        await yield_to_others()
        try:
            items.append(await _item(kind, bytes(text), (*where, name, position)))
        except ShortlistError as error:
            if not is_alone:
                raise
            items.append(error.with_traceback(None))
    first = [msgspec.Raw(model.right_item)] if is_alone and texts else texts[:1]
    head = validate_whole(model, msgspec.json.encode({**texts_by_name, name: first}), where)
    return head.model_copy(update={name: items})


def _fields(model: type[StrictModel], data: bytes, where: FieldPath) -> dict[str, msgspec.Raw]:
    """The fields of an object, unparsed. Raises Invalid, TooLarge."""
    try:
        outline = _outline(model).decode(data)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.fullmatch(str(error))
        if unknown is None:
            raise Invalid("Input should be an object", path=where) from None
        message = model.gone.get(unknown[1], "Extra inputs are not permitted")
        raise Invalid(message, path=(*where, *public((unknown[1],)))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid("Invalid JSON", path=where) from None
    texts_by_name = {name: text for name in model.model_fields if (text := getattr(outline, name))}
    for name, text in texts_by_name.items():
        first, is_long = bytes(memoryview(text)[:1]), name == model.long_list
        if is_long and first not in b"[n":
            raise Invalid("Input should be a valid list", path=(*where, name))
        size = len(memoryview(text))
        if first == b"{" and size > model.max_object_bytes:
            raise Invalid(f"must not be longer than {model.max_object_bytes:,} bytes", path=(*where, name))
        if first == b"[" and size > MAX_PART_BYTES and not is_long:
            raise TooLarge(f"must not be longer than {MAX_PART_BYTES:,} bytes", path=(*where, name))
        if first == b"[" and size > LARGE_BODY_BYTES and not is_long:
            _check_length(model, name, text, where)
    return texts_by_name


async def _item(kind: TypeAdapter[Any] | type[StrictModel], text: bytes, where: FieldPath) -> Any:
    if len(text) > MAX_PART_BYTES:
        raise TooLarge(f"an item must not be longer than {MAX_PART_BYTES:,} bytes", path=where)
    if isinstance(kind, type):
        return await read_body(kind, text, where)
    try:
        return kind.validator.validate_json(text)
    except ValidationError as error:
        raise invalid(error, where) from None


@cache
def _outline(model: type[StrictModel]) -> msgspec.json.Decoder[Any]:
    """Reads the fields of a model, all of them optional, their values unparsed."""
    fields: list[Any] = [(name, msgspec.Raw, msgspec.Raw()) for name in model.model_fields]
    return msgspec.json.Decoder(
        msgspec.defstruct(f"{model.__name__}Outline", fields, forbid_unknown_fields=True, gc=False)
    )


def _check_length(
    model: type[StrictModel], name: str, text: msgspec.Raw, where: FieldPath
) -> list[msgspec.Raw]:
    """The items of a list, unparsed; Invalid or TooLarge for more than the field may have.

    pydantic makes an error of each wrong item before it counts: 200,000 of them took 0.26 s.
    """
    texts, most = _items(text), _most_items(model, name)
    if most is not None and len(texts) > most:
        error_of_length = Invalid if where or name == model.undivided else TooLarge
        raise error_of_length(f"must have at most {most:,} items", path=(*where, name))
    return texts


@cache
def _most_items(model: type[StrictModel], name: str) -> int | None:
    """The bound on the number of items of a list; None where there is none."""
    marks = (getattr(mark, "max_length", None) for mark in model.model_fields[name].metadata)
    return next((most for most in marks if most is not None), None)


@cache
def _kind_of_item(model: type[StrictModel], name: str) -> TypeAdapter[Any] | type[StrictModel]:
    """The reader of an item of a list."""
    item = get_args(model.model_fields[name].annotation)[0]
    if get_origin(item) is list:  # it may be null too
        (item,) = get_args(item)
    if isinstance(item, type) and issubclass(item, StrictModel):
        return item
    return TypeAdapter(item, config=ConfigDict(strict=True, allow_inf_nan=False))


def validate_whole(model: type[M], data: bytes, where: FieldPath = ()) -> M:
    """The body as a model, parsed in one step. Raises Invalid, TooLarge."""
    try:
        result: M = model.__pydantic_validator__.validate_json(data)
    except ValidationError as error:
        raise invalid(error, where, model.gone, model.undivided) from None
    return result
