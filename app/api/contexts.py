"""The context of a choice, in the bodies of requests."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema


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
]
