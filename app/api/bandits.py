"""/v1/bandits: bandits; their learners are in ``learners``, history for them in ``observations``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import Query, Request, Response
from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_serializer,
    model_validator,
)

from app.api.contexts import ContextRuleBody, rule
from app.api.etags import check, if_match
from app.api.fields import Delta, Identifier, Page, PageLimit, Temperature, Value
from app.api.filters import FilterBody, parsed_filter
from app.api.limits import (
    MAX_DIM,
    MAX_EXPLORE_CENTERS,
    MAX_HALF_LIFE_S,
    MAX_IDLE_TTL_S,
    MAX_K,
    MAX_KEEP_S,
    MAX_PRIOR_STRENGTH,
    MAX_WAIT_S,
    MIN_KEEP_S,
)
from app.api.merge_patch import as_json, merged, patch_model
from app.api.problems import problems
from app.api.services import Provided
from app.api.strict_json import StrictModel, invalid, json_router, reply, reply_with
from app.errors import NotChangeable
from app.services.bandits.bandits import Bandit, Bandits
from app.services.bandits.versions import etag_of
from app.services.choosing.policies import POLICIES, PolicyName
from app.services.choosing.policy import SPECIAL_OPTIONS
from app.services.formats.records import (
    CHANGES,
    BanditRecord,
    BanditVersion,
    ExploreRule,
    HoldoutRule,
    LogRule,
    RewardRule,
)
from app.services.measuring.evaluation_warnings import warnings_of_log

router = json_router(prefix="/v1/bandits", tags=["bandits"])


def _theory_or_number(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """One message about the field, not one about each thing it could be."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError('must be a number from 0 to 1000000, or "theory"') from None


