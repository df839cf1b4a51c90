"""From a JSON document to a class of ``answers``. What a class does not know is left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Decoder = Callable[[Any], Any]


def as_it_is(document: Any) -> Any:
    return document


@cache
def decoder(kind: Any) -> Decoder:
    """What makes a ``kind`` of a document. It raises KeyError, TypeError or AttributeError if it cannot."""
    origin, arguments = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(origin or kind):
        return _of_class(origin or kind, arguments)
    if origin is tuple:
        return _of_items(decoder(arguments[0]))
    if origin is Mapping and decoder(arguments[1]) is not as_it_is:
        return _of_values(decoder(arguments[1]))
    if origin in {Union, UnionType}:
        (inner, *more) = [each for each in arguments if each is not type(None)]
        return as_it_is if more or decoder(inner) is as_it_is else _or_none(decoder(inner))
    return as_it_is


def _of_class(kind: Any, arguments: tuple[Any, ...]) -> Decoder:
    hints = get_type_hints(kind)
    unknown = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=True))
    fields = dataclasses.fields(kind)  # "name" in its metadata: what the document calls it
    needed, optional = list[tuple[str, str, Decoder]](), list[tuple[str, str, Decoder]]()
    for field in fields:
        shown = field.metadata.get("name", field.name)
        each = (field.name, shown, decoder(_filled(hints[field.name], unknown)))
        (needed if field.default is dataclasses.MISSING else optional).append(each)

    def decode(document: Mapping[str, Any]) -> Any:
        found = {name: make(document[shown]) for name, shown, make in needed}
        for name, shown, make in optional:
            if shown in document:
                found[name] = make(document[shown])
        return kind(**found)

    return decode


def _filled(hint: Any, unknown: Mapping[TypeVar, Any]) -> Any:
    """The type of a field of a generic class, its variables replaced."""
    return hint[tuple(unknown.values())] if getattr(hint, "__parameters__", ()) else hint


def _of_items(make: Decoder) -> Decoder:
    if make is as_it_is:
        return tuple
    return lambda document: tuple([make(item) for item in document])


def _of_values(make: Decoder) -> Decoder:
    return lambda document: {name: make(value) for name, value in document.items()}


def _or_none(make: Decoder) -> Decoder:
    return lambda document: None if document is None else make(document)
