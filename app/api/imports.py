"""POST /v1/catalogues/{c}/import: arms as NDJSON or as blocks of numbers, streamed, of any size.

Blocks are read several times as fast as lines; docs/files.md defines them.

Lines are applied in batches as they arrive. At the first bad line the import stops: the lines before it are
applied, nothing after it is. Blocks are applied one by one, each whole or not at all.
With ``Accept: application/x-ndjson`` the answer is streamed too, one progress line a batch and the result (or
the problem document) as the last line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from numpy.typing import NDArray
from pydantic import AfterValidator, TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from app.api import request_limits as limits
from app.api.arms import BLOCKS, LONG_METADATA, NDJSON, TWICE, ArmBody, UpsertedView, as_arm, storable
from app.api.fields import IDENTIFIER
from app.api.problems import problem_of, problems
from app.api.strict_json import (
    MAX_OBJECT_BYTES,
    Provided,
    check_encoding,
    content_type,
    invalid,
    json_router,
    read_body,
    reply,
)
from app.catalogues.arms import Arm, PreparedArms, prepare_arms, raw_arm
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.platform.deadlines import mark_streamed, yield_to_others
from app.platform.errors import BadRequest, DimensionMismatch, Invalid, NotFitted, ShortlistError, TooLarge
from app.platform.ids import is_identifier
from app.records.features import FeatureEncoding

HEAD_BYTES = 4
_metadata_adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(
    Annotated[dict[str, Any], AfterValidator(storable)]
)
BATCH_ARMS = 1_000
BATCH_NUMBERS = 1_000_000
YIELD_LINES = 256
router = json_router(prefix="/v1/catalogues", tags=["catalogues"])


# The number of lines or arms read so far, the encoding of the arms, and the arms.
Batch = tuple[int, FeatureEncoding, Sequence[Arm]]


BLOCKS_BODY = {
    "requestBody": {
        "required": True,
        "content": {BLOCKS: {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""``openapi_extra`` of a call whose body is blocks."""


class Block(msgspec.Struct, forbid_unknown_fields=True):
    """Arms side by side, as docs/files.md says."""

    ids: list[str]
    features: bytes = b""
    dtype: Literal["<f4", "<f8"] = "<f8"
    reduced: bool = False
    tags: list[list[str]] | None = None
    metadata: list[str] | None = None


def blocks_of(request: Request) -> AsyncIterator[bytes]:
    """The blocks of a body that must be blocks. Raises UnsupportedEncoding, BadRequest, TooLarge."""
    check_encoding(request)
    if content_type(request) != BLOCKS:
        raise BadRequest(f"the body must be blocks, of Content-Type {BLOCKS}")
    return blocks(request.stream())


