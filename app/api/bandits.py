"""/v1/bandits: bandits, their learners, and history for them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from app.api.reward_schemas import ObservationsBody, ReceiptView
from app.api.rewards import receipt_reply
from app.api.schemas import BanditBody, BanditView, Identifier, LearnerKey, LearnerView, Page, PageLimit
from app.api.services import BanditsDep, ChoosingDep, LearnersDep, RewardsDep
from app.api.strict_json import JsonRoute, reply
from app.services.bandits.bandits import Bandit
from app.services.bandits.shifted import observed_theta
from app.services.formats.records import BanditRecord, ExploreRule, RewardRule
from app.services.learning.learners import LearnerReport
from app.services.learning.rewards import Observation

router = APIRouter(prefix="/v1/bandits", tags=["bandits"], route_class=JsonRoute)


class StageView(BaseModel):
    stage: int
    size: int


class SetsView(BaseModel):
    """``threshold``: null without arms."""

    stages: list[StageView]
    eliminated: int
    threshold: float | None


@router.put("/{bandit}", response_model=BanditView)
async def create(bandit: Identifier, body: BanditBody, bandits: BanditsDep) -> Response:
    """Make a bandit: 201 made, 200 the same one exists, 409 another one exists."""
    settings = body.model_dump(exclude={"reward", "explore"})
    explore = None if body.explore is None else ExploreRule(**body.explore.model_dump())
    record = BanditRecord(**settings, reward=RewardRule(**body.reward.model_dump()), explore=explore)
    made, new = await bandits.create(bandit, record)
    return reply(_view(made), 201 if new else 200)


@router.get("", response_model=Page[BanditView])
async def list_all(
    bandits: BanditsDep,
    cursor: Annotated[str | None, Query()] = None,
    limit: Annotated[PageLimit, Query()] = 100,
) -> Page[BanditView]:
    """All bandits by name."""
    page, following = bandits.page(cursor, limit)
    return Page(items=[_view(item) for item in page], next=following)


@router.get("/{bandit}", response_model=BanditView)
async def get(bandit: str, bandits: BanditsDep) -> BanditView:
    """One bandit as it was made."""
    return _view(await bandits.get(bandit))


@router.delete("/{bandit}", status_code=204)
async def delete(bandit: str, bandits: BanditsDep) -> Response:
    """Delete a bandit and all that it has learned."""
    await bandits.delete(bandit)
    return Response(status_code=204)


@router.post("/{bandit}/observations", status_code=202, response_model=ReceiptView)
async def observe(
    bandit: str,
    body: ObservationsBody,
    bandits: BanditsDep,
    rewards: RewardsDep,
    wait: Annotated[Literal["applied"] | None, Query()] = None,
) -> Response:
    """Teach history, once per observation id."""
    items = [Observation(item.id, item.arm, item.value, item.key) for item in body.observations]
    receipt = await rewards.observe(await bandits.get(bandit), items)
    return await receipt_reply(rewards, receipt, wait)


@router.get("/{bandit}/learners/{key}", response_model=LearnerView)
async def learner(
    bandit: str,
    key: LearnerKey,
    bandits: BanditsDep,
    learners: LearnersDep,
    include: Annotated[Literal["precision"] | None, Query()] = None,
) -> Response:
    """A learner as stored now; a key that was never rewarded is at the prior, version 0."""
    owner = await bandits.get(bandit)
    report = await learners.report(owner, owner.learner_named(key))
    answer: dict[str, object] = {
        "key": key,
        "version": report.version,
        "observations": report.observations,
        **_theta(owner, report),
    }
    if include == "precision":
        answer["precision"] = report.precision.tolist()
    return reply(answer)


@router.get("/{bandit}/learners/{key}/sets", response_model=SetsView)
async def sets(bandit: str, key: LearnerKey, bandits: BanditsDep, choosing: ChoosingDep) -> Response:
    """What elimination has left of the arms for a learner: stage s holds widths of at most 2^-s."""
    owner = await bandits.get(bandit)
    found = await choosing.sets(owner, owner.learner_named(key))
    stages = [{"stage": stage, "size": size} for stage, size in found.stages]
    return reply({"stages": stages, "eliminated": found.eliminated, "threshold": found.threshold})


@router.delete("/{bandit}/learners/{key}", status_code=204)
async def forget(
    bandit: str,
    key: LearnerKey,
    bandits: BanditsDep,
    rewards: RewardsDep,
    choosing: ChoosingDep,
) -> Response:
    """Forget a learner; rewards for its decisions so far are refused from now on."""
    owner = await bandits.get(bandit)
    identity = owner.learner_named(key)
    await rewards.forget(identity)
    choosing.tools.elimination.forget(identity)
    await choosing.tools.warm_up.forget(owner, identity)
    return Response(status_code=204)


def _theta(bandit: Bandit, report: LearnerReport) -> dict[str, object]:
    """What predicts rewards as users give them."""
    if not bandit.record.shift_rewards:
        return {"theta": report.theta.tolist()}
    theta, offset = observed_theta(report.theta)
    return {"theta": theta.tolist(), "offset": offset}


def _view(bandit: Bandit) -> BanditView:
    settings = msgspec.to_builtins(bandit.record)
    return BanditView(id=bandit.name, **settings)
