"""Request and response bodies: the parts that all share, catalogues, bandits, rewards."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from app.api.limits import (
    MAX_ARMS,
    MAX_BATCH,
    MAX_DIM,
    MAX_EXCLUDE,
    MAX_EXPLORE_CENTERS,
    MAX_FEATURE,
    MAX_HALF_LIFE_S,
    MAX_IDLE_TTL_S,
    MAX_K,
    MAX_METADATA_CHARS,
    MAX_PAGE,
    MAX_PRIOR_STRENGTH,
    MAX_TAGS,
    MAX_VALUE,
    MAX_WAIT_S,
)
from app.api.strict_json import StrictModel
from app.services.choosing.policies import PolicyName

_IDENTIFIER = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
Identifier = Annotated[str, StringConstraints(pattern=f"^{_IDENTIFIER}$")]
LearnerKey = Annotated[str, StringConstraints(pattern=f"^(_global|{_IDENTIFIER})$")]
Feature = Annotated[float, Field(ge=-MAX_FEATURE, le=MAX_FEATURE)]
Value = Annotated[float, Field(ge=-MAX_VALUE, le=MAX_VALUE)]
Temperature = Annotated[float, Field(ge=1e-9, le=1e9)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


T = TypeVar("T")


def _digits(text: object) -> object:
    """Query parameters are text; what Python would also read as a number (1.0, 1_0, +1) is none here."""
    if isinstance(text, str) and not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError("must be a whole number")
    return text


def _theory_or_number(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """One message about the field, not one about each thing it could be."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError('must be a number from 0 to 1000000, or "theory"') from None


PageLimit = Annotated[int, BeforeValidator(_digits), Field(ge=1, le=MAX_PAGE)]
Exploration = Annotated[
    Annotated[float, Field(ge=0, le=1e6)] | Literal["theory"], WrapValidator(_theory_or_number)
]


def _storable(metadata: dict[str, Any]) -> dict[str, Any]:
    """Small, and made of numbers that every JSON reader can take."""
    try:
        msgspec.msgpack.encode(metadata)
        text = json.dumps(metadata, allow_nan=False)
    except (ValueError, OverflowError, RecursionError):
        raise ValueError("metadata must hold finite numbers and integers of at most 64 bits") from None
    if len(text) > MAX_METADATA_CHARS:
        raise ValueError(f"metadata must not be longer than {MAX_METADATA_CHARS} characters")
    return metadata


# Catalogues and arms --------------------------------------------------------------------------------
class IndexBody(StrictModel):
    kind: Literal["auto", "exact", "hnsw"] = "auto"
    m: Annotated[int, Field(ge=4, le=128)] = 16
    ef_construction: Annotated[int, Field(ge=8, le=2_000)] = 100
    ef_search: Annotated[int, Field(ge=1, le=10_000)] | None = None
    shortlist: Annotated[int, Field(ge=1, le=MAX_K)] = 30


class CatalogueBody(StrictModel):
    dim: Annotated[int, Field(ge=1, le=MAX_DIM)]
    index: IndexBody = IndexBody()


class ArmBody(StrictModel):
    id: Identifier
    features: list[Feature]
    tags: list[Annotated[str, Field(max_length=128)]] = Field(default_factory=list, max_length=MAX_TAGS)
    metadata: Annotated[dict[str, Any], AfterValidator(_storable)] = Field(default_factory=dict)


class ArmsBody(StrictModel):
    arms: Annotated[list[ArmBody], Field(min_length=1, max_length=MAX_ARMS)]


class ArmIdsBody(StrictModel):
    ids: Annotated[list[Identifier], Field(min_length=1, max_length=MAX_ARMS)]


class CatalogueView(BaseModel):
    id: str
    dim: int
    size: int
    version: int
    index: dict[str, Any]


class ArmView(BaseModel):
    id: str
    features: list[float]
    tags: list[str]
    metadata: dict[str, Any]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None


class UpsertedView(BaseModel):
    added: int
    updated: int
    version: int


class DeletedView(BaseModel):
    deleted: int
    missing: list[str]
    version: int


# Bandits --------------------------------------------------------------------------------------------
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


class BanditBody(StrictModel):
    """``shift_rewards``: for best mean rewards below 0; a learner then has an ``offset`` too. ``solver``: how
    sub_ts searches; ``adaptive`` is the paper's ladder, its ratio ``eta`` (horizon^-1/2 if absent).
    """

    catalogue: Identifier
    policy: PolicyName
    scope: Literal["global", "per_key"] = "global"
    ridge: Annotated[float, Field(ge=1e-9, le=1e9)] = 1.0
    exploration: Exploration = 1.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 0.05
    horizon: Annotated[int, Field(ge=1, le=10**12)] = 20_000
    shortlist: Annotated[int, Field(ge=1, le=MAX_K)] = 30
    eta: Annotated[float, Field(gt=0, lt=1)] | None = None
    reward: RewardBody = RewardBody()
    prior: Literal["plain", "pooled"] = "plain"
    prior_strength: Annotated[float, Field(gt=0, le=MAX_PRIOR_STRENGTH)] = 0.3
    half_life_s: Annotated[float, Field(ge=1, le=MAX_HALF_LIFE_S)] | None = None
    idle_ttl_s: Annotated[float, Field(ge=1, le=MAX_IDLE_TTL_S)] | None = None
    temperature: Temperature | None = None
    explore: ExploreBody | None = None

    shift_rewards: bool = False
    solver: Literal["shortlist", "adaptive"] = "shortlist"

    @field_validator("prior")
    @classmethod
    def _has_keys(cls, prior: str, body: ValidationInfo) -> str:
        if prior == "pooled" and body.data.get("scope") == "global":
            raise ValueError("prior: pooled needs scope: per_key; a global bandit has one learner")
        return prior


class BanditView(BaseModel):
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
    explore: dict[str, Any] | None
    shift_rewards: bool
    solver: str


class ChooseBody(StrictModel):
    """``baseline`` names a finished slate campaign, whose slate is served instead of a draw."""

    key: Identifier | None = None
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 1
    exclude: list[Identifier] = Field(default_factory=list, max_length=MAX_EXCLUDE)
    event_id: Identifier | None = None
    seed: Seed | None = None
    activate: bool = True
    baseline: Identifier | None = None


class ChooseBatchBody(StrictModel):
    requests: Annotated[list[ChooseBody], Field(min_length=1, max_length=MAX_BATCH)]


class ChosenArmView(BaseModel):
    """``propensity``: of policy softmax alone, the probability of this arm given those before it."""

    id: str
    score: float
    propensity: float | None = None


class ChoiceView(BaseModel):
    decision: str
    arms: list[ChosenArmView]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    stale_s: float | None = None


class ChoicesView(BaseModel):
    results: list[ChoiceView]


class LearnerView(BaseModel):
    """x.theta predicts a reward; with ``shift_rewards`` x.theta + ``offset``, and precision is of d + 1."""

    key: str
    version: int
    observations: int
    theta: list[float]
    offset: float | None = None
    precision: list[list[float]] | None = None