async def blocks(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The blocks of a body, in chunks of any size. Raises TooLarge, BadRequest (the body ends within one)."""
    pending = bytearray()
    async for chunk in body:
        pending += chunk
        while len(pending) >= HEAD_BYTES:
            size = int.from_bytes(pending[:HEAD_BYTES], "little")
            # As soon as its length is known: nothing of it is kept.
            if size > limits.MAX_BLOCK_BYTES:
                raise TooLarge(f"a block must not be longer than {limits.MAX_BLOCK_BYTES} bytes", path=())
            if len(pending) < HEAD_BYTES + size:
                break
            await yield_to_others()
            yield bytes(pending[HEAD_BYTES : HEAD_BYTES + size])
            del pending[: HEAD_BYTES + size]
    if pending:
        raise BadRequest("the body ends within a block")


async def arms_of(
    data: bytes, first: int, encoding: FeatureEncoding
) -> tuple[FeatureEncoding, Sequence[Arm]]:
    """The raw arms of a block, and what makes features of them.

    ``first`` is the number of its first row, from 1. Raises Invalid, NotFitted, TooLarge.
    """
    try:
        block = msgspec.msgpack.decode(data, type=Block)
    except (msgspec.DecodeError, RecursionError):
        raise Invalid(
            "a block must be a msgpack document of ids, features, dtype, reduced, tags and metadata",
            path=(first,),
        ) from None
    if block.reduced:
        encoding = _of_reduced(encoding, first)
    count = len(block.ids)
    if count > limits.MAX_BLOCK_ARMS:
        raise TooLarge(f"a block must not have more than {limits.MAX_BLOCK_ARMS} arms", path=(first,))
    features = _features(block, first, count, encoding)
    for name, column in (("tags", block.tags), ("metadata", block.metadata)):
        if column is not None and len(column) != count:
            raise Invalid(f"{name} must be as many as ids", path=(first, name))
    arms, ids = list[Arm](), set[str]()
    for position, name in enumerate(block.ids):
        await yield_to_others()
        if not is_identifier(name):
            raise Invalid(f"must match ^{IDENTIFIER}$", path=(first + position, "id"))
        if name in ids:
            raise Invalid(TWICE, path=(first + position, "id"))
        ids.add(name)
        tags = _tags(block.tags[position], first + position) if block.tags else ()
        metadata: dict[str, Any] = {}
        if block.metadata and block.metadata[position]:
            metadata = _metadata(block.metadata[position], first + position)
        arms.append(raw_arm(encoding, Arm(name, features[position], tags, metadata), (first + position,)))
    return encoding, arms


def _of_reduced(encoding: FeatureEncoding, first: int) -> FeatureEncoding:
    if encoding.reduced_to is None:
        raise Invalid("the embeddings of this catalogue are not reduced", path=(first, "reduced"))
    if encoding.basis is None:
        raise NotFitted("reduced: the catalogue has no basis yet: send the embeddings themselves")
    return encoding.of_reduced


def _features(block: Block, first: int, count: int, encoding: FeatureEncoding) -> NDArray[np.floating]:
    dim = encoding.embedding_dim
    if not dim and block.features:
        dim = encoding.dim  # as an answer had them
    size = int(block.dtype[-1]) * count * dim
    if len(block.features) != size:
        message = f"features must be {count} x {dim} numbers: {size} bytes, not {len(block.features)}"
        raise DimensionMismatch(message, path=(first, "features"))
    rows = np.frombuffer(block.features, dtype=block.dtype).reshape(count, dim)
    wrong = ~(np.abs(rows) <= limits.MAX_FEATURE).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        where = (first + row, "features")
        if not np.isfinite(rows[row]).all():
            raise Invalid("every number must be finite", path=where)
        raise Invalid(f"no number may be larger than {limits.MAX_FEATURE:.0f} in magnitude", path=where)
    return rows if encoding.reduced_to is not None else rows.astype(np.float64, copy=False)


def _tags(tags: Sequence[str], row: int) -> Sequence[str]:
    if len(tags) > limits.MAX_TAGS or any(len(tag) > limits.MAX_TAG_CHARS for tag in tags):
        message = (
            f"an arm must not have more than {limits.MAX_TAGS} tags of {limits.MAX_TAG_CHARS} characters"
        )
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


class Progress(StreamingResponse):
    """An answer that is sent while the body is still being read.

    ``StreamingResponse`` would listen for a disconnect of the client, and so take messages of the body.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await self.stream_response(send)


@router.post(
    "/{catalogue}/import",
    response_model=UpsertedView,
    responses={**problems(400, 409), 200: {"content": {NDJSON: {"schema": {"type": "string"}}}}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                NDJSON: {"schema": {"type": "string"}},
                BLOCKS: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
)
async def import_arms(catalogue: str, request: Request, catalogues: Provided[Catalogues]) -> Response:
    """Insert or replace arms, one JSON document a line, or blocks of them.

    A block is its length (four bytes, little-endian) and a msgpack document of that length:
    ids, features (row after row), dtype (<f8 or <f4) and, if there are any, tags and metadata as JSON texts.
    With reduced (true) the features are embeddings times the basis of the catalogue.
    """
    check_encoding(request)
    mark_streamed()
    kind, read = ("arm", _blocks_of_arms) if content_type(request) == BLOCKS else ("line", _lines_of_arms)
    owner = await catalogues.get(catalogue)
    steps = _import(catalogues, owner, read(owner, request.stream()), kind)
    if NDJSON in request.headers.get("accept", ""):
        return Progress(_progress(steps), media_type=NDJSON)
    *_, result = [step async for step in steps]
    return reply({name: count for name, count in result.items() if name != "lines"})


async def _import(
    catalogues: Catalogues, catalogue: Catalogue, batches: AsyncIterator[Batch], kind: str
) -> AsyncIterator[dict[str, int]]:
    """Store batch after batch, each while the next one is read; yield the totals after each, and at the end.

    ``lines`` of the totals: how many of ``kind`` were read.
    """
    totals = {"added": 0, "updated": 0, "version": catalogue.version, "lines": 0}
    under_way: asyncio.Task[None] | None = None

    async def store(prepared: PreparedArms, read: int) -> None:
        done = await catalogues.write(catalogue, prepared)
        totals["added"] += done.added
        totals["updated"] += done.updated
        totals.update(version=done.version, lines=read)

    try:
        async for read, encoding, arms in batches:
            prepared = await prepare_arms(encoding, arms)
            if under_way is not None:
                await under_way
                yield dict(totals)
            under_way = asyncio.create_task(store(prepared, read))
        if under_way is not None:
            await under_way
    except (Invalid, NotFitted, TooLarge, BadRequest) as error:
        if under_way is not None:
            await under_way
        position = next((path[0] for path, _ in error.errors if path), None)
        where = f"{kind} {position}: " if isinstance(position, int) else ""
        told = f"The first {totals['lines']} {kind}s were applied, nothing after them was"
        if kind == "line" and where:
            told = "The lines before it were applied, nothing after it was"
        error.detail = f"{where}{error.detail}. {told}"
        raise
    finally:
        if under_way is not None:
            under_way.cancel()  # unless it is done: nobody waits for it
    yield totals


async def _lines_of_arms(catalogue: Catalogue, body: AsyncIterator[bytes]) -> AsyncIterator[Batch]:
    """Arms that come as lines. Raises Invalid, TooLarge, after the arms before the bad line."""
    most = max(1, min(BATCH_ARMS, BATCH_NUMBERS // max(catalogue.dim, catalogue.encoding.embedding_dim)))
    batch: dict[str, Arm] = {}
    number, refusal = 0, None
    try:
        async for number, line in _lines(body):
            encoding, where = catalogue.encoding, (number,)
            arm = raw_arm(encoding, as_arm(await read_body(ArmBody, line, where)), where)
            # An id twice in one file is two writes, as the lines are read: the later one holds.
            if arm.id in batch or len(batch) >= most:
                yield number - 1, encoding, list(batch.values())
                batch.clear()
            batch[arm.id] = arm
    except (Invalid, TooLarge) as error:
        refusal = error
    if batch:
        yield number, catalogue.encoding, list(batch.values())
    if refusal is not None:
        raise refusal


async def _blocks_of_arms(catalogue: Catalogue, body: AsyncIterator[bytes]) -> AsyncIterator[Batch]:
    """Arms that come as blocks. Raises Invalid, NotFitted, TooLarge, BadRequest."""
    read = 0
    async for block in blocks(body):
        encoding, arms = await arms_of(block, read + 1, catalogue.encoding)
        read += len(arms)
        if arms:
            yield read, encoding, arms


async def _lines(body: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Lines with their numbers from 1, without blank ones; none is kept beyond its limit."""
    number, pending = 1, bytearray()
    async for chunk in body:
        await yield_to_others()
        pending += chunk
        *complete, pending = pending.split(b"\n") if b"\n" in chunk else [pending]
        for line in complete:
            if line.strip():
                _check_length(line, number)
                yield number, bytes(line)
            number += 1
            if number % YIELD_LINES == 0:
                await yield_to_others()
        # A line without an end is refused while it comes, before it fills the memory.
        _check_length(pending, number)
    if pending.strip():
        yield number, bytes(pending)


def _check_length(line: bytearray, number: int) -> None:
    if len(line) > limits.MAX_LINE_BYTES:
        raise TooLarge(f"a line must not be longer than {limits.MAX_LINE_BYTES} bytes", path=(number,))


async def _progress(steps: AsyncIterator[dict[str, int]]) -> AsyncIterator[bytes]:
    try:
        async for step in steps:
            yield msgspec.json.encode(step) + b"\n"
    except ShortlistError as error:
        yield problem_of(error) + b"\n"
