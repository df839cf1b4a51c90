"""Large bodies, read in a thread and a piece at a time: other requests are answered meanwhile.

To parse a large body in a thread is not enough: a parser holds the interpreter's lock until it is done. So
a list is cut into pieces before it is parsed, and the lock is free in between. Pydantic validates each piece,
so the same bodies are allowed as among small ones, and errors name fields in the same way; of a list only the
first item that is wrong is named.

Where to cut? After a guess: at the end of an object (or of a row) near the size wanted. The guess may be
wrong, within a string say. But JSON is read from left to right: if the piece so far is a list, it ends where
an item ends, and if it is not, an earlier end is tried, and at last the piece is the first item alone.

msgspec looks at each piece first, at its outline: the fields of its objects, their values unparsed. It stops
at the first field that is unknown, so that a body of nothing else costs nothing. Lists of numbers are taken
out of a body before that, for to look through megabytes takes long too.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, get_args, get_origin

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FailFast, TypeAdapter, ValidationError, conlist

from app.api.limits import MAX_LINE_BYTES
from app.api.strict_json import StrictModel, invalid, public, whole
from app.errors import FieldPath, Invalid, ShortlistError, TooLarge

PIECE = 2**16
GUESSES = 8
MOST_PARSED_AT_ONCE = 2**20
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
FEW_LISTS = 1_000  # in a body, besides its rows
_EMPTY = re.compile(rb"\[\s*\]")
_CLOSINGS = re.compile(rb"\](?:\s*\])*")
_COMMA = re.compile(rb"\s*,\s*")
_CLOSING = re.compile(rb"\]\s*\}\s*\Z")
_CLOSING_BYTES = 1_024
_LIST_OPENS = re.compile(rb'"\w+"\s*:\s*\[')
# A list of numbers, or of rows, is over before another field or the end of the body, and nowhere else.
_LIST_ENDS = re.compile(rb'\](?=\s*\}|\s*,\s*"\w+"\s*:)')
_SCAN = json.JSONDecoder().raw_decode  # it says where a value ends
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\[(\d+)\]`)?", re.DOTALL)
_NO_OBJECT = re.compile(r"Expected `object`, got .* - at `\$\[(\d+)\]`")
_AT = re.compile(r"\(byte (\d+)\)")
_FORBIDDEN = "Extra inputs are not permitted"
Numbers = NDArray[np.float64]
Raw = msgspec.Raw


@dataclass(frozen=True, slots=True)
class MaxBytes:
    """Marks a field whose JSON must not be longer than that; looked at before a large text is parsed."""

    most: int
    message: str


def check_outline(model: type[BaseModel], text: bytes, where: FieldPath) -> None:
    """Raise Invalid or TooLarge for what need not be parsed to be refused: fields that are unknown or too
    long, lists with too many items. What is no JSON passes.
    """
    try:
        outline = _outline(model).decode(text)
    except msgspec.ValidationError as error:
        raise _refusal(error, where) from None
    except (msgspec.DecodeError, RecursionError):
        return
    _check_lengths(model, outline, where)


class _Row(msgspec.Struct, array_like=True, gc=False):
    """Any JSON array; what it holds is passed over."""


@dataclass(frozen=True)
class Whole:
    """How to read a body of one large field at most: all at once, after a look at its outline."""

    model: type[StrictModel]

    def __call__(self, data: bytes) -> StrictModel:
        """Return the model. Raises Invalid, TooLarge."""
        check_outline(self.model, data, ())
        return whole(self.model, data)


@dataclass(frozen=True)
class Pieces:
    """How to read a body that holds ``rows``, a field of rows of numbers, and fields of ``numbers``.

    In the model that is returned these are arrays of float64, where null is NaN; rows that differ in length
    remain lists. ``number`` is the type of a number; the limits are those of the model. ``most_strings``: a
    body has no more strings than that, names of fields included.
    """

    model: type[StrictModel]
    rows: str
    numbers: Sequence[str]
    number: Any
    most_rows: int
    most_numbers: int
    most_strings: int = 1_000

    def __call__(self, data: bytes) -> StrictModel:
        """Return the model. Raises Invalid, TooLarge."""
        if _count(data, b'"') > 2 * self.most_strings:
            raise TooLarge("too many strings, or fields", path=())
        if _count(data, b"[") > self.most_rows + FEW_LISTS:
            raise TooLarge(f"must have at most {self.most_rows} items", path=(self.rows,))
        given = self._fields(data)
        rows = given.pop(self.rows, None)
        long = [name for name, text in given.items() if len(text) > PIECE]
        for name in long:
            if name not in self.numbers:
                raise Invalid("must not be so long", path=(name,))
        # All but numbers; a row, or a number, stands for all of them.
        few: dict[str, Any] = {name: Raw(text) for name, text in given.items()}
        few |= {name: [0.0] for name in long}
        if rows is not None:
            few[self.rows] = None if rows[:1] != b"[" else [] if _EMPTY.fullmatch(rows) else [[0.0]]
        head = whole(self.model, msgspec.json.encode(few))
        found: dict[str, Any] = {name: self._long(given[name], (name,)) for name in long}
        return head.model_copy(update={**found, self.rows: self._matrix(rows or b"")})

    def _fields(self, data: bytes) -> dict[str, bytes]:
        """The fields that are given, unparsed. Raises Invalid, TooLarge."""
        short, lists = _without_lists(data)
        if len(short) > MOST_PARSED_AT_ONCE:
            raise Invalid("must be an object of numbers, and of little else", path=())
        try:
            outline = _outline(self.model).decode(short)
        except msgspec.ValidationError as error:
            raise _refusal(error, ()) from None
        except (msgspec.DecodeError, RecursionError):
            raise _no_json() from None
        given = {name: bytes(getattr(outline, name)) for name in self.model.model_fields}
        found = {name: lists.pop(text, text) for name, text in given.items() if text}
        if lists:
            raise Invalid("a list must be that of a field, and a field be given once", path=())
        return found

    def _matrix(self, rows: bytes) -> Numbers | list[list[Any]]:
        row = conlist(self.number, min_length=1, max_length=self.most_numbers)
        some = _list_of(row, _STRICT)
        where: FieldPath = (self.rows,)
        parts, place = list[Any](), 0
        cut = _CutRows(b"]", msgspec.json.Decoder(list[_Row]).decode, most_bytes=len(rows))
        for text, items in cut.lists(rows, 1, len(rows) - 1, where):
            count = 1 if items is _LONG_ROW else len(items)
            if place + count > self.most_rows:
                raise TooLarge(f"must have at most {self.most_rows} items", path=where)
            if items is _LONG_ROW:
                parts.append(self._long(text, (*where, place))[None])
            else:
                parts.append(_array(_checked(some, text, where, place)))
            place += count
        widths = {part.shape[1] if isinstance(part, np.ndarray) else None for part in parts}
        if len(widths) == 1 and None not in widths:
            return np.concatenate(parts)
        return [
            values for part in parts for values in (part.tolist() if isinstance(part, np.ndarray) else part)
        ]

    def _long(self, text: bytes, where: FieldPath) -> Numbers:
        """The numbers of one long list, cut at commas: a list within it is an error in its piece."""
        some = _list_of(self.number, _STRICT)
        text = text.strip()
        if not text.startswith(b"["):
            raise Invalid("Input should be a valid list", path=where)
        if not text.endswith(b"]"):
            raise _no_json()
        parts, count, start = list[Numbers](), 0, 1
        while start < len(text) - 1:
            end = text.find(b",", start + PIECE)
            end = len(text) - 1 if end < 0 else end
            parts.append(
                np.array(_checked(some, b"[" + text[start:end] + b"]", where, count), dtype=np.float64)
            )
            count += len(parts[-1])
            start = end + 1
            if count > self.most_numbers:
                message = f"must have at most {self.most_numbers} numbers"
                raise TooLarge(message, path=where) if len(where) == 1 else Invalid(message, path=where)
        if not count:
            raise Invalid("must have at least 1 number", path=where)
        return np.concatenate(parts)


@dataclass(frozen=True)
class Items:
    """How to read a body that holds ``items`` and nothing else: at most ``most`` of a ``kind``.

    ``kind`` is a model, or a type of strings. ``most_bytes`` bounds an item.
    """

    model: type[StrictModel]
    items: str
    kind: Any
    most: int
    most_bytes: int = MAX_LINE_BYTES

    def __call__(self, data: bytes) -> StrictModel:
        """Return the model. Raises Invalid, TooLarge."""
        where: FieldPath = (self.items,)
        opening, closing = self._opening.match(data), _closing(data)
        if opening is None or closing is None:
            return self._unlike(data)
        found = list[Any]()
        for text, items in self._cut.lists(data, opening.end(), closing, where):
            if len(found) + len(items) > self.most:
                raise TooLarge(f"must have at most {self.most} items", path=where)
            if self._is_object:
                for place, item in enumerate(items, len(found)):
                    _check_lengths(self.kind, item, (*where, place))
            found += _checked(self._some, text, where, len(found))
        if not found:
            return whole(self.model, data[: opening.end()] + b"]}")
        values: dict[str, Any] = {self.items: found}
        return self.model.model_construct(None, **values)

    def _unlike(self, data: bytes) -> StrictModel:
        """Read a body that does not begin, or end, as most do."""
        if len(data) > MOST_PARSED_AT_ONCE:
            raise Invalid(f'must be {{"{self.items}": [...]}} and nothing else', path=())
        return Whole(self.model)(data)

    @cached_property
    def _opening(self) -> re.Pattern[bytes]:
        return re.compile(rb'\s*\{\s*"' + self.items.encode() + rb'"\s*:\s*\[\s*')

    @cached_property
    def _is_object(self) -> bool:
        return isinstance(self.kind, type) and issubclass(self.kind, BaseModel)

    @cached_property
    def _some(self) -> TypeAdapter[Any]:
        return _list_of(self.kind)

    @cached_property
    def _cut(self) -> _Cut:
        if self._is_object:
            return _Cut(b"}", _outlines(self.kind).decode, self.most_bytes)
        return _Cut(b'"', msgspec.json.Decoder(list[str]).decode, self.most_bytes)


@dataclass(frozen=True)
class _Cut:
    """How to cut a list whose items end with ``end``, none of them of more than ``most_bytes``.

    ``decode`` reads a piece as msgspec does: ValidationError if an item cannot be one.
    """

    end: bytes
    decode: Callable[[bytes], list[Any]]
    most_bytes: int

    def lists(
        self, data: bytes, start: int, stop: int, where: FieldPath
    ) -> Iterator[tuple[bytes, list[Any]]]:
        """Yield lists as JSON, with their items, that make up the list between two places of ``data``."""
        first = 0
        while start < stop:
            text, items, end = self._next(data, start, stop, (where, first))
            yield text, items
            first += len(items) or 1
            if end == stop:
                return
            comma = _COMMA.match(data, end, stop)
            if comma is None:
                raise _no_json()
            start = comma.end()
        if first:
            raise _no_json()  # a comma at the end

    def _next(
        self, data: bytes, start: int, stop: int, at: tuple[FieldPath, int]
    ) -> tuple[bytes, list[Any], int]:
        where, first = at
        for end in self._ends(data, start, stop):
            text = b"[%b]" % data[start:end]
            try:
                return text, self.decode(text), end
            except msgspec.ValidationError as error:
                raise _refusal(error, where, first) from None
            except msgspec.DecodeError as error:
                if end == stop or not _ends_too_early(error, text):
                    raise _no_json() from None
            except RecursionError:
                raise _no_json() from None
        try:
            self.decode(b"[" + data[start : start + PIECE])
        except msgspec.ValidationError as error:
            raise _refusal(error, where, first) from None
        except (msgspec.DecodeError, RecursionError):
            pass
        if stop - start <= self.most_bytes:
            raise _no_json()
        message = f"an item must not be longer than {self.most_bytes:,} bytes"
        raise TooLarge(message, path=where)

    def _ends(self, data: bytes, start: int, stop: int) -> Iterator[int]:
        """Where the piece may end: before this many bytes if it can be, else after its first item."""
        if stop - start <= PIECE:
            yield stop
            return
        near = start + PIECE
        for _ in range(GUESSES):
            near = data.rfind(self.end, start, near)
            if near < 0:
                break
            if _COMMA.match(data, near + 1, stop):
                yield near + 1
        if (end := self._end_of_item(data, start, stop)) is not None:
            yield end

    def _end_of_item(self, data: bytes, start: int, stop: int) -> int | None:
        for size in (PIECE, self.most_bytes):
            text = data[start : min(stop, start + size)].decode("utf-8", "surrogateescape")
            try:
                _, end = _SCAN(text)
            except (ValueError, RecursionError):
                continue
            return start + len(text[:end].encode("utf-8", "surrogateescape"))
        return None


_LONG_ROW: list[Any] = []


class _CutRows(_Cut):
    """How to cut a list of rows of numbers. A row that is longer than a piece comes by itself, as it is, with
    ``_LONG_ROW`` for its items.
    """

    def _next(
        self, data: bytes, start: int, stop: int, at: tuple[FieldPath, int]
    ) -> tuple[bytes, list[Any], int]:
        if stop - start <= PIECE or data.find(b"]", start, start + PIECE) >= 0:
            return super()._next(data, start, stop, at)
        where, first = at
        if data[start : start + 1] != b"[":
            raise Invalid("Input should be a valid list", path=(*where, first))
        closing = data.find(b"]", start, stop)
        match = _CLOSINGS.match(data, closing, stop) if closing >= 0 else None
        end = stop if match is None else match.end()
        return data[start:end], _LONG_ROW, end


def _without_lists(data: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """The body with ``[number]`` in place of each list that a field has; and these lists, each by what stands
    in its place. No more than a piece is looked at in one go.
    """
    parts, lists, place, mark = list[bytes](), dict[bytes, bytes](), 0, secrets.randbits(62)
    while opening := _LIST_OPENS.search(data, place, place + PIECE):
        start = opening.end() - 1
        end = _end_of_list(data, start)
        if end is None:
            break
        name = b"[%d]" % (mark + len(lists))
        lists[name] = data[start:end]
        parts += data[place:start], name
        place = end
    parts.append(data[place:])
    return b"".join(parts), lists


def _end_of_list(data: bytes, start: int) -> int | None:
    """Where the list ends that begins there. None: nowhere, or too much space follows."""
    while start < len(data):
        if match := _LIST_ENDS.search(data, start, start + PIECE + _CLOSING_BYTES):
            return match.end()
        start += PIECE
    return None


def _count(data: bytes, byte: bytes) -> int:
    """How often the byte is there; others run in between."""
    return sum(data.count(byte, start, start + PIECE) for start in range(0, len(data), PIECE))


def _closing(data: bytes) -> int | None:
    """Where the list ends that ends a body."""
    start = max(0, len(data) - _CLOSING_BYTES)
    match = _CLOSING.search(data, start)
    return None if match is None else match.start()


@cache
def _outline_type(model: type[BaseModel]) -> type[msgspec.Struct]:
    """The fields of a model, all of them optional, their values unparsed."""
    fields: list[Any] = [(name, Raw, Raw()) for name in model.model_fields]
    return msgspec.defstruct(f"{model.__name__}Outline", fields, forbid_unknown_fields=True, gc=False)


@cache
def _outline(model: type[BaseModel]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_outline_type(model))


@cache
def _outlines(model: type[BaseModel]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[_outline_type(model)])  # type: ignore[misc]  # made at run time


@cache
def _bounded_lists(model: type[BaseModel]) -> dict[str, int]:
    """Lists of numbers, or of strings that have no comma, and how many items each may have."""
    found = {}
    for name, field in model.model_fields.items():
        (item,) = get_args(field.annotation) if get_origin(field.annotation) is list else (None,)
        most = next((mark.max_length for mark in field.metadata if hasattr(mark, "max_length")), None)
        kind, *marks = get_args(item) if get_origin(item) is Annotated else (item,)
        if most is not None and (kind is float or any(getattr(mark, "pattern", None) for mark in marks)):
            found[name] = most
    return found


@cache
def _bounded_texts(model: type[BaseModel]) -> dict[str, MaxBytes]:
    marks = {name: field.metadata for name, field in model.model_fields.items()}
    return {name: mark for name, found in marks.items() for mark in found if isinstance(mark, MaxBytes)}


def _check_lengths(model: type[BaseModel], outline: msgspec.Struct, where: FieldPath) -> None:
    """Raise for a list with too many items, without reading them: they are counted by their commas.

    Raise likewise for a field that is too long.
    """
    for name, bound in _bounded_texts(model).items():
        if len(memoryview(getattr(outline, name))) > bound.most:
            raise Invalid(bound.message, path=(*where, name))
    for name, most in _bounded_lists(model).items():
        text = memoryview(getattr(outline, name))
        if len(text) > PIECE and bytes(text).count(b",") >= most:
            message, place = f"List should have at most {most} items", (*where, name)
            raise TooLarge(message, path=place) if not where else Invalid(message, path=place)


def _refusal(error: msgspec.ValidationError, where: FieldPath, first: int = 0) -> ShortlistError:
    """What pydantic would say of an object with an unknown field, and of what is no object."""
    text = str(error)
    if (unknown := _UNKNOWN.fullmatch(text)) is not None:
        place = () if unknown[2] is None else (first + int(unknown[2]),)
        return Invalid(_FORBIDDEN, path=(*where, *place, *public((unknown[1],))))
    if (other := _NO_OBJECT.fullmatch(text)) is not None:
        return Invalid("Input should be an object", path=(*where, first + int(other[1])))
    place = (first + int(found[1]),) if (found := re.search(r"`\$\[(\d+)\]", text)) else ()
    return Invalid("Input is of the wrong type", path=(*where, *place))


def _ends_too_early(error: msgspec.DecodeError, text: bytes) -> bool:
    """Whether the text is JSON as far as it goes."""
    found = _AT.search(str(error))
    return found is None or int(found[1]) >= len(text) - 1


def _no_json() -> Invalid:
    return Invalid("Invalid JSON", path=())


def _list_of(kind: Any, config: ConfigDict | None = None) -> TypeAdapter[Any]:
    """Lists of a kind. Reading one ends at the first item that is wrong."""
    annotated: Any = Annotated
    return TypeAdapter(annotated[conlist(kind), FailFast()], config=config)


def _checked(kind: TypeAdapter[Any], text: bytes, where: FieldPath, first: int) -> Any:
    """What the text holds; errors are counted from ``first`` on."""
    try:
        return kind.validate_json(text)
    except ValidationError as error:
        raise invalid(error, where, first=first) from None


def _array(rows: list[list[Any]]) -> Numbers | list[list[Any]]:
    if len({len(row) for row in rows}) > 1:
        return rows
    return np.array(rows, dtype=np.float64)