def _all_or_number(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        raise ValueError(f'must be a whole number from 1 to {MAX_DIM}, or "all"') from None


Interactions = Annotated[
    Annotated[int, Field(ge=1, le=MAX_DIM)] | Literal["all"], WrapValidator(_all_or_number)
]
Exploration = Annotated[
    Annotated[float, Field(ge=0, le=1e6)] | Literal["theory"], WrapValidator(_theory_or_number)
]


class RewardBody(StrictModel):
    """With ``wait_s`` a decision that gets no reward counts as ``default``; else it teaches nothing."""

    min: Value | None = None
    max: Value | None = None
    aggregate: Literal["first", "sum"] = "first"
    wait_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None
    default: Value | None = None

    @model_validator(mode="after")
    def _consistent(self) -> RewardBody:
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError("min must be less than max")
        if self.default is not None and self.wait_s is None:
            raise ValueError("default needs wait_s: how long a reward is waited for")
        default = 0.0 if self.default is None else self.default
        low = self.min is not None and default < self.min
        if self.wait_s is not None and (low or (self.max is not None and default > self.max)):
            raise ValueError("default (0 if absent) must be a reward from min to max")
        return self


class ExploreBody(StrictModel):
    """A new key is shown this many arms first, which cover the catalogue."""

    centers: Annotated[int, Field(ge=1, le=MAX_EXPLORE_CENTERS)]


class ServedArmsBody(StrictModel):
    arms: Annotated[list[Identifier], Field(min_length=1, max_length=MAX_K)]

    @field_validator("arms")
    @classmethod
    def _distinct(cls, arms: list[str]) -> list[str]:
        if len(set(arms)) < len(arms):
            raise ValueError("an arm must not be named twice")
        return arms


def _random_or_arms(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        reason = f'must be "random", or {{"arms": [...]}} with 1 to {MAX_K} ids, each once'
        raise ValueError(reason) from None


class HoldoutBody(StrictModel):
    """This share of the keys, or of the decisions of a global bandit, is served without the policy."""

    share: Annotated[float, Field(ge=0, le=1)]
    serve: Annotated[Literal["random"] | ServedArmsBody, WrapValidator(_random_or_arms)] = "random"


class LogBody(StrictModel):
    """This share of the decisions is kept with its rewards, for ``keep_s``."""

    keep_s: Annotated[float, Field(ge=MIN_KEEP_S, le=MAX_KEEP_S)] = 604_800.0
    share: Annotated[float, Field(gt=0, le=1)] = 1.0


class BanditBody(StrictModel):
    """``exploration``: ``theory`` is the paper's radius. It is proved for features of norm at most 1 (with a
    context those of arm and context together), for the plain prior and without a half-life.
    ``shift_rewards``: for best mean rewards below 0; a learner then has an ``offset`` too. ``solver``: how
    sub_ts searches; ``adaptive`` is the paper's ladder, its ratio ``eta`` (horizon^-1/2 if absent).
    ``context``: what every choice is told besides. ``interactions``: how many directions of the arms it acts
    on, all if absent.
    """

    catalogue: Identifier
    policy: PolicyName
    scope: Literal["global", "per_key"] = "global"
    ridge: Annotated[float, Field(ge=1e-9, le=1e9)] = 1.0
    exploration: Exploration = 1.0
    delta: Delta = 0.05
    horizon: Annotated[int, Field(ge=1, le=10**12)] = 20_000
    shortlist: Annotated[int, Field(ge=1, le=MAX_K)] = 30
    eta: Annotated[float, Field(gt=0, lt=1)] | None = None
    reward: RewardBody = RewardBody()
    prior: Literal["plain", "pooled"] = "plain"
    prior_strength: Annotated[float, Field(gt=0, le=MAX_PRIOR_STRENGTH)] = 0.3
    half_life_s: Annotated[float, Field(ge=1, le=MAX_HALF_LIFE_S)] | None = None
    idle_ttl_s: Annotated[float, Field(ge=1, le=MAX_IDLE_TTL_S)] | None = None
    temperature: Temperature | None = None
    gamma: Annotated[float, Field(ge=0, le=1e9)] | None = None
    explore: ExploreBody | None = None
    filter: FilterBody | None = None
    shift_rewards: bool = False
    solver: Literal["shortlist", "adaptive"] = "shortlist"
    context: ContextRuleBody | None = None
    interactions: Interactions | None = None
    holdout: HoldoutBody | None = None
    log: LogBody | None = None

    @field_validator("prior")
    @classmethod
    def _has_keys(cls, prior: str, body: ValidationInfo) -> str:
        if prior == "pooled" and body.data.get("scope") == "global":
            raise ValueError("prior: pooled needs scope: per_key; a global bandit has one learner")
        return prior


if TYPE_CHECKING:
    BanditPatch = StrictModel
else:
    BanditPatch = patch_model(BanditBody)


class BanditView(BaseModel):
    """``version`` counts from 1, when the bandit was made, and grows with every change. ``warnings``: what
    cannot be done with these settings, as sentences; absent if there are none.
    """

    id: str
    catalogue: str
    policy: str
    scope: str
    ridge: float
    exploration: float | str
    delta: float
    horizon: int
    shortlist: int
    eta: float | None
    reward: dict[str, Any]
    prior: str
    prior_strength: float
    half_life_s: float | None
    idle_ttl_s: float | None
    temperature: float | None
    gamma: float | None
    explore: dict[str, Any] | None
    shift_rewards: bool
    solver: str
    filter: dict[str, Any] | None
    context: dict[str, Any] | None = None
    interactions: int | str | None = None
    holdout: dict[str, Any] | None
    log: dict[str, Any] | None
    version: int
    warnings: list[str] = []

    @model_serializer(mode="wrap")  # its return is not typed, for then the schema would be any object
    def _warnings_if_any(self, serialize: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        found = serialize(self)
        return found if self.warnings else {name: found[name] for name in found if name != "warnings"}


class BanditVersionView(BanditView):
    """``since_ms``: when it came to be so, in ms since 1970; null where that is not known."""

    since_ms: int | None


class BanditVersionsView(BaseModel):
    items: list[BanditVersionView]
    next: str | None


@router.put("/{bandit}", response_model=BanditView, responses={**problems(409), 201: {"model": BanditView}})
async def create(bandit: Identifier, body: BanditBody, bandits: Provided[Bandits]) -> Response:
    """Make a bandit: 201 made, 200 the same one exists, 409 another one exists."""
    made, new = await bandits.create(bandit, record_of(body))
    return _reply(made, 201 if new else 200)


@router.patch("/{bandit}", response_model=BanditView, responses=problems(409, 412, 429))
async def change(
    bandit: Identifier, body: BanditPatch, request: Request, bandits: Provided[Bandits]
) -> Response:
    """Change a bandit by a JSON merge patch (RFC 7396); its learners are kept. null: back to the default.

    With If-Match it is changed only if it is still what that ETag was given for, else 412.
    """
    patch, wanted_tags = as_json(body), if_match(request)

    def changed(uid: str, version: BanditVersion) -> BanditRecord:
        check(etag_of(uid, version.number), wanted_tags)
        return changed_record(version.record, patch)

    return _reply(await bandits.change(bandit, changed))


@router.get("/{bandit}/versions", response_model=BanditVersionsView)
async def versions(
    bandit: str,
    bandits: Provided[Bandits],
    cursor: Annotated[str | None, Query()] = None,
    limit: Annotated[PageLimit, Query()] = 100,
) -> Response:
    """What a bandit is and was, the newest version first."""
    page, following = await bandits.history(await bandits.get(bandit), cursor, limit)
    items = (BanditVersionView(**_fields(bandit, version), since_ms=version.since_ms) for version in page)
    return await reply_with("items", (item.model_dump() for item in items), next=following)


@router.get("", response_model=Page[BanditView])
async def list_all(
    bandits: Provided[Bandits],
    cursor: Annotated[str | None, Query()] = None,
    limit: Annotated[PageLimit, Query()] = 100,
) -> Page[BanditView]:
    """All bandits by name."""
    page, following = bandits.page(cursor, limit)
    return Page(items=[_view(item) for item in page], next=following)


@router.get("/{bandit}", response_model=BanditView)
async def get(bandit: str, bandits: Provided[Bandits]) -> Response:
    """One bandit as it is now."""
    return _reply(await bandits.get(bandit))


@router.delete("/{bandit}", status_code=204)
async def delete(bandit: str, bandits: Provided[Bandits]) -> Response:
    """Delete a bandit and all that it has learned."""
    await bandits.delete(bandit)
    return Response(status_code=204)


def record_of(body: BanditBody) -> BanditRecord:
    """The record of a body. Raises Invalid."""
    settings = body.model_dump(exclude={"reward", "explore", "context", "interactions", "holdout", "log"})
    explore = None if body.explore is None else ExploreRule(**body.explore.model_dump())
    parsed_filter(body.filter)
    holdout = None if body.holdout is None else msgspec.convert(body.holdout.model_dump(), HoldoutRule)
    return BanditRecord(
        **settings,
        holdout=holdout,
        log=None if body.log is None else LogRule(**body.log.model_dump()),
        reward=RewardRule(**body.reward.model_dump()),
        explore=explore,
        context=rule(body.context),
        interactions=msgspec.UNSET if body.interactions is None else body.interactions,
    )


def changed_record(record: BanditRecord, patch: dict[str, Any]) -> BanditRecord:
    """The record after a patch. Raises NotChangeable, Invalid."""
    now = _settings(record)
    after = merged(now, patch)
    fixed = [
        ((name,), f"{name} cannot be changed: {reason}")
        for name, reason in CHANGES.items()
        if reason is not None and name in patch and after.get(name, _default(name)) != now.get(name)
    ]
    if fixed:
        raise NotChangeable.many(fixed)
    for name in _left_behind(record.policy, after.get("policy")) - patch.keys():
        after.pop(name, None)
    try:
        changed = record_of(BanditBody.model_validate(after))
    except ValidationError as error:
        raise invalid(error) from None
    return msgspec.structs.replace(changed, directions=record.directions)


def _left_behind(before: str, policy: object) -> set[str]:
    """The options that go when one policy takes the place of another: it has none of that name.

    An option that learners depend on stays, so that the change is refused.
    """
    row = POLICIES.get(policy) if isinstance(policy, str) else None
    if row is None or policy == before:
        return set()
    return {name for name in SPECIAL_OPTIONS if name not in row.options and CHANGES[name] is None}


def _default(name: str) -> Any:
    return BanditBody.model_fields[name].default


def _reply(bandit: Bandit, status: int = 200) -> Response:
    answer = reply(_view(bandit), status)
    answer.headers["etag"] = bandit.etag
    return answer


def _view(bandit: Bandit) -> BanditView:
    return BanditView(**_fields(bandit.name, bandit.version))


def _fields(name: str, version: BanditVersion) -> dict[str, Any]:
    warnings = warnings_of_log(version.record)
    return {"id": name, **_settings(version.record), "version": version.number, "warnings": warnings}


def _settings(record: BanditRecord) -> dict[str, Any]:
    """A record as a body asks for it: its directions are nobody's choice."""
    settings: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(record, directions=msgspec.UNSET))
    return settings
