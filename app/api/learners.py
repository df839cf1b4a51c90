"""/v1/bandits/{b}/learners: what the learners of a bandit know, copies of them, and their end."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from fastapi import Query, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, StringConstraints

from app.api.fields import IDENTIFIER, Cursor, Identifier, Limit, Page
from app.api.octet_streams import OCTETS, body_or_octets, documented
from app.api.problems import Part, problems
from app.api.request_limits import MAX_BODY_BYTES
from app.api.streamed_answers import Streamed, with_rows
from app.api.strict_json import JSON, Provided, StrictModel, json_router, reply
from app.bandits.bandit import GLOBAL_LEARNER, Bandit, UsedScales
from app.bandits.served_bandits import Bandits
from app.bandits.settings import RepeatsRule
from app.decision_log.buffer import RowBuffer
from app.exposure_limits.caps import FrequencyCaps
from app.exposure_limits.exposures import field_value
from app.learners.learned_priors import LearnedPriors
from app.learners.learner_copies import LearnerCopies
from app.learners.learners import LearnerReport, Learners
from app.platform.answer_memory import hold
from app.platform.documents import Answer
from app.platform.errors import Invalid, NotFound
from app.platform.pools import REQUESTS
from app.policies.elimination_state import Sets
from app.records.records import LearnerState, bytes_to_state, state_to_bytes
from app.rewards.erasure import Erasure
from app.serving.pipeline import Pipeline

router = json_router(prefix="/v1/bandits", tags=["learners"])
# A longer state is read and given as an octet-stream alone.
MAX_JSON_STATE_BYTES = 3 << 20
LearnerKey = Annotated[str, StringConstraints(pattern=f"^(_global|{IDENTIFIER})$")]


class EncodingView(BaseModel):
    """``dim`` is how many numbers a context becomes; ``columns`` says what each means, if named."""

    dim: int
    fields: list[dict[str, Any]] | None = None
    columns: list[str] | None = None


class SignalView(BaseModel):
    """``theta``, ``offset`` and ``weights`` of the context, as of the whole learner, for one signal."""

    theta: list[float]
    weights: list[list[float]] | None = None
    offset: float | None = None


class LearnerView(BaseModel):
    """With signals ``theta`` and ``weights`` are of their sum, by the weights of the bandit.

    x.theta predicts a reward; with an intercept, x.theta + ``offset``, and precision has one more number, the
    last one.

    Of a bandit with a context u, encoded as ``context`` tells: (P x)^T ``weights`` u more. P are
    ``directions``, absent where all coordinates interact. Precision is of [x ; (P x) kron u].

    ``prior_version``: of the learned prior that is in it; absent of a bandit with another prior.

    ``columns``: what each number of theta is of, where the catalogue has ``features``, or the bandit
    ``match``, whose numbers come last.
    """

    key: str
    version: int
    prior_version: int | None = None
    observations: int
    used: UsedScales
    theta: list[float]
    columns: list[str] | None = None
    weights: list[list[float]] | None = None
    context: EncodingView | None = None
    offset: float | None = None
    directions: list[list[float]] | None = None
    precision: list[list[float]] | None = None
    signals: dict[str, SignalView] | None = None


class LearnerCopyBody(StrictModel):
    """``state``: as ``GET /v1/bandits/{b}/learners?include=state`` of a bandit like this one gave it."""

    max_bytes: ClassVar[int] = MAX_BODY_BYTES
    instead: ClassVar[str] = "send the state itself as application/octet-stream"

    state: str


class LearnerCopyView(BaseModel):
    """``state``: all that is stored of the learner, base64. Null unless it was asked for, and where it is
    longer than 3 MiB: then ``GET …/learners/{key}`` answers it to ``Accept: application/octet-stream``.
    ``prior_version``: of the learned prior that the bandit has now, which is not in the state; absent of a
    bandit with another prior.
    """

    key: str
    version: int
    observations: int
    state: str | None = None
    prior_version: int | None = None


@router.get("/{bandit}/learners", response_model=Page[LearnerCopyView])
async def list_learners(
    bandit: str,
    bandits: Provided[Bandits],
    learner_copies: Provided[LearnerCopies],
    priors: Provided[LearnedPriors],
    *,
    cursor: Cursor = None,
    limit: Limit = 100,
    include: Annotated[Literal["state"] | None, Query()] = None,
) -> Response:
    """The learners with rewards; a page of large ones has fewer than ``limit``."""
    owner = await priors.serving(await bandits.get(bandit))
    page, following = await learner_copies.page(owner, cursor, limit)
    items = [_copy(key, state) if include is None else await _with_state(key, state) for key, state in page]
    if owner.prior_version is not None:
        items = [{**item, "prior_version": owner.prior_version} for item in items]
    return reply({"items": items, "next": following})


@router.put(
    "/{bandit}/learners/{key}",
    response_model=LearnerCopyView,
    responses={201: {"model": LearnerCopyView}, **problems(409)},
    openapi_extra=documented(LearnerCopyBody),
)
async def put_learner(
    bandit: str,
    key: LearnerKey,
    request: Request,
    bandits: Provided[Bandits],
    learner_copies: Provided[LearnerCopies],
) -> Response:
    """Give a learner without rewards the state of another one: 201, or 200 when it has it already.

    As octet-stream, the body is the state itself.
    """
    data = await body_or_octets(request, LearnerCopyBody)
    owner = await bandits.get(bandit)
    if isinstance(data, LearnerCopyBody):
        try:
            data = base64.b64decode(data.state, validate=True)
        except (ValueError, binascii.Error):
            raise Invalid("must be base64", path=("state",)) from None
    is_new = await learner_copies.give(owner, owner.learner_named(key), data)
    return reply(_copy(key, bytes_to_state(data)), 201 if is_new else 200)


@router.get(
    "/{bandit}/learners/{key}",
    response_model=LearnerView,
    responses={200: {"content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def learner(
    bandit: str,
    key: LearnerKey,
    request: Request,
    *,
    bandits: Provided[Bandits],
    learners: Provided[Learners],
    priors: Provided[LearnedPriors],
    learner_copies: Provided[LearnerCopies],
    include: Annotated[Literal["precision", "directions"] | None, Query()] = None,
) -> Response:
    """A learner as stored now; a key without rewards is at the prior, version 0.

    To ``Accept: application/octet-stream`` its whole stored state, as PUT takes it; 404 without rewards.
    """
    owner = await bandits.get(bandit)
    if request.headers.get("accept", "") == OCTETS:
        return Response(await learner_copies.state(owner, owner.learner_named(key)), media_type=OCTETS)
    if owner.record.prior == "learned":
        owner = owner.with_prior(await priors.newest(owner.uid))
    report = await learners.report(owner, owner.learner_named(key))
    answer: dict[str, object] = {
        "key": key,
        "version": report.version,
        **({} if owner.prior_version is None else {"prior_version": owner.prior_version}),
        "observations": report.observations,
        "used": report.used,
        **_theta(owner, report),
    }
    rows = None
    if include == "precision":
        hold(2 * 8 * owner.learner_dim**2)
        rows = await report.precision()
    elif include == "directions" and owner.context is not None:
        rows = owner.context.directions
    if include is None or rows is None:
        return reply(answer)
    return await Streamed.of(with_rows({**answer, include: rows}), media_type=JSON)


@router.get("/{bandit}/learners/{key}/sets", response_model=Sets)
async def sets(
    bandit: str, key: LearnerKey, bandits: Provided[Bandits], pipeline: Provided[Pipeline]
) -> Sets:
    """The arms left by elimination for a learner: stage s holds widths of at most 2^-s."""
    owner = await bandits.get(bandit)
    return await pipeline.sets(owner, owner.learner_named(key))


class ExposureView(Answer, frozen=True):
    """``arm``, or ``value`` where the cap counts by a field, and ``count``: how often the key had it. The
    count holds until ``until_ms``, the first of several; ``left``: how often the key may have the arm until
    then.
    """

    arm: str | None
    value: str | float | bool | None
    count: int
    left: int
    last_ms: int
    until_ms: int


class ExposuresView(Answer, frozen=True):
    """``repeats``: the setting of the bandit, and ``items`` the counted exposures, the last first. At most
    1,000 are kept.
    """

    key: str
    repeats: RepeatsRule
    items: list[ExposureView]


@router.get("/{bandit}/learners/{key}/exposures", response_model=ExposuresView)
async def exposures(
    bandit: str, key: LearnerKey, bandits: Provided[Bandits], frequency_caps: Provided[FrequencyCaps]
) -> ExposuresView:
    """The exposures counted by ``repeats``: the arms, or values, of a key, for a global bandit of a visitor.

    404 of a bandit without ``repeats``.
    """
    owner = await bandits.get(bandit)
    rule = owner.record.repeats
    if rule is None:
        raise NotFound("nothing is remembered of keys: that needs repeats")
    items = list[ExposureView]()
    for shown in await frequency_caps.history(owner, rule, key):
        pair = field_value(shown.counted)
        arm, value = (shown.counted, None) if pair is None else (None, pair[1])
        left = max(rule.most - shown.count, 0)
        items.append(ExposureView(arm, value, shown.count, left, shown.last_ms, shown.until_ms))
    return ExposuresView(key, rule, items)


@router.delete("/{bandit}/learners/{key}", status_code=204)
async def forget(
    bandit: str, key: LearnerKey, bandits: Provided[Bandits], erasure: Provided[Erasure]
) -> None:
    """Forget a learner; rewards for its decisions so far are refused from now on."""
    owner = await bandits.get(bandit)
    await erasure.forget(owner.learner_named(key))


@router.delete("/{bandit}/visitors/{visitor}", status_code=204)
async def forget_visitor(
    bandit: str,
    visitor: Identifier,
    bandits: Provided[Bandits],
    erasure: Provided[Erasure],
    rows: Provided[RowBuffer],
) -> None:
    """Erase rows of the log, exposures and events of a visitor of a bandit of scope global.

    The learner stays, since all visitors share it. Repeat the call once the tokens of the visitor have
    expired: a reward until then writes the row of its decision again. 422 of a bandit of scope per_key, whose
    keys are learners.
    """
    owner = await bandits.get(bandit)
    if owner.record.scope == "per_key":
        text = "the bandit has scope per_key: delete the learner of the key in place of a visitor"
        raise Invalid(text, path=(Part.PATH, "bandit"))
    await rows.flush()  # a row that is written after the deletion would stay
    await erasure.forget_visitor(owner.learner_named(GLOBAL_LEARNER), visitor)


def _copy(key: str, state: LearnerState) -> dict[str, object]:
    """A ``LearnerCopyView`` without its state."""
    return {"key": key, "version": state.version, "observations": state.sums.observations, "state": None}


async def _with_state(key: str, state: LearnerState) -> dict[str, object]:
    """A ``LearnerCopyView`` with its state, unless too long."""
    data = await REQUESTS.run(partial(state_to_bytes, state))
    text = base64.b64encode(data).decode() if len(data) <= MAX_JSON_STATE_BYTES else None
    return _copy(key, state) | {"state": text}


def _theta(bandit: Bandit, report: LearnerReport) -> dict[str, object]:
    """The learner's parameters, which predict rewards as users give them."""
    shown = _of_signal(bandit, report.theta)
    if (columns := bandit.columns) is not None:
        shown["columns"] = columns
    if bandit.context is not None:
        encoding, fields = bandit.context.encoding, {}
        if encoding.columns is not None:
            fields = {"fields": encoding.rule.fields, "columns": encoding.columns}
        shown["context"] = {"dim": encoding.dim, **fields}
    if report.signals is not None:
        shown["signals"] = {name: _of_signal(bandit, theta) for name, theta in report.signals.items()}
    return shown


def _of_signal(bandit: Bandit, theta: NDArray[np.float64]) -> dict[str, object]:
    shown = dict[str, object]()
    if bandit.context is not None:
        theta, weights = bandit.context.weights(theta)
        shown["weights"] = weights.tolist()
    if bandit.constant is not None:
        theta, shown["offset"] = bandit.numbers_and_offset(theta)
    return {"theta": theta.tolist(), **shown}
