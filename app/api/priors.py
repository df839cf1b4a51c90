"""/v1/bandits/{b}/prior: what the keys of a bandit have in common, and how they differ."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal

from fastapi import Query, Response
from pydantic import BaseModel

from app.api.streamed_answers import Streamed, with_rows
from app.api.strict_json import JSON, Provided, StrictModel, json_router, reply
from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.learners.effect_fits import EffectFits
from app.learners.learned_priors import LearnedPriors, covariance_of, report_of
from app.learners.prior_fits import PriorFits
from app.platform.errors import NotFound
from app.platform.pools import REQUESTS

router = json_router(prefix="/v1/bandits", tags=["learners"])


class RefreshBody(StrictModel):
    """It has no fields, and may be left out."""

    absent: ClassVar[bytes] = b"{}"


class SignalPriorView(BaseModel):
    """As of the whole prior, for one signal."""

    noise: float
    offset: float | None = None
    mean: list[float] | None = None
    sd: list[float] | None = None
    weights: list[list[float]] | None = None


class PriorView(BaseModel):
    """The common part of a bandit's keys, and by how much they differ.

    ``version`` 0 while fewer than five keys have rewards, or where these say nothing: then all is as with
    ``plain``, and all other fields are null. In a catalogue whose ``behaviour`` has a ``prior`` there is a
    version from the beginning, and ``history`` says how many of the ``keys`` are from there.

    ``keys``: how many were in the fit, and ``observations`` theirs. ``noise``: by how much rewards vary
    about their mean, for every key. ``mean``: the theta that a new key starts from, and ``sd`` by how much
    keys differ from it, in each coordinate; both null of one to nine own keys. ``offset``: of the mean, where
    learners have one. ``weights``: the mean of those of the context. ``covariance``: of all numbers of a
    learner. With signals all are of the weighted sum, and in ``signals`` of each.
    """

    version: int
    keys: int
    observations: float
    noise: float | None
    offset: float | None
    mean: list[float] | None
    sd: list[float] | None
    since_ms: int | None
    weights: list[list[float]] | None = None
    signals: dict[str, SignalPriorView] | None = None
    covariance: list[list[float]] | None = None
    history: int | None = None


@router.get("/{bandit}/prior", response_model=PriorView)
async def prior(
    bandit: str,
    bandits: Provided[Bandits],
    priors: Provided[LearnedPriors],
    include: Annotated[Literal["covariance"] | None, Query()] = None,
) -> Response:
    """The newest version of the learned prior of a bandit; 404 of a bandit without."""
    owner = _with_learned(await bandits.get(bandit))
    version = await priors.newest(owner.uid)
    answer = await REQUESTS.run(partial(report_of, owner, version))
    if include is None or version is None or not version.shows:
        return reply(answer)
    covariance = await REQUESTS.run(partial(covariance_of, owner, version))
    return await Streamed.of(with_rows({**answer, "covariance": covariance}), media_type=JSON)


@router.post("/{bandit}/prior/refresh", response_model=PriorView)
async def refresh(
    bandit: str,
    bandits: Provided[Bandits],
    prior_fits: Provided[PriorFits],
    effect_fits: Provided[EffectFits],
    body: RefreshBody = RefreshBody(),  # noqa: ARG001 - read, so that a field in it is refused
) -> Response:
    """Fit the prior now, from all applied rewards, and answer the newest version.

    Arm effects are fitted as well, where the bandit has them.
    """
    owner = _with_learned(await bandits.get(bandit))
    done = await prior_fits.fit(owner)
    if owner.record.arm_effects == "auto":
        await effect_fits.fit(owner, only_if_moved=False)
    return reply(await REQUESTS.run(partial(report_of, owner, done.version)))


def _with_learned(bandit: Bandit) -> Bandit:
    """The bandit, if it has a learned prior. Raises NotFound."""
    if bandit.record.prior != "learned":
        raise NotFound(f"the prior of this bandit is {bandit.record.prior}, not learned")
    return bandit
