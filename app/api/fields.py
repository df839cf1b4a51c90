"""Fields, spans of time and contexts for several endpoints, and the shape of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import numpy as np
from fastapi import Query, Response
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.api.request_limits import MAX_DIM, MAX_FEATURE, MAX_PAGE, MAX_PAGE_BYTES, MAX_TOKEN_CHARS
from app.api.strict_json import JSON, StrictModel, encoded, numeral
from app.bandits import settings
from app.bandits.context import check_form
from app.platform import ids
from app.platform.cursors import encode_cursor
from app.platform.deadlines import yield_to_others
from app.platform.documents import Answer, schema_of
from app.platform.errors import Invalid
from app.records.features import FeatureEncoding

IDENTIFIER = ids.IDENTIFIER
Identifier = ids.Identifier
Value = settings.Value
Weights = Annotated[dict[Identifier, Value], Field(min_length=1)]
Temperature = settings.Temperature
Delta = settings.Delta
Feature = Annotated[float, Field(ge=-MAX_FEATURE, le=MAX_FEATURE)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Token = Annotated[str, Field(min_length=1, max_length=MAX_TOKEN_CHARS)]

T = TypeVar("T")
OrZero = Annotated[float, BeforeValidator(lambda value: value or 0.0)]
Cursor = Annotated[str | None, Query()]
From = Annotated[datetime | None, Query(alias="from")]
To = Annotated[datetime | None, Query(alias="to")]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_SCHEMA = {
    "anyOf": [
        {"type": "array", "items": {"type": "number"}},
        {"type": "object", "additionalProperties": {"type": ["number", "string", "array", "null"]}},
        {"type": "null"},
    ]
}
INTEGER = numeral(r"-?[0-9]{1,18}", "must be a whole number")
Limit = Annotated[int, INTEGER, Field(ge=1, le=MAX_PAGE), Query()]
# What is in it is checked by the bandit: its errors name the field.
ContextBody = Annotated[
    Any,
    AfterValidator(check_form),
    WithJsonSchema(_SCHEMA),
    Field(description="needed exactly when the bandit has a context: numbers, or its named fields"),
]


class AttributesView(BaseModel):
    """Base of answers that show attributes of another object."""

    model_config = ConfigDict(from_attributes=True)


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None


def page_of(kind: type[Answer]) -> Any:
    """The model of a page of answers. ``Page[kind]`` would have the name of the class, not of its schema."""
    return Page.__class_getitem__(schema_of(kind))


async def page_reply(items: Iterable[tuple[str, object]], following: str | None) -> Response:
    """A page of items, each with its position in the list. Where they are long, the rest is left to the next
    page.
    """
    texts, size, position = list[bytes](), 0, ""
    for its_position, item in items:
        await yield_to_others()
        text = encoded(item)
        size += len(text)
        if texts and size > MAX_PAGE_BYTES:
            following = encode_cursor(position)
            break
        texts.append(text)
        position = its_position
    body = b'{"items":[%b],"next":%b}' % (b",".join(texts), msgspec.json.encode(following))
    return Response(body, media_type=JSON)


class QueryBody(StrictModel):
    """``query``, or an ``embedding`` where the catalogue has one: of as many numbers as are given of arms."""

    query: Annotated[list[Feature], Field(min_length=1, max_length=MAX_DIM)] | None = None
    embedding: Annotated[list[Feature], Field(min_length=1, max_length=MAX_DIM)] | None = None

    def query_in(self, encoding: FeatureEncoding) -> Sequence[float] | NDArray[np.float64]:
        """The query among the features of a catalogue. Raises Invalid, DimensionMismatch."""
        if self.query is not None:
            if self.embedding is not None:
                raise Invalid("give query or embedding, not both", path=("embedding",))
            return self.query
        if self.embedding is None:
            raise Invalid("query is required, or embedding where the catalogue has one", path=("query",))
        return encoding.query(self.embedding)


def span(start: datetime | None, end: datetime | None) -> tuple[int | None, int | None]:
    """(from, to) in ms since 1970, half open. Times without a zone are UTC.

    Raises Invalid.
    """
    from_ms, to_ms = (None if bound is None else _ms(bound) for bound in (start, end))
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise Invalid("from must not be after to", path=("from",))
    return from_ms, to_ms


def _ms(time: datetime) -> int:
    """The first ms which is not before ``time``."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return -((_EPOCH - aware) // _MS)
