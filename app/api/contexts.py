"""Contexts in the bodies of requests: what a bandit takes, and the context of one choice."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema

from app.api.fields import Identifier
from app.api.large_json import MaxBytes
from app.api.limits import (
    MAX_CATEGORY_CHARS,
    MAX_CONTEXT_BYTES,
)
from app.api.strict_json import StrictModel
from app.services.bandits.encoding import (
    MAX_CONTEXT_DIM,
    MAX_CONTEXT_FIELDS,
    MAX_FIELD_NUMBER,
    KindName,
)
from app.services.formats.records import ContextField, ContextRule

Size = Annotated[int, Field(ge=1, le=MAX_CONTEXT_DIM)]
Scale = Annotated[float, Field(ge=1e-9, le=MAX_FIELD_NUMBER)]
Category = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CATEGORY_CHARS)]


class ContextFieldBody(StrictModel):
    """``category`` needs ``values``, ``cycle`` needs ``period``, ``hash`` needs ``size``; ``number`` may have
    ``mean`` (0 if absent) and ``scale`` (1).
    """

    name: Identifier
    kind: KindName
    values: Annotated[list[Category], Field(min_length=1, max_length=MAX_CONTEXT_DIM)] | None = None
    period: Scale | None = None
    mean: Annotated[float, Field(ge=-MAX_FIELD_NUMBER, le=MAX_FIELD_NUMBER)] | None = None
    scale: Scale | None = None
    size: Size | None = None


class ContextRuleBody(StrictModel):
    """A vector of ``dim`` numbers, or named ``fields``, which the service encodes as numbers."""

    dim: Size | None = None
    fields: Annotated[list[ContextFieldBody], Field(min_length=1, max_length=MAX_CONTEXT_FIELDS)] | None = (
        None
    )


def rule(body: ContextRuleBody | None) -> ContextRule | msgspec.UnsetType:
    """What is stored of it; unset without a context."""
    if body is None:
        return msgspec.UNSET
    fields = None if body.fields is None else [ContextField(**field.model_dump()) for field in body.fields]
    return ContextRule(body.dim, fields)


def _is_context(value: Any) -> Any:
    if value is None or isinstance(value, list | dict):
        return value
    raise ValueError("must be a list of numbers, or an object of named fields")


_SCHEMA = {
    "anyOf": [
        {"type": "array", "items": {"type": "number"}},
        {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}},
        {"type": "null"},
    ]
}
# What is in it is checked by the bandit: its errors name the field.
ContextBody = Annotated[
    Any,
    AfterValidator(_is_context),
    WithJsonSchema(_SCHEMA),
    Field(description="needed exactly when the bandit has a context: numbers, or its named fields"),
    MaxBytes(MAX_CONTEXT_BYTES, f"must not be longer than {MAX_CONTEXT_BYTES:,} bytes"),
]
