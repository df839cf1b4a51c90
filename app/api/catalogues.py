"""/v1/catalogues: catalogues; their arms are in ``arms``, the import of arms in ``imports``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel, Field

from app.api.fields import Identifier, Page, PageLimit, page_reply
from app.api.limits import MAX_DIM, MAX_K
from app.api.problems import problems
from app.api.strict_json import Provided, StrictModel, json_router, reply
from app.catalogues.catalogues import Catalogue, Catalogues
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.records.records import CatalogueRecord

SHOWN_FILTERS = 20

router = json_router(prefix="/v1/catalogues", tags=["catalogues"])


class IndexBody(StrictModel):
    """``target_recall``: the fastest structure that finds this share of the best arms serves."""

    kind: Literal["auto", "exact", "hnsw", "milvus"] = "auto"
    m: Annotated[int, Field(ge=4, le=128)] = 16
    ef_construction: Annotated[int, Field(ge=8, le=2_000)] = 100
    ef_search: Annotated[int, Field(ge=1, le=10_000)] | None = None
    shortlist: Annotated[int, Field(ge=1, le=MAX_K)] = 30
    target_recall: Annotated[float, Field(ge=0.8, le=0.999)] = 0.95


class CatalogueBody(StrictModel):
    dim: Annotated[int, Field(ge=1, le=MAX_DIM)]
    index: IndexBody = IndexBody()


class FilterView(BaseModel):
    """A filter in use. ``way``: the strategy by which its arms are searched; recall and ratio as measured for
    it, ``expected_us`` the typical time of a search.
    """

    filter: dict[str, Any]
    eligible: int
    way: str = Field(validation_alias="strategy")
    uses: int
    recall_at_1: float
    ratio_mean: float
    expected_us: float
    reason: str


class CatalogueView(BaseModel):
    """``filters``: those that were asked most often of late.

    ``index``: ``kind`` is what serves, ``exact`` whether every search is exact: by ``exact``, a plain scan,
    and by ``norm_pruned``, which reads the longest arms first and stops where no other can win.
    ``recall_at_1``, ``recall_at_10`` and ``recall_at_100`` are of the best arm and of lists; the last two are
    absent where the arms are in Milvus, where lists are not measured.
    """

    id: str
    dim: int
    size: int
    version: int
    index: dict[str, Any]
    filters: list[FilterView]


@router.put(
    "/{catalogue}", response_model=CatalogueView, responses={**problems(409), 201: {"model": CatalogueView}}
)
async def create(
    catalogue: Identifier,
    body: CatalogueBody,
    catalogues: Provided[Catalogues],
    filtered: Provided[FilteredSnapshots],
) -> Response:
    """Make a catalogue: 201 made, 200 the same one exists, 409 another one exists."""
    record = CatalogueRecord(
        body.dim, body.index.model_dump(exclude={"target_recall"}), body.index.target_recall
    )
    made, new = await catalogues.create(catalogue, record)
    return reply(_view(made, filtered), 201 if new else 200)


@router.get("", response_model=Page[CatalogueView])
async def list_all(
    catalogues: Provided[Catalogues],
    filtered: Provided[FilteredSnapshots],
    cursor: Annotated[str | None, Query()] = None,
    limit: Annotated[PageLimit, Query()] = 100,
) -> Response:
    """All catalogues by name."""
    page, following = catalogues.page(cursor, limit)
    return await page_reply(((item.name, _view(item, filtered)) for item in page), following)


@router.get("/{catalogue}", response_model=CatalogueView)
async def get(
    catalogue: str, catalogues: Provided[Catalogues], filtered: Provided[FilteredSnapshots]
) -> CatalogueView:
    """One catalogue: its size, its version, and how it is searched."""
    return _view(await catalogues.get(catalogue), filtered)


@router.delete("/{catalogue}", status_code=204, responses=problems(409))
async def delete(catalogue: str, catalogues: Provided[Catalogues]) -> Response:
    """Delete a catalogue with its arms; 409 while a bandit uses it."""
    await catalogues.delete(catalogue)
    return Response(status_code=204)


def _view(catalogue: Catalogue, filtered: FilteredSnapshots) -> CatalogueView:
    index: dict[str, Any] = {"requested": catalogue.record.index["kind"], **asdict(catalogue.index.status())}
    return CatalogueView(
        id=catalogue.name,
        dim=catalogue.dim,
        size=len(catalogue.index),
        version=catalogue.version,
        index=index,
        filters=[FilterView(**asdict(status)) for status in filtered.in_use(catalogue, SHOWN_FILTERS)],
    )
