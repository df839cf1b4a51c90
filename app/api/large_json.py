"""Large bodies of numbers or of arms, parsed a piece at a time: other requests are answered meanwhile.

To parse a large body in a thread is not enough: a parser holds the interpreter's lock until it is done. So
msgspec finds where the fields and rows of the body end, which takes little time. Then pydantic validates a
few rows at a time, and the lock is free in between. Rows of numbers become arrays. The same bodies are
allowed as among small ones, and errors name fields in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, conlist

from app.api.strict_json import StrictModel, invalid, whole
from app.errors import Invalid, Location, TooLarge

PIECE = 2**16
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
Numbers = NDArray[np.float64]
Raw = msgspec.Raw


@dataclass(frozen=True)
class Pieces:
    """How to read a body that holds ``rows``, a field of rows of numbers, and fields of ``numbers``.

    In the model that is returned these are arrays of float64, where null is NaN; rows that differ in length
    remain lists. ``number`` is the type of a number; the limits are those of the model.
    """

    model: type[StrictModel]
    rows: str
    numbers: Sequence[str]
    number: Any
    most_rows: int
    most_numbers: int

    def __call__(self, data: bytes) -> StrictModel:
        """Return the model. Raises Invalid, TooLarge."""
        cut = _cut(data, self.rows, self.most_rows)
        if cut is None:
            return whole(self.model, data)
        fields, rows = cut
        long = [name for name in self.numbers if len(bytes(fields.get(name, b""))) > PIECE]
        # All but numbers; a row, or a number, stands for all of them.
        few: dict[str, Any] = {**fields, self.rows: [[0.0]][: len(rows)], **{name: [0.0] for name in long}}
        head = whole(self.model, msgspec.json.encode(few))
        found: dict[str, Any] = {name: self._long(bytes(fields[name]), ("body", name)) for name in long}
        return head.model_copy(update={**found, self.rows: self._matrix(rows)})

    def _matrix(self, rows: list[Raw]) -> Numbers | list[list[Any]]:
        row = conlist(self.number, min_length=1, max_length=self.most_numbers)
        some: TypeAdapter[Any] = TypeAdapter(conlist(row), config=_STRICT)
        parts, place = list[Any](), 0
        for text, count in _batches(rows):
            if count == 1 and len(text) > PIECE:
                parts.append(self._long(text[1:-1], ("body", self.rows, place))[None])
            else:
                parts.append(_array(_checked(some, text, ("body", self.rows), place)))
            place += count
        widths = {part.shape[1] if isinstance(part, np.ndarray) else None for part in parts}
        if len(widths) == 1 and None not in widths:
            return np.concatenate(parts)
        return [
            values for part in parts for values in (part.tolist() if isinstance(part, np.ndarray) else part)
        ]

    def _long(self, text: bytes, where: Location) -> Numbers:
        """The numbers of one long list, cut at commas: a list within it is an error in its piece."""
        some: TypeAdapter[Any] = TypeAdapter(conlist(self.number), config=_STRICT)
        text = text.strip()
        if not text.startswith(b"["):
            _checked(some, text, where, 0)
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
                raise TooLarge(message, loc=where) if len(where) == 2 else Invalid(message, loc=where)
        if not count:
            raise Invalid("must have at least 1 number", loc=where)
        return np.concatenate(parts)


@dataclass(frozen=True)
class Items:
    """How to read a body that holds ``items``, a field with at most ``most`` models of one ``kind``."""

    model: type[StrictModel]
    items: str
    kind: type[BaseModel]
    most: int

    def __call__(self, data: bytes) -> StrictModel:
        """Return the model. Raises Invalid, TooLarge."""
        cut = _cut(data, self.items, self.most)
        if cut is None:
            return whole(self.model, data)
        fields, rows = cut
        head = whole(self.model, msgspec.json.encode({**fields, self.items: rows[:1]}))
        some: TypeAdapter[Any] = TypeAdapter(conlist(self.kind))
        found = list[BaseModel]()
        for text, _ in _batches(rows):
            found += _checked(some, text, ("body", self.items), len(found))
        return head.model_copy(update={self.items: found})


def _cut(data: bytes, rows: str, most: int) -> tuple[dict[str, Raw], list[Raw]] | None:
    """The fields of a body, and the rows in one of them; None where it does not hold any. Raises TooLarge."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, Raw])
        found = msgspec.json.decode(fields.get(rows, b""), type=list[Raw])
    except (msgspec.MsgspecError, RecursionError):
        return None
    if len(found) > most:
        raise TooLarge(f"must have at most {most} items", loc=("body", rows))
    return fields, found


def _batches(rows: list[Raw]) -> Iterator[tuple[bytes, int]]:
    """Yield lists of rows as JSON, with how many they hold: some short ones, or a long one by itself."""
    some, size = list[bytes](), 0
    for row in rows:
        text = bytes(row)
        if some and size + len(text) > PIECE:
            yield b"[" + b",".join(some) + b"]", len(some)
            some, size = [], 0
        some.append(text)
        size += len(text) + 1
    if some:
        yield b"[" + b",".join(some) + b"]", len(some)


def _checked(kind: TypeAdapter[Any], text: bytes, where: Location, first: int) -> Any:
    """What the text holds; errors are counted from ``first`` on."""
    try:
        return kind.validate_json(text)
    except ValidationError as error:
        raise invalid(error, where, first=first) from None


def _array(rows: list[list[Any]]) -> Numbers | list[list[Any]]:
    if len({len(row) for row in rows}) > 1:
        return rows
    return np.array(rows, dtype=np.float64)
