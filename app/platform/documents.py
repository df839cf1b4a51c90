"""Base class of documents that are stored and also come in requests, so that each is defined once.

A class has the types of its fields with their bounds, as annotations of pydantic. A request must keep all of
them. A stored document is read by its types alone, and may have fields that only a newer version knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Self, get_type_hints

import msgspec
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema, core_schema

# How requests are read: nothing is coerced, and unknown fields are refused.
STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Document(msgspec.Struct, frozen=True):
    """Base of all documents. Pydantic makes one of the JSON of a request."""

    def checked(self) -> Self:
        """The document of a request. Raises ValueError for fields that contradict each other."""
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def made(given: BaseModel) -> Document:
            return cls(**dict(given)).checked()

        sent = core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins)
        schema = handler.generate_schema(_model_of(cls))
        return core_schema.no_info_after_validator_function(made, schema, serialization=sent)


def fields_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The annotated type and the default of each field, as pydantic's ``create_model`` takes them."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: (hints[field.name], _default(field)) for field in msgspec.structs.fields(kind)}


def unknown_fields(stored: Any, known: object, path: str = "") -> Iterator[str]:
    """The fields of a stored document that what was read from it has not, as dotted paths.

    One that is null has the default of a newer version, and says nothing.
    """
    if isinstance(known, msgspec.Struct):
        for name, value in stored.items():
            if name in known.__struct_fields__:
                yield from unknown_fields(value, getattr(known, name), f"{path}{name}.")
            elif value is not None:
                yield path + name
    elif isinstance(known, dict) and isinstance(stored, dict):
        for name, value in known.items():
            yield from unknown_fields(stored.get(name), value, f"{path}{name}.")
    elif isinstance(known, list):
        for index, (value, item) in enumerate(zip(stored, known, strict=True)):
            yield from unknown_fields(value, item, f"{path}{index}.")


@cache
def _model_of(kind: type[Document]) -> type[BaseModel]:
    return create_model(kind.__name__, __config__=STRICT, __doc__=kind.__doc__, **fields_of(kind))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if isinstance(field.default, Document):
        return Field(default_factory=lambda: field.default)
    return ... if field.required else field.default
