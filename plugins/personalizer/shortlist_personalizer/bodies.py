"""The requests of Personalizer's clients, and the answers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AliasGenerator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from shortlist_service.routes import Answer, StrictModel, Value

MAX_BODY_BYTES = 1 << 16  # parsed in one step; Personalizer's own limit is not documented
MAX_ACTIONS = 50
MAX_SLOTS = 50
MAX_ID_CHARS = 256

Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
Features = list[dict[str, Any]]


class Body(StrictModel):
    """Names in camel case, as clients write them. Fields that Personalizer does not have are ignored."""

    model_config = ConfigDict(
        extra="ignore", alias_generator=AliasGenerator(validation_alias=to_camel), populate_by_name=False
    )
    max_bytes: ClassVar[int] = MAX_BODY_BYTES


class ActionBody(Body):
    id: Id
    features: Features


class RankBody(Body):
    actions: Annotated[list[ActionBody], Field(min_length=1, max_length=MAX_ACTIONS)]
    context_features: Features | None = None
    excluded_actions: list[Id] | None = None
    event_id: Id | None = None
    defer_activation: bool | None = None


class SlotBody(Body):
    id: Id
    baseline_action: Id
    features: Features | None = None
    excluded_actions: list[Id] | None = None


class RankSlotsBody(Body):
    actions: Annotated[list[ActionBody], Field(min_length=1, max_length=MAX_ACTIONS)]
    slots: Annotated[list[SlotBody], Field(min_length=1, max_length=MAX_SLOTS)]
    context_features: Features | None = None
    event_id: Id | None = None
    defer_activation: bool | None = None


class RewardBody(Body):
    value: Value


class SlotRewardBody(Body):
    slot_id: Id
    value: Value


class SlotRewardsBody(Body):
    reward: Annotated[list[SlotRewardBody], Field(min_length=1, max_length=MAX_SLOTS)]


class RankedAction(Answer, frozen=True, omit_defaults=True):
    """``probability``: of being chosen; absent where it is not known."""

    id: str
    probability: float | None = None


class RankAnswer(Answer, frozen=True, rename="camel"):
    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class SlotAnswer(Answer, frozen=True, rename="camel"):
    id: str
    reward_action_id: str


class RankSlotsAnswer(Answer, frozen=True, rename="camel"):
    slots: list[SlotAnswer]
    event_id: str
