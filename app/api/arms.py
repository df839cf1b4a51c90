"""/v1/catalogues/{c}/arms: the arms of a catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from fastapi import Query, Response
from pydantic import AfterValidator, BaseModel, FailFast, Field

from app.api import request_limits as limits
from app.api.fields import Cursor, Feature, Identifier, Limit, page_of
from app.api.octet_streams import WHOLE
from app.api.problems import Part, problems
from app.api.strict_json import SEVERAL_CALLS, Provided, StrictModel, json_router, reply
from app.catalogues.arms import Arm
from app.catalogues.catalogues import Catalogues
from app.filters.fields import MAX_FIELD_CHARS
from app.platform.errors import Invalid, NotFound, shown
from app.platform.ids import refuse_repeats
from app.records.features import NO_FEATURES

router = json_router(prefix="/v1/catalogues", tags=["catalogues"])

NDJSON, BLOCKS = "application/x-ndjson", "application/vnd.shortlist.arms"  # what an import reads
LONG_METADATA = f"metadata must not be longer than {limits.MAX_METADATA_CHARS} characters"
Tags = list[Annotated[str, Field(max_length=limits.MAX_TAG_CHARS)]]
TWICE = "an id must not appear twice in one batch"


def storable(metadata: dict[str, Any]) -> dict[str, Any]:
    """Small, and made of numbers that every JSON reader can take."""
    try:
        msgspec.msgpack.encode(metadata)
        length = len(msgspec.json.encode(metadata))  # without blanks, and never longer than the next text
        if length <= limits.MAX_METADATA_CHARS:
            length = len(json.dumps(metadata, allow_nan=False))
    except (ValueError, OverflowError, RecursionError) as error:
        wrong = "" if isinstance(error, RecursionError) else next(_unstorable(metadata), "")
        text = "metadata must hold finite numbers and integers of at most 64 bits"
        raise ValueError(f"{text}, and not so {wrong}" if wrong else text) from None
    if length > limits.MAX_METADATA_CHARS:
        raise ValueError(LONG_METADATA)
    if _fields_in(metadata) > limits.MAX_METADATA_FIELDS:
        raise ValueError(
            f"metadata must not have more than {limits.MAX_METADATA_FIELDS} fields, nested ones counted"
        )
    return metadata


def _unstorable(value: object, path: str = "") -> Iterator[str]:
    """The fields, by their dotted names, of numbers that not every JSON reader can take."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _unstorable(part, f"{path}.{shown(name)}" if path else shown(name))
    elif isinstance(value, list):
        for part in value:
            yield from _unstorable(part, path)
    elif isinstance(value, float):
        if not isfinite(value):
            yield path
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        yield path


def _fields_in(value: object) -> int:
    """The number of fields at all depths. An encodable value is nested some hundred deep at most."""
    if isinstance(value, dict):
        return len(value) + sum(map(_fields_in, value.values()))
    return sum(map(_fields_in, value)) if isinstance(value, list) else 0


def absent() -> Any:
    """The value of absent features: no list, and so no empty one."""
    return NO_FEATURES


class ArmBody(StrictModel):
    """``features`` may be absent where the catalogue encodes them from ``metadata`` alone."""

    id: Identifier
    features: Annotated[list[Feature], FailFast()] = Field(default_factory=absent)
    tags: Tags = Field(default_factory=list, max_length=limits.MAX_TAGS, fail_fast=True)
    metadata: Annotated[dict[str, Any], AfterValidator(storable)] = Field(default_factory=dict)


class ArmsBody(StrictModel):
    max_bytes: ClassVar[int] = limits.MAX_BODY_BYTES
    instead: ClassVar[str] = (
        "send it in several calls, or as a stream of any size, POST /v1/catalogues/{c}/import, of lines "
        f"({NDJSON}) or of blocks of numbers ({BLOCKS}), as `shortlist import CATALOGUE FILE` does"
    )
    long_list: ClassVar[str] = "arms"

    arms: Annotated[list[ArmBody], Field(min_length=1, max_length=limits.MAX_ARMS)]


class ArmIdsBody(StrictModel):
    max_bytes: ClassVar[int] = limits.MAX_IDS_BYTES
    instead: ClassVar[str] = SEVERAL_CALLS
    long_list: ClassVar[str] = "ids"

    ids: Annotated[list[Identifier], Field(min_length=1, max_length=limits.MAX_ARMS)]


