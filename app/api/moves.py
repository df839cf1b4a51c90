"""/v1/bandits/{b}/move: another catalogue, with the same arms by other features, and what was learned."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Request, Response
from pydantic import BaseModel, BeforeValidator, Field

from app.api.fields import Identifier
from app.api.guard import check_catalogue, key_name
from app.api.problems import problems
from app.api.strict_json import Provided, StrictModel, json_router, reply
from app.bandits.spaces import Carry
from app.moving.move_plan import NEW_BANDIT
from app.moving.moving import Moving

router = json_router(prefix="/v1/bandits", tags=["bandits"])


def _carry(asked: object) -> object:
    """Clients of 2.0 send ``auto`` where nobody asked for anything else."""
    if asked in ("log", "restore"):
        raise ValueError(f"a move carries learners by the map alone. {NEW_BANDIT}")
    return "map" if asked == "auto" else asked


class MoveBody(StrictModel):
    """``carry``: how learners come along. ``map``: by the least-squares map between the features of the
    common arms of both catalogues, and not at all where the map explains less than a tenth of the new ones;
    ``none``: they begin from nothing. ``dry_run``: nothing is changed.
    """

    catalogue: Identifier
    carry: Annotated[Carry, BeforeValidator(_carry)] = "map"
    dry_run: bool = False


class MovedArmsView(BaseModel):
    """Numbers of arms: of both catalogues, and of only one of them."""

    common: int
    only_from: int
    only_to: int


class ArmMapView(BaseModel):
    """``r2``: how much of the new features the map explains, of arms outside of the fit. ``shown``:
    whether arms count by how often the decision log shows them, or all alike.
    """

    r2: float
    shown: Literal["log", "all"]


class MoveView(BaseModel):
    """The effects of a move, or of a dry run, ``from`` one catalogue ``to`` another.

    ``map``: null where nothing is carried. ``agreement``: the correlation of learners' estimates of arms
    before and after, in the mean of a sample of them; null without learners. ``learners``: their number.
    ``warnings``: changes, as sentences; of a dry run also reasons for a refusal.
    """

    from_: str = Field(alias="from")
    to: str
    carry: Carry
    arms: MovedArmsView
    map: ArmMapView | None
    agreement: float | None
    learners: int
    warnings: list[str]
    bandit_version: int


class MoveStatusView(BaseModel):
    """A move whose learners are being carried: ``carried`` is the share of finished partitions."""

    from_: str = Field(alias="from")
    to: str
    carry: Carry
    learners: int
    carried: float


@router.post("/{bandit}/move", response_model=MoveView, responses=problems(409, 429))
async def move(bandit: str, body: MoveBody, request: Request, moving: Provided[Moving]) -> Response:
    """Move a bandit to another catalogue, and carry its learners. A repeated call changes nothing.

    From then on every choice is from the new catalogue. Earlier decisions can be rewarded as before.
    """
    check_catalogue(request, body.catalogue)
    answer = await moving.move(bandit, body.catalogue, body.carry, dry_run=body.dry_run, by=key_name(request))
    return reply(answer)
