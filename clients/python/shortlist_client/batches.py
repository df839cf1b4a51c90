"""Long lists, cut to what the service takes in one request."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from math import inf
from typing import Any, NamedTuple, TypeVar

from shortlist_client.bodies import ArmBody, DecisionItem, RewardItem, Vector, Vectors
from shortlist_client.errors import InvalidArgument, ServiceError
from shortlist_client.routes import Call, Route, encoded, given_of

T = TypeVar("T")
M = TypeVar("M", bound=Mapping[str, Any])


class Most(NamedTuple):
    """What one request may hold: items; bytes, and arms that are asked for, unless it is one item."""

    items: int
    size: int
    arms: int = 0


# What the service allows (its docs/limits.md); of bytes half, so that no request takes it very long.
MOST_BYTES = 2_000_000
ARMS = REWARDS = OBSERVATIONS = Most(10_000, MOST_BYTES)
IDS = RESULTS = Most(10_000, 2**20)
CHOICES = Most(1_000, MOST_BYTES, 20_000)
ACTIVATIONS = Most(1_000, MOST_BYTES)
FEW_NUMBERS, MOST_NUMBERS, MOST_ROWS = 100_000, 1_000_000, 100_000  # of one question as JSON
BLOCK = 1_000
COLUMN = "one column of it, as df[column]"
VECTORS = "its numbers, as df[columns].to_numpy() gives them"


@dataclass(frozen=True, slots=True)
class Batch:
    """Items from number ``first`` on, up to ``end``; ``content`` is the body."""

    first: int
    end: int
    content: bytes


def batches(
    name: str, items: Iterable[bytes], most: Most, arms: Iterable[int] = repeat(0)
) -> Iterator[Batch]:
    """Bodies of one list, under its name, that hold no more than they may; one body at least.

    ``arms``: how many each item asks for.
    """
    first, size, asked, batch = 0, 0, 0, list[bytes]()
    for item, more in zip(items, arms, strict=False):
        if batch and (len(batch) == most.items or size + len(item) > most.size or asked + more > most.arms):
            yield _batch(name, first, batch)
            first, size, asked, batch = first + len(batch), 0, 0, []
        batch.append(item)
        size += len(item) + 1
        asked += more
    if batch or not first:
        yield _batch(name, first, batch)


def with_options(parts: Iterable[Batch], *, partial: bool, distinct: bool) -> Iterable[Batch]:
    """Batches of choices with these fields. Raises InvalidArgument: what is to be distinct is too long."""
    whole = list(parts) if distinct else parts
    if isinstance(whole, list) and len(whole) > 1:
        reason = "distinct is of one request of the service: at most 1,000 items, k of all 20,000, and 2 MB"
        raise InvalidArgument(f"requests: {reason}")
    options = b',"partial":true' * partial + b',"distinct":true' * distinct
    return (Batch(part.first, part.end, b"%s%s}" % (part.content[:-1], options)) for part in whole)


def _batch(name: str, first: int, items: list[bytes]) -> Batch:
    return Batch(first, first + len(items), b'{"%s":[%s]}' % (name.encode(), b",".join(items)))


def send_all(
    parts: Iterable[Batch], call: Callable[[Batch], Call[T]]
) -> Generator[Call[Any], Any, list[tuple[int, T]]]:
    """Send batch after batch; give the answers, each with the number of its first item.

    An error names the item by its number in the whole list, and says how many were applied before.
    """
    found, done = list[tuple[int, T]](), 0
    rest = iter(parts)
    while True:
        try:
            part = next(rest, None)
        except InvalidArgument as error:
            told = f". The first {done:,} were applied, nothing after them" if done else ""
            raise InvalidArgument(f"{error}{told}") from None
        if part is None:
            return found
        try:
            answer = yield from call(part)
        except ServiceError as error:
            error.moved(part.first)
            raise
        found.append((part.first, answer))
        done = part.end


def sender(route: Route[T], *names: str, **options: Any) -> Callable[[Batch], Call[T]]:
    """Make calls of a route with the same names and options, of one batch each."""
    return lambda batch: route.call(*names, content=batch.content, **options)


def encoded_items(items: Iterable[Mapping[str, Any]], what: str) -> Iterator[bytes]:
    """Each as JSON, without fields that are None. Raises InvalidArgument with the number of the item."""
    for number, item in enumerate(items_of(what, items)):
        try:
            yield encoded(given_of(item))
        except InvalidArgument as error:
            raise InvalidArgument(f"{what} {number}: {error}") from None


def items_of(what: str, items: Iterable[M]) -> Iterator[M]:
    """The items, each a mapping. Raises InvalidArgument with the number of one that is none."""
    for number, item in enumerate(checked_list(f"{what}s", items)):
        if not isinstance(item, Mapping):
            raise InvalidArgument(f"{what} {number}: must be a dict of its fields, not {type(item).__name__}")
        yield item


def checked_list(name: str, given: T, instead: str = 'its rows, as df.to_dict("records") gives them') -> T:
    """What is given, unless iterating over it gives what nobody means: the names of columns of a table
    (pandas, Polars, Arrow), the letters of a text, the names of fields. Raises InvalidArgument.
    """
    if hasattr(given, "columns") or hasattr(given, "column_names"):
        raise InvalidArgument(f"{name}: a {type(given).__name__} cannot be sent; give {instead}")
    if isinstance(given, str | bytes | Mapping):
        raise InvalidArgument(f"{name}: must be a list, not {type(given).__name__}")
    return given


def arms_of(
    vectors: Vectors | Iterable[Vector],
    ids: Iterable[str],
    tags: Iterable[Sequence[str]] | None,
    metadata: Iterable[Mapping[str, Any]] | None,
) -> Iterator[ArmBody]:
    """Arms of rows of vectors and their ids. Raises InvalidArgument if they are not as many."""
    checked_list("ids", ids, COLUMN)
    checked_list("tags", tags, COLUMN)
    checked_list("metadata", metadata)
    _as_many(vectors, ids=ids, tags=tags, metadata=metadata)
    columns: dict[str, Iterable[Any]] = {"id": ids, "features": _rows(vectors)}
    if tags is not None:
        columns["tags"] = tags
    if metadata is not None:
        columns["metadata"] = metadata
    try:
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))  # type: ignore[misc]  # the columns of ArmBody
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"vectors, ids, tags and metadata must be as many: {error}") from None


def same_length(arms: Iterable[Any]) -> Iterator[ArmBody]:
    """The arms, as long as all have as many features. Raises InvalidArgument with the row, counted from 0."""
    length = None
    for row, arm in enumerate(arms):
        if not isinstance(arm, Mapping):
            raise InvalidArgument(f"row {row} (from 0) is no arm; rows of vectors are given with ids=[...]")
        found = _length(row, arm.get("features", ()))
        length = found if length is None else length
        _same(row, found, length)
        yield arm  # type: ignore[misc]  # its other fields are the service's to check


def _length(row: int, features: Any) -> int:
    if not isinstance(features, Sized) or isinstance(features, str | bytes | Mapping):
        kind = type(features).__name__
        raise InvalidArgument(f"row {row} (from 0): features must be a list of numbers, not {kind}")
    return len(features)


def _same(row: int, found: int, length: int) -> None:
    if found != length:
        raise InvalidArgument(f"row {row} (from 0) has {found} numbers, and the rows before it {length}")


def _as_many(vectors: Any, **columns: Any) -> None:
    """What is known to be of different lengths is refused before anything is sent."""
    shape = getattr(vectors, "shape", None)
    if shape is not None and len(shape) != 2:
        raise InvalidArgument(f"vectors must be rows of numbers, not of shape {tuple(shape)}")
    if not isinstance(vectors, Sized):
        return
    if isinstance(vectors, Sequence):
        for row, vector in enumerate(vectors):
            _same(row, _length(row, vector), _length(0, vectors[0]))
    for name, column in columns.items():
        if isinstance(column, Sized) and len(column) != len(vectors):
            raise InvalidArgument(f"{len(column):,} {name} for {len(vectors):,} vectors")


def as_float32(*matrices: Any) -> bytes:
    """Rows of numbers as an octet-stream: little-endian float32. None is minus infinity."""
    parts = []
    for matrix in matrices:
        if hasattr(matrix, "astype"):
            parts.append(matrix.astype("<f4").tobytes())
            continue
        numbers = array("f")
        for row in matrix:
            numbers.extend(-inf if number is None else float(number) for number in row)
        if sys.byteorder == "big":
            numbers.byteswap()
        parts.append(numbers.tobytes())
    return b"".join(parts)


def is_large(call: Callable[[], Call[Any]], rows: Any) -> bool:
    """Whether a question about rows of numbers is too large for JSON."""
    numbers = 0
    with suppress(TypeError):  # what are no rows is named where it is encoded, or by the service
        numbers = len(rows) * len(rows[0]) if len(rows) else 0
    if numbers > MOST_NUMBERS or (numbers and len(rows) > MOST_ROWS):
        return True
    if numbers <= FEW_NUMBERS:
        return False
    content: Any = call().content
    return len(content) > 2 * MOST_BYTES


def _rows(vectors: Any) -> Iterator[Vector]:
    """The rows; those of an array as lists, a block at a time."""
    if not hasattr(vectors, "tolist") or not isinstance(vectors, Sized):
        yield from vectors
        return
    array: Any = vectors
    for first in range(0, len(array), BLOCK):
        yield from array[first : first + BLOCK].tolist()


def reward_item(
    decision: str | DecisionItem,
    value: float,
    arm: str | None,
    *,
    reward_id: str | None,
    signal: str | None,
    at: int | None,
) -> RewardItem:
    """``decision``: a token, or the event that it was made for. ``signal`` is left out where there is none.
    ``at``: None is now.
    """
    own = named(decision)
    item = RewardItem(**own, value=value, arm=arm, reward_id=reward_id)  # type: ignore[typeddict-item]  # it may have more
    if signal is not None:
        item["signal"] = signal
    return with_time(item, at)


def named(decision: str | DecisionItem) -> DecisionItem:
    """A decision as an item of a call: of a token, or of an event as it was given."""
    return decision if isinstance(decision, Mapping) else DecisionItem(decision=decision)


def with_time(item: RewardItem, at: int | None = None) -> RewardItem:
    """The reward with its time; that of one without is ``at``, else now."""
    return {"at": time.time_ns() // 1_000_000 if at is None else at, **item}
