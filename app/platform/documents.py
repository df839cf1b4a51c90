"""Documents: parts of stored records and of requests, and answers; each is defined once.

A class has the types of its fields with their bounds, as annotations of pydantic. A request is held to all of
them. Stored documents are read by their types alone, and may have fields of a newer version. An answer is
encoded by msgspec; pydantic only makes its schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self, get_type_hints

import msgspec
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from app.platform.errors import FieldPath

# How requests are read: nothing is coerced, and unknown fields are refused.
STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Document(msgspec.Struct, frozen=True):
    """Base of all documents. Pydantic makes one of the JSON of a request."""

    def checked(self) -> Self:
        """The document of a request. Raises ValueError for fields that contradict each other."""
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields = _names_of(cls)

        def made(given: BaseModel) -> Document:
            return cls(**{fields[name]: value for name, value in given}).checked()

        sent = core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins)
        schema = handler.generate_schema(_model_of(cls))
        return core_schema.no_info_after_validator_function(made, schema, serialization=sent)


class Answer(msgspec.Struct, frozen=True):
    """Base of what is encoded as an answer. Its schema in /openapi.json has the name of the class and "View".

    Where the class omits defaults a field may be absent, and the schema does not require it.

    ``schema_name``: another name that clients know; it is not inherited
    """

    schema_name: ClassVar[str]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(schema_of(cls))


@dataclass(frozen=True)
class ShownAs:
    """The schema of another type for a field: ``Annotated[msgspec.Raw, ShownAs(dict[str, Any])]``."""

    kind: Any

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.kind)


@cache
def schema_of(kind: type[Answer]) -> type[BaseModel]:
    """A model with the fields of an answer, as they are encoded. Without objects of its own."""
    fields = fields_of(kind)
    if not kind.__struct_config__.omit_defaults:
        fields = {name: (hint, ...) for name, (hint, _) in fields.items()}
    name = vars(kind).get("schema_name", f"{kind.__name__.removesuffix('View')}View")
    return create_model(name, __doc__=kind.__doc__, **fields)


def fields_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The annotated type and the default of each field as it is encoded, as ``create_model`` takes them."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.encode_name: (hints[field.name], _default(field)) for field in msgspec.structs.fields(kind)}


@cache
def _names_of(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """The names of fields by how they are encoded. Each annotation is read for it: milliseconds, once."""
    return {field.encode_name: field.name for field in msgspec.structs.fields(kind)}


def unknown_fields(stored: Any, decoded: object, path: str = "") -> Iterator[str]:
    """The fields of a stored document which its decoded form lacks, as dotted paths.

    A null has the default of a newer version, and says nothing.
    """
    if isinstance(decoded, msgspec.Struct):
        fields = _names_of(type(decoded))
        for name, value in stored.items():
            if name in fields:
                yield from unknown_fields(value, getattr(decoded, fields[name]), f"{path}{name}.")
            elif value is not None:
                yield path + name
    elif isinstance(decoded, dict) and isinstance(stored, dict):
        for name, value in decoded.items():
            yield from unknown_fields(stored.get(name), value, f"{path}{name}.")
    elif isinstance(decoded, list):
        for index, (value, item) in enumerate(zip(stored, decoded, strict=True)):
            yield from unknown_fields(value, item, f"{path}{index}.")


def errors_of(kind: type[Document], value: object, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """The errors of JSON which should be a document: field, below ``path``, and rule."""
    try:
        _adapter_of(kind).validate_python(value)
    except ValidationError as error:
        for wrong in error.errors(include_url=False, include_input=False):
            yield (*path, *wrong["loc"]), wrong["msg"].removeprefix("Value error, ")


@cache
def _adapter_of(kind: type[Document]) -> TypeAdapter[Any]:
    """Checks JSON for a document. Pydantic takes milliseconds to make one."""
    return TypeAdapter(kind)


@cache
def _model_of(kind: type[Document]) -> type[BaseModel]:
    return create_model(kind.__name__, __config__=STRICT, __doc__=kind.__doc__, **fields_of(kind))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if isinstance(field.default, msgspec.Struct):
        return Field(default_factory=lambda: field.default)
    return ... if field.required else field.default
