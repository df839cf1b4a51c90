"""POST /v1/catalogues/{c}/import: arms as NDJSON or as blocks of numbers, streamed, of any size.

Lines are applied in batches as they arrive. At the first bad line the import stops: the lines before it are
applied, nothing after it is. Blocks (``arm_blocks``) are applied one by one, each whole or not at all.
With ``Accept: application/x-ndjson`` the answer is streamed too, one progress line a batch and the result (or
the problem document) as the last line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.arm_blocks import arms_of, blocks
from app.api.arms import BLOCKS, NDJSON, ArmBody, UpsertedView, as_arm
from app.api.limits import MAX_LINE_BYTES
from app.api.problems import problem_of
from app.api.services import Provided
from app.api.strict_json import check_encoding, json_router, read_body, reply
from app.errors import BadRequest, DimensionMismatch, Invalid, ShortlistError, TooLarge
from app.services.bounded.yielding import yield_to_others
from app.services.catalogues.catalogues import Arm, Catalogue, Catalogues

BATCH_ARMS = 1_000
BATCH_NUMBERS = 1_000_000
YIELD_LINES = 256


class Progress(StreamingResponse):
    """An answer that is sent while the body is still being read.

    ``StreamingResponse`` would listen for a disconnect of the client, and so take messages of the body.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await self.stream_response(send)


router = json_router(prefix="/v1/catalogues", tags=["catalogues"])


@router.post(
    "/{catalogue}/import",
    response_model=UpsertedView,
    responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}},
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
    """
    check_encoding(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    read = _import_blocks if kind == BLOCKS else _import
    steps = read(catalogues, await catalogues.get(catalogue), request.stream())
    if NDJSON in request.headers.get("accept", ""):
        return Progress(_progress(steps), media_type=NDJSON)
    *_, result = [step async for step in steps]
    return reply({name: count for name, count in result.items() if name != "lines"})


async def _import(
    catalogues: Catalogues, catalogue: Catalogue, body: AsyncIterator[bytes]
) -> AsyncIterator[dict[str, int]]:
    """Apply batch after batch; yield the totals after each, and once at the end."""
    totals = {"added": 0, "updated": 0, "version": catalogue.version, "lines": 0}
    most = max(1, min(BATCH_ARMS, BATCH_NUMBERS // catalogue.dim))
    batch: dict[str, Arm] = {}

    async def apply() -> None:
        if batch:
            done = await catalogues.upsert(catalogue, list(batch.values()))
            totals["added"] += done.added
            totals["updated"] += done.updated
            totals["version"] = done.version
            batch.clear()

    number = 0
    try:
        async for number, line in _lines(body):
            arm = await _parse(line, number, catalogue.dim)
            if arm.id in batch or len(batch) >= most:
                await apply()
                totals["lines"] = number - 1
                yield dict(totals)
            batch[arm.id] = arm
    except (Invalid, TooLarge):
        await apply()
        raise
    await apply()
    totals["lines"] = number
    yield totals


async def _import_blocks(
    catalogues: Catalogues, catalogue: Catalogue, body: AsyncIterator[bytes]
) -> AsyncIterator[dict[str, int]]:
    """As ``_import``, block by block; a block is read while the one before is stored. ``lines`` are arms."""
    totals = {"added": 0, "updated": 0, "version": catalogue.version, "lines": 0}
    under_way: asyncio.Task[Any] | None = None

    async def stored() -> None:
        if under_way is not None:
            done = await under_way
            totals["added"] += done.added
            totals["updated"] += done.updated
            totals["version"] = done.version
            totals["lines"] += done.added + done.updated

    read = 0
    try:
        async for block in blocks(body):
            arms = await arms_of(block, read + 1, catalogue.dim)
            read += len(arms)
            prepared = await catalogues.prepared(catalogue, arms)
            await stored()
            under_way = None
            yield dict(totals)
            if arms:
                under_way = asyncio.create_task(catalogues.write(catalogue, prepared))
        await stored()
    except (Invalid, TooLarge, BadRequest) as error:
        await stored()
        where = f"arm {error.errors[0][0][0]}: " if error.errors and error.errors[0][0] else ""
        told = f"The first {totals['lines']} arms were applied, nothing after them was"
        error.detail = f"{where}{error.detail}. {told}"
        raise
    finally:
        if under_way is not None:
            under_way.cancel()  # unless it is done: nobody waits for it
    yield totals


async def _lines(body: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Lines with their numbers from 1, without those that are blank; none is kept beyond its limit."""
    number, pieces, size = 1, list[bytes](), 0
    async for chunk in body:
        await yield_to_others()
        *complete, rest = chunk.split(b"\n")
        for end in complete:
            line = b"".join((*pieces, end))
            pieces, size = [], 0
            if line.strip():
                yield number, _short(line, len(line), number)
            number += 1
            if number % YIELD_LINES == 0:
                await yield_to_others()
        pieces.append(rest)
        size += len(rest)
        _short(rest, size, number)
    if line := b"".join(pieces).strip():
        yield number, line


def _short(line: bytes, size: int, number: int) -> bytes:
    if size > MAX_LINE_BYTES:
        error = TooLarge(f"a line must not be longer than {MAX_LINE_BYTES} bytes", path=(number,))
        raise _at(error, number)
    return line


async def _parse(line: bytes, number: int, dim: int) -> Arm:
    try:
        arm = await read_body(ArmBody, line, (number,))
    except ShortlistError as error:
        raise _at(error, number) from None
    if len(arm.features) != dim:
        message = f"features must have {dim} numbers, not {len(arm.features)}"
        raise _at(DimensionMismatch(message, path=(number, "features")), number)
    return as_arm(arm)


def _at(error: ShortlistError, number: int) -> ShortlistError:
    error.detail = f"line {number}: {error.detail}. The lines before it were applied, nothing after it was"
    return error


async def _progress(steps: AsyncIterator[dict[str, int]]) -> AsyncIterator[bytes]:
    try:
        async for step in steps:
            yield msgspec.json.encode(step) + b"\n"
    except ShortlistError as error:
        yield problem_of(error) + b"\n"
