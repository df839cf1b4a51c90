"""A call: how many arms a catalogue has."""

from __future__ import annotations

from shortlist_service.routes import Catalogues, Provided, Response, Routes, json_router, reply

router = json_router(prefix="/v1/sizes", tags=["sizes"])


@router.get("/{catalogue}")
async def size(catalogue: str, catalogues: Provided[Catalogues]) -> Response:
    """The number of arms of a catalogue."""
    return reply({"arms": len((await catalogues.get(catalogue)).index)})


class Sizes(Routes):
    """``GET /v1/sizes/{catalogue}``, for keys of scope ``read``."""

    router = router
    scopes = {"GET": "read"}  # noqa: RUF012 - nobody changes it
