"""/v1/bandits/{b}/learners/{key}: what a learner of a bandit knows, and its end."""

from __future__ import annotations

from operator import methodcaller
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel, StringConstraints

from app.api.fields import IDENTIFIER
from app.api.services import BanditsDep, ChoosingDep, ForgettingDep, LearnersDep
from app.api.strict_json import json_router, reply, reply_with
from app.services.bandits.bandits import Bandit
from app.services.bandits.shifted import observed_theta, observed_weights
from app.services.learning.learners import LearnerReport

router = json_router(prefix="/v1/bandits", tags=["bandits"])

LearnerKey = Annotated[str, StringConstraints(pattern=f"^(_global|{IDENTIFIER})$")]


class EncodingView(BaseModel):
    """``dim`` is how many numbers a context becomes; ``columns`` says what each means, if named."""

    dim: int
    fields: list[dict[str, Any]] | None = None
    columns: list[str] | None = None


class LearnerView(BaseModel):
    """x.theta predicts a reward; with ``shift_rewards`` x.theta + ``offset``, and precision is of d + 1.

    Of a bandit with a context u, encoded as ``context`` tells: (P x)^T ``weights`` u more. P are
    ``directions``, absent where all coordinates interact. Precision is of [x ; (P x) kron u].
    """

    key: str
    version: int
    observations: int
    theta: list[float]
    weights: list[list[float]] | None = None
    context: EncodingView | None = None
    offset: float | None = None
    directions: list[list[float]] | None = None
    precision: list[list[float]] | None = None


class StageView(BaseModel):
    stage: int
    size: int


class SetsView(BaseModel):
    """``threshold``: null without arms."""

    stages: list[StageView]
    eliminated: int
    threshold: float | None


@router.get("/{bandit}/learners/{key}", response_model=LearnerView)
async def learner(
    bandit: str,
    key: LearnerKey,
    bandits: BanditsDep,
    learners: LearnersDep,
    include: Annotated[Literal["precision", "directions"] | None, Query()] = None,
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
    rows = None
    if include == "precision":
        rows = await report.precision()
    elif include == "directions" and owner.context is not None:
        rows = owner.context.directions
    if include is None or rows is None:
        return reply(answer)
    return await reply_with(include, map(methodcaller("tolist"), rows), **answer)


@router.get("/{bandit}/learners/{key}/sets", response_model=SetsView)
async def sets(bandit: str, key: LearnerKey, bandits: BanditsDep, choosing: ChoosingDep) -> Response:
    """What elimination has left of the arms for a learner: stage s holds widths of at most 2^-s."""
    owner = await bandits.get(bandit)
    found = await choosing.sets(owner, owner.learner_named(key))
    stages = [{"stage": stage, "size": size} for stage, size in found.stages]
    return reply({"stages": stages, "eliminated": found.eliminated, "threshold": found.threshold})


@router.delete("/{bandit}/learners/{key}", status_code=204)
async def forget(bandit: str, key: LearnerKey, bandits: BanditsDep, forgetting: ForgettingDep) -> Response:
    """Forget a learner; rewards for its decisions so far are refused from now on."""
    owner = await bandits.get(bandit)
    await forgetting.forget(owner.learner_named(key))
    return Response(status_code=204)


def _theta(bandit: Bandit, report: LearnerReport) -> dict[str, object]:
    """What predicts rewards as users give them."""
    theta, shown = report.theta, dict[str, object]()
    if bandit.context is not None:
        encoding = bandit.context.encoding
        theta, weights = bandit.context.weights(theta)
        if bandit.record.shift_rewards:
            weights = observed_weights(weights)
        fields = {}
        if encoding.columns is not None:
            fields = {"fields": encoding.rule.fields, "columns": encoding.columns}
        shown = {"weights": weights.tolist(), "context": {"dim": encoding.dim, **fields}}
    if bandit.record.shift_rewards:
        theta, shown["offset"] = observed_theta(theta)
    return {"theta": theta.tolist(), **shown}
