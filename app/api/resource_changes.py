"""Changes of a resource: entity tags (RFC 9110) and JSON merge patches (RFC 7396)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

from fastapi import Request
from pydantic import create_model

from app.api.problems import Part
from app.api.strict_json import StrictModel
from app.platform.documents import Document, fields_of
from app.platform.errors import Invalid, PreconditionFailed

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"\s*{_TAG}\s*(?:,\s*{_TAG}\s*)*")
# Suffixes of compressing proxies within the quotes, such as "-gzip", "--gzip" and ";gzip".
_ENCODING = re.compile(r'[-;:]+(?:br|deflate|gzip|zstd)(?="$)')
MAX_CHARS = 8_192
ANY = "*"


def if_match(request: Request) -> frozenset[str] | None:
    """The tags of If-Match, one of which must be the current one; None: any will do. Raises Invalid."""
    values = request.headers.getlist("if-match")
    text = ",".join(values)
    if not values or text.strip() == ANY:
        return None
    if len(text) > MAX_CHARS or not _TAGS.fullmatch(text):
        raise Invalid('must be * or entity tags in quotes: "…"', path=(Part.HEADER, "if-match"))
    return frozenset(tags_of(text))


def tags_of(text: str) -> list[str]:
    """The entity tags of a header as we made them, before a compressing proxy weakened or changed them.

    RFC 9110 (13.1.1) asks for a strong comparison in If-Match, in which no byte differs. Our tags name a
    version of the resource, whatever the encoding of its bytes on the way.
    """
    return [_ENCODING.sub("", tag.removeprefix("W/")) for tag in re.findall(_TAG, text)]


def check(etag: str, allowed: frozenset[str] | None) -> None:
    """Raise PreconditionFailed unless the current tag is among those that are allowed."""
    if allowed is not None and etag not in allowed:
        raise PreconditionFailed("the resource has changed since this ETag: read it again")


def merged(target: Any, patch: Any) -> Any:
    """The target with the patch applied; neither is changed.

    An object is merged member by member and null takes a member away; anything else replaces the target.
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def patch_model(
    name: str, fields: Mapping[str, Any], text: str | None, base: type[StrictModel] = StrictModel
) -> type[StrictModel]:
    """A model of the patches of what has these ``fields`` (see ``fields_of``): each may be absent, or null.

    Each field given is held to its own rule; rules between fields hold for what the patch makes.
    """
    patched: Any = {field: (_patched(hint), None) for field, (hint, _) in fields.items()}
    return create_model(name, __base__=base, __doc__=text, **patched)


def _patched(hint: Any) -> Any:
    """The type of a patch of one field: also for a field that is a document, or such a one or null."""
    for kind in (hint, *get_args(hint)):
        named = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if inspect.isclass(named) and issubclass(named, Document):
            return patch_model(f"{named.__name__}Patch", fields_of(named), named.__doc__) | None
        if get_origin(named) is dict and get_args(named)[1] is not Any:  # documents by name
            key, document = get_args(named)
            return dict[key, _patched(document)] | None  # type: ignore[misc, valid-type]
    return hint | None


def as_json(patch: StrictModel) -> dict[str, Any]:
    """The patch as it was sent."""
    return patch.model_dump(exclude_unset=True)
