"""POST /v1/catalogues/{c}/import: arms as NDJSON, streamed, of any size.

Lines are applied in batches as they arrive. At the first bad line the import stops: the lines before it are
applied, nothing after it is. With ``Accept: application/x-ndjson`` the answer is streamed too, one progress
line a batch and the result (or the problem document) as the last line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from app.api.catalogues import as_arm
from app.api.problems import problem_of
from app.api.schemas import ArmBody, UpsertedView
from app.api.strict_json import JsonRoute, invalid, reply
from app.errors import Invalid, ShortlistError, TooLarge
from app.services.catalogues import Arm, Catalogue, Catalogues

NDJSON = "application/x-ndjson"
BATCH_ARMS = 1_000
BATCH_NUMBERS = 1_000_000
MAX_LINE_BYTES = 1 << 20


def router(catalogues: Catalogues) -> APIRouter:
    routes = APIRouter(prefix="/v1/catalogues", tags=["catalogues"], route_class=JsonRoute)

    @routes.post(
        "/{catalogue}/import",
        response_model=UpsertedView,
        openapi_extra={
            "requestBody": {"required": True, "content": {NDJSON: {"schema": {"type": "string"}}}}
        },
    )
    async def import_arms(catalogue: str, request: Request) -> Response:
        """Insert or replace arms, one JSON document a line."""
        steps = _import(catalogues, catalogues.get(catalogue), request.stream())
        if NDJSON in request.headers.get("accept", ""):
            return StreamingResponse(_progress(steps), media_type=NDJSON)
        *_, result = [step async for step in steps]
        return reply({name: count for name, count in result.items() if name != "lines"})

    return routes


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
    async for number, line in _lines(body):
        try:
            arm = _parse(line, number, catalogue.dim)
        except ShortlistError:
            await apply()
            raise
        if arm.id in batch or len(batch) >= most:
            await apply()
            totals["lines"] = number - 1
            yield dict(totals)
        batch[arm.id] = arm
    await apply()
    totals["lines"] = number
    yield totals


async def _lines(body: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Lines with their numbers from 1, without those that are blank."""
    number, rest = 0, b""
    async for chunk in body:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            number += 1
            if line.strip():
                yield number, line
        if len(rest) > MAX_LINE_BYTES:
            raise TooLarge(f"a line must not be longer than {MAX_LINE_BYTES} bytes", loc=("body", number + 1))
    if rest.strip():
        yield number + 1, rest


def _parse(line: bytes, number: int, dim: int) -> Arm:
    try:
        arm = ArmBody.model_validate_json(line)
    except ValidationError as error:
        raise _at(invalid(error, ("body", number)), number) from None
    if len(arm.features) != dim:
        message = f"features must have {dim} numbers, not {len(arm.features)}"
        raise _at(Invalid(message, loc=("body", number, "features")), number)
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
