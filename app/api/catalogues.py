"""/v1/catalogues: catalogues; their arms are in ``arms``, the import of arms in ``imports``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from fastapi import Query, Request, Response
from msgspec.structs import replace
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from app.api.fields import Cursor, Identifier, Limit, Page, page_of, page_reply
from app.api.guard import key_of, sees_all_bandits, sees_catalogue
from app.api.problems import problems
from app.api.request_limits import MAX_BODY_BYTES, MAX_DIM, MAX_K
from app.api.resource_changes import as_json, merged
from app.api.streamed_answers import Streamed, with_rows
from app.api.strict_json import JSON, Provided, StrictModel, json_router, reply
from app.catalogues.catalogue import Catalogue, UnlistedValues, unlisted_values
from app.catalogues.catalogue_kinds import INDEX_CHOICES, check_installed
from app.catalogues.catalogues import Catalogues
from app.filtering.known_filter import FilterStatus
from app.filters.fields import MAX_FIELD_CHARS
from app.filters.overview import FieldOverview, FieldSummary
from app.platform.errors import Invalid
from app.platform.pools import REQUESTS
from app.records.encoding import words_of_slots
from app.records.features import FeatureEncoding, FeaturesRule, Reduction, completed, warnings_of
from app.records.records import CatalogueRecord
from app.replication.health import Finding, features_replaced

SHOWN_FILTERS = 20

router = json_router(prefix="/v1/catalogues", tags=["catalogues"])


if TYPE_CHECKING:
    IndexChoice = str
else:
    IndexChoice = Annotated[Literal[INDEX_CHOICES], BeforeValidator(check_installed)]

DisplayField = Annotated[str, Field(min_length=1, max_length=MAX_FIELD_CHARS)]


class IndexBody(StrictModel):
    """``target_recall``: the fastest structure that finds this share of the best arms serves. ``kind``: also
    one that a plug-in provides.
    """

    kind: IndexChoice = "auto"
    m: Annotated[int, Field(ge=4, le=128)] = 16
    ef_construction: Annotated[int, Field(ge=8, le=2_000)] = 100
    ef_search: Annotated[int, Field(ge=1, le=10_000)] | None = None
    shortlist: Annotated[int, Field(ge=1, le=MAX_K)] = 30
    target_recall: Annotated[float, Field(ge=0.8, le=0.999)] = 0.95


class DisplayBody(StrictModel):
    """``title``: the field of the metadata that names an arm for people. ``picture``: one with the address of
    its picture.
    """

    title: DisplayField | None = None
    picture: DisplayField | None = None

    @model_validator(mode="after")
    def _has_one(self) -> DisplayBody:
        if self.title is None and self.picture is None:
            raise ValueError("title or picture must be given")
        return self


class CatalogueBody(StrictModel):
    """``dim`` numbers are given as the features of each arm, or ``features`` says what they are made from:
    then ``dim`` follows. ``display`` may differ from that of the catalogue which exists: it is changed;
    absent: it stays.
    """

    max_bytes: ClassVar[int] = MAX_BODY_BYTES
    max_object_bytes: ClassVar[int] = MAX_BODY_BYTES

    dim: Annotated[int, Field(ge=1, le=MAX_DIM)] | None = None
    index: IndexBody = IndexBody()
    features: FeaturesRule | None = None
    display: DisplayBody | None = None

    def record(self) -> CatalogueRecord:
        """The record of the new catalogue. Raises Invalid."""
        index, recall = self.index.model_dump(exclude={"target_recall"}), self.index.target_recall
        display = None if self.display is None else self.display.model_dump(exclude_none=True)
        if self.features is None:
            if self.dim is None:
                raise Invalid("dim is required, or features, from which it follows", path=("dim",))
            return CatalogueRecord(self.dim, index, recall, display=display)
        rule, reduction = completed(self.features)
        dim = FeatureEncoding(rule, reduction, 0).dim
        if self.dim is not None and self.dim != dim:
            raise Invalid(f"dim follows from features, and is {dim}: leave it out", path=("dim",))
        return CatalogueRecord(dim, index, recall, rule, reduction, display)


class FitBody(StrictModel):
    """Nothing."""

    absent: ClassVar[bytes] = b"{}"


class ReductionView(BaseModel):
    """The reduction of the embeddings. ``state``: ``not_fitted`` until there are enough arms,
    ``given`` with the catalogue, or ``fitted`` to so many ``arms``: then ``share_of_variance`` is the kept
    part of their squared lengths, and ``overlap_at_10`` the number of an arm's 10 nearest which stay among
    them.
    """

    to: int
    state: Literal["not_fitted", "given", "fitted"]
    arms: int
    share_of_variance: float | None
    overlap_at_10: float | None


class DisplayPatch(StrictModel):
    title: DisplayField | None = None
    picture: DisplayField | None = None


class CataloguePatch(StrictModel):
    display: DisplayPatch | None = None


class HeldOutErrors(BaseModel):
    """Mean squared errors on held-out rewards: of the catalogue ``before``, and of this one."""

    before: float
    after: float


class HistoryPriorView(BaseModel):
    """The history's knowledge of a key before it has rewards: from so many ``keys``; so many of the
    ``directions`` in which they differ are real.
    """

    keys: int
    directions: int


class BehaviourView(BaseModel):
    """The source of an embedding: so many ``rewards`` of so many ``keys``, of so many ``arms``; arms
    ``without`` any have features from their fields.

    ``held_out``: null where nothing was held out. ``prior``: the start of new bandits; null where nothing is
    known of keys.
    """

    rewards: int
    keys: int
    arms: int
    without: int
    held_out: HeldOutErrors | None
    prior: HistoryPriorView | None


class CatalogueView(BaseModel):
    """``size``: its number of arms. ``filters``: those that were asked most often lately; none for
    an API key that does not see all bandits of the catalogue.

    ``index``: ``kind`` is what serves, ``exact`` whether every search is exact: by ``exact``, a plain scan,
    and by ``norm_pruned``, which reads the longest arms first and stops where no other can win.
    ``recall_at_1``, ``recall_at_10`` and ``recall_at_100`` are of the best arm and of lists; the last two are
    absent where the arms are in an engine, where lists are not measured. ``arms_in_memory``: true if the arms
    can be searched exactly, sorted, and their fields counted; false for an engine. ``build_left_s``: for how
    many seconds more a structure will be built, by its own progress, before it is measured; null where none
    is built, before its first part is, and in processes that wait for another one to build it. Absent where
    the arms are in an engine.

    Of a catalogue with ``features``: what these are made from, without a basis; ``columns``, what each
    number means; ``reduction`` of its embedding; ``unlisted`` values of fields, which count as missing:
    absent in lists, and where the arms are in an engine. ``basis``: where it is asked for. ``warnings``: what
    these features cost; absent if nothing is to be said. ``findings``: what is wrong with it, as in
    `/v1/status`; absent if nothing is.

    Of a catalogue that ``follows`` another one: ``behaviour``, of which its features are an embedding;
    ``filled``: whether it has had all arms. ``state``: its index, or what has its arms, is of a
    plug-in that is not loaded here, so its bandits choose nothing; else absent.
    """

    id: str
    state: Literal["plugin_missing"] | None = None
    dim: int
    size: int
    version: int
    index: dict[str, Any]
    filters: list[FilterStatus]
    features: FeaturesRule | None = None
    columns: list[str] | None = None
    reduction: ReductionView | None = None
    unlisted: dict[str, UnlistedValues] | None = None
    basis: list[list[float]] | None = None
    warnings: list[str] | None = None
    findings: list[Finding] | None = None
    display: DisplayBody | None = None
    follows: str | None = None
    filled: bool | None = None
    behaviour: BehaviourView | None = None


@router.put(
    "/{catalogue}",
    response_model=CatalogueView,
    responses={**problems(409, 429), 201: {"model": CatalogueView}},
)
async def create(
    catalogue: Identifier, body: CatalogueBody, request: Request, catalogues: Provided[Catalogues]
) -> Response:
    """Make a catalogue: 201 made, 200 the same one exists, 409 another one exists.

    ``display`` of one that exists is changed.
    """
    record = body.record()
    created, new = await catalogues.create(catalogue, record)
    if record.display is not None and created.record.display != record.display:
        created = await catalogues.change(catalogue, lambda _: record.display)
    return await answer_of(request, created, 201 if new else 200)


@router.get("", response_model=Page[CatalogueView])
async def list_all(
    request: Request, catalogues: Provided[Catalogues], cursor: Cursor = None, limit: Limit = 100
) -> Response:
    """All catalogues by name; for a restricted API key its own, and those of its bandits."""
    key, service = key_of(request), request.app.service
    page, following = catalogues.page(cursor, limit, lambda name: sees_catalogue(key, name, service))
    views = ((item.name, _view(item, _shown_filters(request, item))) for item in page)
    return await page_reply(views, following)


@router.get("/{catalogue}", response_model=CatalogueView)
async def get(
    catalogue: str,
    request: Request,
    catalogues: Provided[Catalogues],
    include: Annotated[Literal["basis"] | None, Query()] = None,
) -> Response:
    """One catalogue: its size, its version, and how it is searched."""
    asked = await catalogues.get(catalogue)
    await catalogues.note_filled(asked)
    answer = await _whole_view(request, asked)
    if await catalogues.has_replaced_features(asked):
        answer["findings"] = [asdict(features_replaced(catalogue))]
    if include is None or asked.encoding.basis is None:
        return reply(answer)
    basis = asked.encoding.basis.astype(np.float64)
    return await Streamed.of(with_rows({**answer, "basis": basis}), media_type=JSON)


@router.post("/{catalogue}/features/fit", response_model=CatalogueView, responses=problems(409))
async def fit(
    catalogue: str,
    request: Request,
    catalogues: Provided[Catalogues],
    body: FitBody = FitBody(),  # noqa: ARG001 - read, so that a field in it is refused
) -> Response:
    """Reduce the embeddings by the basis that fits the arms of now best. It is kept: what is fitted stays."""
    asked = await catalogues.get_stocked(catalogue)
    await catalogues.fit(asked)
    return await answer_of(request, asked)


@router.patch("/{catalogue}", response_model=CatalogueView)
async def change(
    catalogue: str, body: CataloguePatch, request: Request, catalogues: Provided[Catalogues]
) -> Response:
    """Change how a catalogue is shown to people, by a JSON merge patch (RFC 7396). All else is immutable."""
    patch = as_json(body)
    changed = await catalogues.change(
        catalogue, lambda display: merged({"display": display}, patch).get("display") or None
    )
    return await answer_of(request, changed)


@router.get("/{catalogue}/fields", response_model=page_of(FieldSummary))
async def fields(
    catalogue: str, catalogues: Provided[Catalogues], cursor: Cursor = None, limit: Limit = 100
) -> Response:
    """The fields of the arms by name: what a filter can ask for, and of which types the values are."""
    owner = await catalogues.get_stocked(catalogue)
    owner.need_arms("counting values")
    snapshot = owner.index.snapshot()

    rule = owner.record.features
    hashed = {field.name: field.size or 1 for field in (rule and rule.fields) or () if field.kind == "hash"}

    def page() -> tuple[list[FieldSummary], str | None]:
        overview = FieldOverview(snapshot.attributes, snapshot.table.live_rows)
        items, following = overview.page(cursor, limit)
        for number, item in enumerate(items):
            if item.field in hashed:
                words = words_of_slots(hashed[item.field], overview.texts(item.field))
                items[number] = replace(item, words=words)
        return items, following

    items, following = await REQUESTS.run(page)
    return reply({"items": items, "next": following})


@router.delete("/{catalogue}", status_code=204, responses=problems(409))
async def delete(catalogue: str, catalogues: Provided[Catalogues]) -> None:
    """Delete a catalogue with its arms; 409 while a bandit uses it."""
    await catalogues.delete(catalogue)


async def answer_of(request: Request, catalogue: Catalogue, status: int = 200) -> Response:
    """One catalogue as the caller sees it."""
    return reply(await _whole_view(request, catalogue), status)


def _shown_filters(request: Request, catalogue: Catalogue) -> Sequence[FilterStatus]:
    """The filters shown: of all bandits of the catalogue, so none for a caller who does not see all of
    these.
    """
    service = request.app.service
    if not sees_all_bandits(key_of(request), catalogue.name, service.bandits):
        return []
    filters: Sequence[FilterStatus] = service.filtered.in_use(catalogue, SHOWN_FILTERS)
    return filters


async def _whole_view(request: Request, catalogue: Catalogue) -> dict[str, Any]:
    """The view with unlisted values."""
    view, listed = _view(catalogue, _shown_filters(request, catalogue)), catalogue.encoding.listed
    if listed and catalogue.resident is not None:
        # Whoever waits for an index asks again and again: all arms are counted once for each version.
        version, snapshot = catalogue.version, catalogue.resident.snapshot()
        if catalogue.unlisted[0] != version:
            catalogue.unlisted = version, await REQUESTS.run(partial(unlisted_values, snapshot, listed))
        view["unlisted"] = catalogue.unlisted[1]
    return view


def _view(catalogue: Catalogue, filters: Sequence[FilterStatus]) -> dict[str, Any]:
    index: dict[str, Any] = {
        "requested": catalogue.record.index["kind"],
        "arms_in_memory": catalogue.resident is not None,
        **asdict(catalogue.index.status()),
    }
    view: dict[str, Any] = {
        "id": catalogue.name,
        "dim": catalogue.dim,
        "size": len(catalogue.index),
        "version": catalogue.version,
        "index": index,
        "filters": filters,
        "display": catalogue.record.display,
    }
    if catalogue.missing_plugin is not None:
        view["state"] = "plugin_missing"
    encoding = catalogue.encoding
    if encoding.rule is not None:
        view |= {"features": encoding.rule, "columns": encoding.columns}
        if encoding.reduced_to is not None:
            view["reduction"] = _reduction(encoding.reduced_to, encoding.reduction)
    if (behaviour := catalogue.record.behaviour) is not None:
        counts = {name: getattr(behaviour, name) for name in ("rewards", "keys", "arms", "without")}
        held_out = behaviour.held_out and dict(zip(("before", "after"), behaviour.held_out, strict=True))
        view |= {"follows": behaviour.follows, "filled": catalogue.is_filled}
        prior = catalogue.record.prior
        keys_known = prior and {"keys": prior.keys, "directions": prior.directions}
        view["behaviour"] = counts | {"held_out": held_out, "prior": keys_known}
    if warnings := list(warnings_of(encoding)):
        view["warnings"] = warnings
    return view


def _reduction(to: int, fitted_or_given: Reduction | None) -> dict[str, Any]:
    reduction = fitted_or_given or Reduction(b"")
    return {
        "to": to,
        "state": "not_fitted" if fitted_or_given is None else "fitted" if fitted_or_given.arms else "given",
        "arms": reduction.arms,
        "share_of_variance": reduction.share,
        "overlap_at_10": reduction.overlap,
    }
