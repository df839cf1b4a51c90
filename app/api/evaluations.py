"""POST /v1/bandits/{b}/evaluations: what another setting would have earned on the logged decisions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Request, Response
from pydantic import Field

from app.api.bandits import BanditPatch, changed_record
from app.api.fields import Weights
from app.api.leaving import while_connected
from app.api.merge_patch import as_json
from app.api.problems import from_path, problems
from app.api.services import Provided
from app.api.strict_json import StrictModel, json_router, reply
from app.api.times import span
from app.errors import Invalid, within
from app.services.bandits.bandits import Bandits
from app.services.bandits.settings import BanditRecord, must_be
from app.services.bandits.versions import BanditVersion
from app.services.measuring.evaluations import Evaluation, Evaluations, When, answer_of
from app.services.measuring.evaluator import ESTIMATOR_NAMES

router = json_router(prefix="/v1/bandits", tags=["measuring"])

if TYPE_CHECKING:
    EstimatorName = str
else:
    EstimatorName = Literal[ESTIMATOR_NAMES]
Time = Annotated[datetime, Field(strict=False)]  # ISO 8601, or seconds or milliseconds since 1970


MAX_WEIGHTS = 50

if TYPE_CHECKING:
    PolicyBody = StrictModel
else:

    class PolicyBody(BanditPatch):
        """As a patch, and ``weights`` of signals over those of the bandit, or a list of up to 50 such."""

        weights: (
            Annotated[
                Weights | Annotated[list[Weights], Field(min_length=1)],
                must_be("weights by the names of signals, or a list of such"),
            ]
            | None
        ) = None


class EvaluationBody(StrictModel):
    """``policy``: what would be changed, as in PATCH; nothing is.
    ``from`` and ``to``: which decisions.

    ``learners``: whether decisions are weighed with learners as they were before them, or as they are now.
    """

    policy: PolicyBody
    from_: Annotated[Time | None, Field(alias="from")] = None
    to: Time | None = None
    learners: When = "before"
    estimators: Annotated[
        list[EstimatorName],
        Field(min_length=1, max_length=len(ESTIMATOR_NAMES), default_factory=lambda: list(ESTIMATOR_NAMES)),
    ]


@router.post("/{bandit}/evaluations", response_model=Evaluation, responses=problems(409))
async def evaluate(
    bandit: str,
    body: EvaluationBody,
    request: Request,
    bandits: Provided[Bandits],
    evaluations: Provided[Evaluations],
) -> Response:
    """What the bandit would have earned with this policy, estimated from its log. Nothing is changed."""
    from_ms, to_ms = span(body.from_, body.to)
    patch = as_json(body.policy)
    weights = patch.pop("weights", None)
    several = weights if isinstance(weights, list) else [weights]
    if len(several) > MAX_WEIGHTS:
        raise Invalid(f"at most {MAX_WEIGHTS}", path=("policy", "weights"))
    if patch.get("holdout") is not None:
        raise Invalid(
            "an evaluation is of the policy alone, whoever it serves: leave the holdout out",
            path=("policy", "holdout"),
        )

    def changed(uid: str, version: BanditVersion) -> BanditRecord:  # noqa: ARG001 - as for a change
        return changed_record(version.record, patch)

    with within(("policy",)):
        target = await bandits.as_if(bandit, changed)
        targets = [target.weighed(each) for each in several]

    work = evaluations.evaluate(targets, body.estimators, from_ms=from_ms, to_ms=to_ms, when=body.learners)
    with from_path("bandit"):  # of which no decision can be used
        found = await while_connected(request, work)
    return reply(answer_of(found, several=isinstance(weights, list)))
