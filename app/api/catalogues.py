"""/v1/catalogues: catalogues and their arms."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app.api.large_json import Items
from app.api.limits import MAX_ARMS
from app.api.schemas import (
    ArmBody,
    ArmIdsBody,
    ArmsBody,
    ArmView,
    CatalogueBody,
    CatalogueView,
    DeletedView,
    Identifier,
    Page,
    PageLimit,
    UpsertedView,
)
from app.api.services import CataloguesDep
from app.api.strict_json import JsonRoute, reply
from app.errors import NotFound
from app.services.catalogues.catalogues import Arm, Catalogue
from app.services.formats.ids import refuse_repeats
from app.services.formats.records import CatalogueRecord

TWICE = "an id must not appear twice in one batch"

ArmsBody.in_pieces = Items(ArmsBody, "arms", ArmBody, MAX_ARMS)

router = APIRouter(prefix="/v1/catalogues", tags=["catalogues"], route_class=JsonRoute)


@router.put("/{catalogue}", response_model=CatalogueView)
async def create(catalogue: Identifier, body: CatalogueBody, catalogues: CataloguesDep) -> Response:
    """Make a catalogue: 201 made, 200 the same one exists, 409 another one exists."""
    record = CatalogueRecord(body.dim, body.index.model_dump())
    made, new = await catalogues.create(catalogue, record)
    return reply(_view(made), 201 if new else 200)


@router.get("", response_model=Page[CatalogueView])
async def list_all(
    catalogues: CataloguesDep,
    cursor: Annotated[str | None, Query()] = None,
    limit: Annotated[PageLimit, Query()] = 100,
) -> Page[CatalogueView]:
    """All catalogues by name."""
    page, following = catalogues.page(cursor, limit)
    return Page(items=[_view(item) for item in page], next=following)


@router.get("/{catalogue}", response_model=CatalogueView)
async def get(catalogue: str, catalogues: CataloguesDep) -> CatalogueView:
    """One catalogue: its size, its version, and how it is searched."""
    return _view(await catalogues.get(catalogue))


@router.delete("/{catalogue}", status_code=204)
async def delete(catalogue: str, catalogues: CataloguesDep) -> Response:
    """Delete a catalogue with its arms; 409 while a bandit uses it."""
    await catalogues.delete(catalogue)
    return Response(status_code=204)


@router.put("/{catalogue}/arms", response_model=UpsertedView)
async def upsert(catalogue: str, body: ArmsBody, catalogues: CataloguesDep) -> UpsertedView:
    """Insert or replace arms, all or none."""
    refuse_repeats((arm.id for arm in body.arms), TWICE, ("body", "arms"), ("id",))
    arms = [as_arm(arm) for arm in body.arms]
    done = await catalogues.use(catalogue, lambda found: catalogues.upsert(found, arms))
    return UpsertedView(added=done.added, updated=done.updated, version=done.version)


@router.get("/{catalogue}/arms", response_model=Page[ArmView])
async def list_arms(
    catalogue: str,
    catalogues: CataloguesDep,
    cursor: Annotated[str | None, Query()] = None,
    limit: Annotated[PageLimit, Query()] = 100,
) -> Page[ArmView]:
    """All arms, those that have been as they are for longest first."""
    arms, following = await catalogues.use(catalogue, lambda found: catalogues.arms(found, cursor, limit))
    return Page(items=[_arm_view(arm) for arm in arms], next=following)


@router.get("/{catalogue}/arms/{arm}", response_model=ArmView)
async def get_arm(catalogue: str, arm: str, catalogues: CataloguesDep) -> ArmView:
    """One arm with its features."""
    return _arm_view(await catalogues.use(catalogue, lambda found: catalogues.arm(found, arm)))


@router.delete("/{catalogue}/arms/{arm}", status_code=204)
async def delete_arm(catalogue: str, arm: str, catalogues: CataloguesDep) -> Response:
    """Delete one arm."""
    done = await catalogues.use(catalogue, lambda found: catalogues.remove(found, [arm]))
    if done.missing:
        raise NotFound("no arm of this id in the catalogue")
    return Response(status_code=204)


@router.post("/{catalogue}/arms/delete", response_model=DeletedView)
async def delete_arms(catalogue: str, body: ArmIdsBody, catalogues: CataloguesDep) -> DeletedView:
    """Delete the arms that are there, and name those that are not."""
    refuse_repeats(body.ids, TWICE, ("body", "ids"))
    done = await catalogues.use(catalogue, lambda found: catalogues.remove(found, body.ids))
    return DeletedView(deleted=len(done.deleted), missing=list(done.missing), version=done.version)


def as_arm(body: ArmBody) -> Arm:
    return Arm(body.id, body.features, body.tags, body.metadata)


def _arm_view(arm: Arm) -> ArmView:
    return ArmView(id=arm.id, features=list(arm.features), tags=list(arm.tags), metadata=arm.metadata)


def _view(catalogue: Catalogue) -> CatalogueView:
    index: dict[str, Any] = {"requested": catalogue.record.index["kind"], **asdict(catalogue.index.status())}
    return CatalogueView(
        id=catalogue.name,
        dim=catalogue.dim,
        size=len(catalogue.index),
        version=catalogue.version,
        index=index,
    )