class UpsertedView(BaseModel):
    """``version`` is that of the catalogue afterwards."""

    added: int
    updated: int
    version: int


class DeletedView(BaseModel):
    """``missing`` names the arms that were not there."""

    deleted: int
    missing: list[str]
    version: int


@router.put("/{catalogue}/arms", response_model=UpsertedView, responses=problems(409))
async def upsert(catalogue: str, body: ArmsBody, catalogues: Provided[Catalogues]) -> UpsertedView:
    """Insert or replace arms, all or none. A catalogue with fields encodes them from the metadata."""
    refuse_repeats((arm.id for arm in body.arms), TWICE, ("arms",), ("id",))
    arms = [as_arm(arm) for arm in body.arms]
    done = await catalogues.use(catalogue, lambda result: catalogues.upsert(result, arms))
    return UpsertedView(added=done.added, updated=done.updated, version=done.version)


@router.get("/{catalogue}/arms", response_model=page_of(Arm))
async def list_arms(
    catalogue: str,
    catalogues: Provided[Catalogues],
    *,
    cursor: Cursor = None,
    limit: Limit = 100,
    sample_seed: Annotated[Annotated[int, WHOLE, Field(ge=0, lt=2**63)] | None, Query()] = None,
    sort: Annotated[Annotated[str, Field(min_length=1, max_length=MAX_FIELD_CHARS)] | None, Query()] = None,
    order: Annotated[Literal["asc", "desc"] | None, Query()] = None,
) -> Response:
    """All arms, the longest unchanged first; a page of long ones has fewer.

    With ``sample_seed``: ``limit`` arms drawn uniformly without replacement, and ``next`` is null. The same
    seed draws the same arms until the catalogue changes.

    With ``sort``, a field of the metadata or ``tags``: by its values, numbers before texts, and arms without
    one last; ``order`` ``desc``: the largest first. Of at most 100,000 arms.
    """
    pages = catalogues.arm_pages
    if sort is not None or order is not None:
        if sort is None or sample_seed is not None:
            what = "order" if sort is None else "sort"
            raise Invalid("needs sort, and no sample_seed", path=(Part.QUERY, what))
        by = partial(pages.page_by, name=sort, descending=order == "desc", cursor=cursor, limit=limit)
        arms, following = await catalogues.use(catalogue, by)
        return reply({"items": arms, "next": following})
    if sample_seed is not None:
        if cursor is not None:
            raise Invalid("a sample has no further pages", path=(Part.QUERY, "cursor"))
        drawn = await catalogues.use(catalogue, lambda result: pages.sample(result, sample_seed, limit))
        return reply({"items": drawn, "next": None})
    arms, following = await catalogues.use(catalogue, lambda result: pages.page(result, cursor, limit))
    return reply({"items": arms, "next": following})


@router.get("/{catalogue}/arms/{arm}", response_model=Arm)
async def get_arm(catalogue: str, arm: str, catalogues: Provided[Catalogues]) -> Arm:
    """One arm with its features."""
    return await catalogues.use(catalogue, lambda result: catalogues.arm_pages.one(result, arm))


@router.delete("/{catalogue}/arms/{arm}", status_code=204)
async def delete_arm(catalogue: str, arm: str, catalogues: Provided[Catalogues]) -> None:
    """Delete one arm."""
    done = await catalogues.use(catalogue, lambda result: catalogues.remove(result, [arm]))
    if done.missing:
        raise NotFound("the catalogue has no arm with this id")


@router.post("/{catalogue}/arms/delete", response_model=DeletedView)
async def delete_arms(catalogue: str, body: ArmIdsBody, catalogues: Provided[Catalogues]) -> DeletedView:
    """Delete these arms; the answer names missing ones."""
    refuse_repeats(body.ids, TWICE, ("ids",))
    done = await catalogues.use(catalogue, lambda result: catalogues.remove(result, body.ids))
    return DeletedView(deleted=len(done.deleted), missing=list(done.missing), version=done.version)


def as_arm(body: ArmBody) -> Arm:
    return Arm(body.id, body.features, body.tags, body.metadata)
