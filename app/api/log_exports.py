"""GET /v1/bandits/{b}/log/export: the decision log as a file, streamed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from app.api.problems import problems
from app.api.services import Provided
from app.api.streamed import Streamed
from app.api.strict_json import json_router
from app.api.times import From, To, span
from app.services.bandits.bandits import Bandits
from app.services.measuring.export import MEDIA_TYPES, Exports, FormatName

router = json_router(prefix="/v1/bandits", tags=["measuring"])


@router.get(
    "/{bandit}/log/export",
    response_class=Response,
    responses={
        **problems(501),
        200: {"content": {kind: {"schema": {"type": "string"}} for kind in MEDIA_TYPES.values()}},
    },
)
async def export(
    bandit: str,
    bandits: Provided[Bandits],
    exports: Provided[Exports],
    *,
    format: Annotated[FormatName, Query()] = "ndjson",  # noqa: A002 - the name of the parameter
    start: From = None,
    end: To = None,
) -> Response:
    """The logged decisions of a time, from <= time < to, as a file with a row for each.

    A row is that of the log; as Parquet its filter is JSON text. An answer that breaks off is not the file.
    """
    from_ms, to_ms = span(start, end)
    owner = await bandits.get(bandit)
    pieces = exports.stream(owner, format, from_ms=from_ms, to_ms=to_ms)
    return await Streamed.of(pieces, media_type=MEDIA_TYPES[format], name=f"{owner.name}.{format}")
