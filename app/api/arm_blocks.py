"""Arms as blocks of numbers: what an import reads several times as fast as lines of JSON.

A body is blocks, one after the other: four bytes, little-endian, that say how long the rest of the block is,
and then a msgpack document ``{"ids": [...], "features": bytes, "dtype": "<f8", "tags": [[...], ...],
"metadata": [...]}``. ``features`` are n x dim numbers, row after row, float64 (``<f8``, as when ``dtype`` is
absent) or float32 (``<f4``), little-endian. ``tags`` and ``metadata`` may be absent; metadata are JSON texts,
"" where an arm has none.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, TypeAdapter, ValidationError

from app.api.arms import LONG_METADATA, TWICE, storable
from app.api.fields import IDENTIFIER
from app.api.limits import MAX_BLOCK_ARMS, MAX_BLOCK_BYTES, MAX_FEATURE, MAX_TAG_CHARS, MAX_TAGS
from app.api.strict_json import MAX_OBJECT_BYTES, invalid
from app.errors import BadRequest, DimensionMismatch, Invalid, TooLarge
from app.services.bounded.yielding import yield_to_others
from app.services.catalogues.catalogues import Arm

HEAD_BYTES = 4
_AN_ID = re.compile(IDENTIFIER)


class Block(msgspec.Struct, forbid_unknown_fields=True):
    """Arms side by side; see the module."""

    ids: list[str]
    features: bytes
    dtype: Literal["<f4", "<f8"] = "<f8"
    tags: list[list[str]] | None = None
    metadata: list[str] | None = None


_metadata_adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(
    Annotated[dict[str, Any], AfterValidator(storable)]
)
_decoder = msgspec.msgpack.Decoder(Block)


async def blocks(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The blocks of a body, in chunks of any size. Raises TooLarge, BadRequest (it ends within one)."""
    held = bytearray()
    async for chunk in body:
        held += chunk
        while len(held) >= HEAD_BYTES:
            size = int.from_bytes(held[:HEAD_BYTES], "little")
            if size > MAX_BLOCK_BYTES:
                raise TooLarge(f"a block must not be longer than {MAX_BLOCK_BYTES} bytes", path=())
            if len(held) < HEAD_BYTES + size:
                break
            await yield_to_others()
            yield bytes(held[HEAD_BYTES : HEAD_BYTES + size])
            del held[: HEAD_BYTES + size]
    if held:
        raise BadRequest("the body ends within a block")


async def arms_of(data: bytes, first: int, dim: int) -> list[Arm]:
    """The arms of a block; ``first`` is the number of its first row, from 1. Raises Invalid, TooLarge."""
    try:
        block = _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise Invalid(
            "a block must be a msgpack document of ids, features, dtype, tags and metadata",
            path=(first,),
        ) from None
    count = len(block.ids)
    if count > MAX_BLOCK_ARMS:
        raise TooLarge(f"a block must not have more than {MAX_BLOCK_ARMS} arms", path=(first,))
    features = _features(block, first, count, dim)
    for name, column in (("tags", block.tags), ("metadata", block.metadata)):
        if column is not None and len(column) != count:
            raise Invalid(f"{name} must be as many as ids", path=(first, name))
    arms, seen = list[Arm](), set[str]()
    for position, name in enumerate(block.ids):
        await yield_to_others()
        if not _AN_ID.fullmatch(name):
            raise Invalid(f"must match ^{IDENTIFIER}$", path=(first + position, "id"))
        if name in seen:
            raise Invalid(TWICE, path=(first + position, "id"))
        seen.add(name)
        tags = _tags(block.tags[position], first + position) if block.tags else ()
        metadata: dict[str, Any] = {}
        if block.metadata and block.metadata[position]:
            metadata = _metadata(block.metadata[position], first + position)
        arms.append(Arm(name, features[position], tags, metadata))
    return arms


def _features(block: Block, first: int, count: int, dim: int) -> NDArray[np.float64]:
    size = int(block.dtype[-1]) * count * dim
    if len(block.features) != size:
        message = f"features must be {count} x {dim} numbers: {size} bytes, not {len(block.features)}"
        raise DimensionMismatch(message, path=(first, "features"))
    rows = np.frombuffer(block.features, dtype=block.dtype).reshape(count, dim)
    wrong = ~(np.abs(rows) <= MAX_FEATURE).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        where = (first + row, "features")
        if not np.isfinite(rows[row]).all():
            raise Invalid("every number must be finite", path=where)
        raise Invalid(f"no number may be larger than {MAX_FEATURE:.0f} in magnitude", path=where)
    return rows.astype(np.float64, copy=False)


def _tags(tags: Sequence[str], row: int) -> Sequence[str]:
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in tags):
        message = f"an arm must not have more than {MAX_TAGS} tags of {MAX_TAG_CHARS} characters"
        raise Invalid(message, path=(row, "tags"))
    return tags


def _metadata(text: str, row: int) -> dict[str, Any]:
    where = (row, "metadata")
    if len(text) > MAX_OBJECT_BYTES:
        raise Invalid(LONG_METADATA, path=where)
    try:
        return _metadata_adapter.validate_json(text)
    except ValidationError as error:
        raise invalid(error, where) from None
