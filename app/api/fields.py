"""Fields that the bodies and parameters of several endpoints share, and the shape of a page of a list."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Generic, TypeVar

import msgspec
from fastapi import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from app.api.limits import MAX_FEATURE, MAX_PAGE, MAX_PAGE_BYTES, MAX_TOKEN_CHARS
from app.api.strict_json import JSON, encoded
from app.services.bandits import settings
from app.services.bounded.yielding import yield_to_others
from app.services.formats import ids
from app.services.formats.pages import encode_cursor

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


def digits(text: object) -> object:
    """Query parameters are text; what Python would also read as a number (1.0, 1_0, +1) is none here."""
    if isinstance(text, str) and not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError("must be a whole number")
    return text


class AttributesView(BaseModel):
    """Base of answers that show attributes of another object."""

    model_config = ConfigDict(from_attributes=True)


OrZero = Annotated[float, BeforeValidator(lambda value: value or 0.0)]
PageLimit = Annotated[int, BeforeValidator(digits), Field(ge=1, le=MAX_PAGE)]


class CampaignName(BaseModel):
    id: str


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None


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
