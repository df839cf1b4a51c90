"""POST /v1/rewards and /v1/activations, and the answer of all writes to the reward log."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from fastapi import Query, Request, Response
from pydantic import Field, ValidationInfo, field_validator

from app.api.fields import Identifier, Token, Value
from app.api.guard import access_of
from app.api.request_limits import MAX_BATCH, MAX_BODY_BYTES, MAX_REWARDS
from app.api.strict_json import SEVERAL_CALLS, InTurn, Provided, StrictModel, json_router, reply
from app.platform.documents import Answer
from app.rewards.decisions import Decisions
from app.rewards.events import Event
from app.rewards.reward_entries import Reward
from app.rewards.rewards import Receipt, Rewards

router = json_router(prefix="/v1", tags=[])


class RejectedView(Answer, frozen=True):
    """The item at ``index`` of a batch was not taken; ``code`` says why."""

    index: int
    code: str


class ReceiptView(Answer, frozen=True):
    """``duplicate`` counts rewards which were there before: after a lost answer all of the first attempt."""

    accepted: int
    duplicate: int
    rejected: list[RejectedView]


async def receipt_reply(rewards: Rewards, receipt: Receipt, wait: Literal["applied"] | None) -> Response:
    """200 when the caller asked to wait and everything was applied in time, else 202."""
    if wait is not None:
        await rewards.wait(receipt)
    rejected = [RejectedView(index, code) for index, code in receipt.rejected]
    answer = ReceiptView(receipt.accepted, receipt.duplicate, rejected)
    return reply(answer, 200 if receipt.applied else 202)


class DecisionItem(StrictModel):
    """A decision: its token ``decision``, or ``event_id`` and ``bandit`` of the event that it was made for;
    then ``key`` of a bandit of scope per_key, and ``visitor`` where it was chosen with a pass. A pass gives
    key and visitor by itself.
    """

    event_id: Identifier | None = None
    decision: Annotated[Token | None, Field(validate_default=True)] = None
    bandit: Annotated[Identifier | None, Field(validate_default=True)] = None
    key: Identifier | None = None
    visitor: Identifier | None = None

    @field_validator("decision")
    @classmethod
    def check_one_is_given(cls, decision: str | None, fields: ValidationInfo) -> str | None:
        if "event_id" in fields.data and (fields.data["event_id"] is None) == (decision is None):
            raise ValueError("give decision, or event_id and bandit: one of both")
        return decision

    @field_validator("bandit")
    @classmethod
    def check_event_has_bandit(cls, bandit: str | None, fields: ValidationInfo) -> str | None:
        if bandit is None and fields.data.get("event_id") is not None:
            raise ValueError("is required beside event_id")
        return bandit

    @field_validator("bandit", "key", "visitor")
    @classmethod
    def check_is_of_event(cls, name: str | None, fields: ValidationInfo) -> str | None:
        if name is not None and fields.data.get("decision") is not None:
            raise ValueError("is of an event: a decision says it by itself")
        return name

    @property
    def named(self) -> str | Event:
        """The token, or the event."""
        if self.event_id is None or self.bandit is None:
            return self.decision or ""  # never empty: one of both is given
        return Event(self.bandit, self.event_id, self.key, self.visitor)


class RewardItem(DecisionItem):
    """The reward of a decision, named by its token or its event: see DecisionItem. ``arm``: needed of a
    token of several arms; of an event the first is meant if it is absent.
    ``signal``: which of several rewards it is; needed exactly when the bandit has signals.

    ``at``: when it was so, in ms since 1970; needed where the last reward counts, elsewhere of no use.
    """

    value: Value
    arm: Identifier | None = None
    reward_id: Identifier | None = None
    signal: Identifier | None = None
    at: Annotated[int, Field(ge=0, lt=10**15)] | None = None


class RewardsBody(StrictModel):
    max_bytes: ClassVar[int] = MAX_BODY_BYTES
    instead: ClassVar[str] = SEVERAL_CALLS
    long_list: ClassVar[str] = "rewards"

    rewards: Annotated[list[RewardItem], Field(min_length=1, max_length=MAX_REWARDS)]


@router.post(
    "/rewards",
    tags=["rewards"],
    status_code=202,
    response_model=ReceiptView,
    responses={200: {"model": ReceiptView}},
)
async def reward(
    body: RewardsBody,
    request: Request,
    rewards: Provided[Rewards],
    wait: Annotated[Literal["applied"] | None, Query()] = None,
) -> Response:
    """Reward decisions. 202: durable, and applied soon; with wait=applied 200: applied."""
    items = [
        Reward(item.named, item.value, item.arm, item.reward_id, item.signal, item.at)
        for item in body.rewards
    ]
    return await receipt_reply(rewards, await rewards.reward(items, access_of(request)), wait)


TokenOrDecision = Annotated[
    Token | DecisionItem,
    InTurn("a token, or an object with decision, or with bandit and event_id"),
]


class ActivationsBody(StrictModel):
    """Tokens, or events that decisions were made for."""

    max_bytes: ClassVar[int] = MAX_BODY_BYTES
    instead: ClassVar[str] = SEVERAL_CALLS
    long_list: ClassVar[str] = "decisions"

    decisions: Annotated[list[TokenOrDecision], Field(min_length=1, max_length=MAX_BATCH)]


class ActivationView(Answer, frozen=True):
    """``duplicate`` counts decisions that were activated before."""

    activated: int
    duplicate: int
    rejected: list[RejectedView]


# by the name that goes with /rewards, and by that of before
@router.post("/activations", tags=["rewards"], response_model=ActivationView)
@router.post("/decisions/activate", tags=["choices"], response_model=ActivationView)
async def activate(body: ActivationsBody, request: Request, decisions: Provided[Decisions]) -> ActivationView:
    """Say that decisions made with ``"activate": false`` were shown: from now on rewards count."""
    named = [item if isinstance(item, str) else item.named for item in body.decisions]
    outcome = await decisions.activate(named, access_of(request))
    rejected = [RejectedView(index, code) for index, code in outcome.rejected]
    return ActivationView(outcome.activated, outcome.duplicate, rejected)
