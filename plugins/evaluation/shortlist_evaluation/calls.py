"""/v1/bandits/{b}/evaluations: what another setting would have earned on the logged decisions.

An evaluation is answered, or with `wait=none` a job, which goes on by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from shortlist_evaluation.answers import Evaluation, Propensities, When, answer_of
from shortlist_evaluation.evaluated import ESTIMATOR_NAMES
from shortlist_evaluation.evaluation import check, check_draws
from shortlist_evaluation.evaluations import Evaluations
from shortlist_service.bandits import BanditPatch, BanditVersion, as_json, changed_record, must_be
from shortlist_service.errors import Invalid, within
from shortlist_service.jobs import JobHead, Jobs, Progress
from shortlist_service.policies import BanditRecord
from shortlist_service.routes import (
    JSON,
    Bandits,
    Cursor,
    Limit,
    Provided,
    Query,
    Request,
    Response,
    RouteDependencies,
    Routes,
    StrictModel,
    Weights,
    encoded,
    from_path,
    json_router,
    page_by_name,
    page_of,
    problems,
    reply,
    span,
    while_connected,
)
from shortlist_service.work import MEASURING

router = json_router(prefix="/v1/bandits/{bandit}", tags=["evaluations"])

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
                must_be(
                    f'an object of weights by signal, as {{"click": 1.0}}, a list of 1 to {MAX_WEIGHTS} such '
                    "objects, or null"
                ),
            ]
            | None
        ) = None


class EvaluationBody(StrictModel):
    """``policy``: what would be changed, as in PATCH; nothing is.
    ``from`` and ``to``: which decisions.

    ``learners``: whether decisions are weighed with learners as they were before them, or as they are now.
    ``propensities``: of decisions that have none in the log, left out or, with ``draws``, estimated.
    ``signal_places``: whether estimates of signals have their places too.
    """

    gone: ClassVar[Mapping[str, str]] = {f"policy.{name}": text for name, text in PolicyBody.gone.items()}

    policy: PolicyBody
    from_: Annotated[Time | None, Field(alias="from")] = None
    to: Time | None = None
    learners: When = "before"
    propensities: Propensities = "logged"
    signal_places: bool = False
    estimators: Annotated[
        list[EstimatorName],
        Field(min_length=1, max_length=len(ESTIMATOR_NAMES), default_factory=lambda: list(ESTIMATOR_NAMES)),
    ]


class EvaluationJob(JobHead, frozen=True):
    """``result``: once it is done, for an hour."""

    result: Evaluation | None = None


class StartedView(BaseModel):
    """The id of an evaluation that goes on by itself."""

    id: str


@router.post(
    "/evaluations",
    response_model=Evaluation | StartedView,
    responses={202: {"model": StartedView}, **problems(409, 429)},
)
async def evaluate(
    bandit: str,
    body: EvaluationBody,
    request: Request,
    *,
    bandits: Provided[Bandits],
    evaluations: Provided[Evaluations],
    jobs: Provided[Jobs],
    wait: Annotated[Literal["none"] | None, Query()] = None,
) -> Response:
    """Estimate from its log the earnings of the bandit with this policy. Nothing is changed.

    With ``wait=none`` the id of an evaluation that goes on by itself.
    """
    from_ms, to_ms = span(body.from_, body.to)
    patch = as_json(body.policy)
    weights = patch.pop("weights", None)
    several = weights if isinstance(weights, list) else [weights]
    if len(several) > MAX_WEIGHTS:
        raise Invalid(f"at most {MAX_WEIGHTS} weight sets are allowed", path=("policy", "weights"))
    if patch.get("holdout") is not None:
        raise Invalid(
            "an evaluation is of the policy alone, whoever it serves: leave the holdout out",
            path=("policy", "holdout"),
        )

    def changed(uid: str, version: BanditVersion) -> BanditRecord:  # noqa: ARG001 - as for a change
        return changed_record(version.record, patch)

    with within(("policy",)):
        target = await bandits.as_if(bandit, changed)
        targets = [target.weighed(weight_set) for weight_set in several]
    check(target, body.estimators)
    draws = body.propensities == "draws"
    if draws:
        check_draws(target, body.learners)

    async def work(progress: Progress | None = None) -> bytes:
        evaluated = await evaluations.evaluate(
            targets,
            body.estimators,
            from_ms=from_ms,
            to_ms=to_ms,
            when=body.learners,
            signal_places=body.signal_places,
            draws=draws,
            progress=progress,
        )
        # In a thread: the JSON may have megabytes.
        return await MEASURING.run(lambda: encoded(answer_of(evaluated, several=isinstance(weights, list))))

    if wait == "none":
        return reply({"id": await jobs.start(target.uid, work)}, 202)
    with from_path("bandit"):  # of which no decision can be used
        return Response(await while_connected(request, work()), media_type=JSON)


@router.get("/evaluations", response_model=page_of(JobHead))
async def list_evaluations(
    bandit: str,
    bandits: Provided[Bandits],
    jobs: Provided[Jobs],
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response:
    """The evaluations of a bandit that go on by themselves, or did in the last hour; the oldest first."""
    heads = await jobs.all((await bandits.get(bandit)).uid)
    items, following = page_by_name(heads, attrgetter("id"), cursor, limit)
    return reply({"items": items, "next": following})


@router.get("/evaluations/{evaluation}", response_model=EvaluationJob)
async def get_evaluation(
    bandit: str, evaluation: str, bandits: Provided[Bandits], jobs: Provided[Jobs]
) -> Response:
    """The state of an evaluation, and its result once done."""
    return reply(await jobs.find((await bandits.get(bandit)).uid, evaluation))


@router.delete("/evaluations/{evaluation}", status_code=204)
async def delete_evaluation(
    bandit: str, evaluation: str, bandits: Provided[Bandits], jobs: Provided[Jobs]
) -> None:
    """Forget an evaluation; one that goes on is cancelled."""
    await jobs.delete((await bandits.get(bandit)).uid, evaluation)


class EvaluationCalls(Routes):
    """``/v1/bandits/{bandit}/evaluations``."""

    router = router
    scopes: ClassVar[Mapping[str, str]] = {"GET": "read", "POST": "read", "DELETE": "read"}

    def services(self, dependencies: RouteDependencies) -> Mapping[str, object]:
        return {"evaluations": Evaluations(dependencies)}
