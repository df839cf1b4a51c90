"""Fields that the bodies and parameters of several endpoints share, and the shape of a page of a list."""

from __future__ import annotations

import re
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from app.api.limits import MAX_FEATURE, MAX_PAGE, MAX_TOKEN_CHARS, MAX_VALUE, MIN_DELTA

IDENTIFIER = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
Identifier = Annotated[str, StringConstraints(pattern=f"^{IDENTIFIER}$")]
Feature = Annotated[float, Field(ge=-MAX_FEATURE, le=MAX_FEATURE)]
Value = Annotated[float, Field(ge=-MAX_VALUE, le=MAX_VALUE)]
Temperature = Annotated[float, Field(ge=1e-9, le=1e9)]
Delta = Annotated[float, Field(ge=MIN_DELTA, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Token = Annotated[str, Field(min_length=1, max_length=MAX_TOKEN_CHARS)]

T = TypeVar("T")


def digits(text: object) -> object:
    """Query parameters are text; what Python would also read as a number (1.0, 1_0, +1) is none here."""
    if isinstance(text, str) and not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError("must be a whole number")
    return text


PageLimit = Annotated[int, BeforeValidator(digits), Field(ge=1, le=MAX_PAGE)]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None
