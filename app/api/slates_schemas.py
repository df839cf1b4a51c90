"""Request and response bodies of slate campaigns."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints, model_validator

from app.api.limits import MAX_ASKED, MAX_SLATE_ARMS, MAX_VALUE
from app.api.schemas import Identifier, Seed, Value
from app.api.strict_json import StrictModel

Scale = Annotated[float, Field(ge=1e-9, le=MAX_VALUE)]


class SlateBody(StrictModel):
    """``noise_range`` R: the noise of each arm lies in [-R, R]. ``noise_std``: sub-Gaussian parameter of the
    noise of a total. One of the two must be given; ``independent_noise`` says that the arms of a slate err
    independently, and goes with ``noise_range``.
    """

    id: Identifier
    arms: Annotated[list[Identifier], Field(min_length=2, max_length=MAX_SLATE_ARMS)]
    k: Annotated[int, Field(ge=1, le=MAX_SLATE_ARMS)]
    method: Literal["saqm", "sa_foa", "icb", "exhaustive"] = "sa_foa"
    epsilon: Scale = 0.5
    delta: Annotated[float, Field(ge=1e-12, lt=1)] = 0.05
    noise_range: Scale | None = None
    noise_std: Scale | None = None
    independent_noise: bool = False
    allocation: Literal["uniform", "g"] = "uniform"
    bound: Literal["certified", "paper"] = "certified"
    seed: Seed | None = None

    @model_validator(mode="after")
    def _one_noise(self) -> SlateBody:
        if (self.noise_range is None) == (self.noise_std is None):
            raise ValueError("exactly one of noise_range and noise_std must be given")
        if self.independent_noise and self.noise_range is None:
            raise ValueError("independent_noise goes with noise_range: noise_std is that of the total")
        return self


class AskBody(StrictModel):
    count: Annotated[int, Field(ge=1, le=MAX_ASKED)] = 1


class ResultItem(StrictModel):
    pull: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    total: Value


class TellBody(StrictModel):
    results: Annotated[list[ResultItem], Field(min_length=1, max_length=MAX_ASKED)]


class TeachBody(StrictModel):
    """``key`` is required by a bandit of scope per_key, and refused by others."""

    bandit: Identifier
    key: Identifier | None = None


class SlateName(BaseModel):
    id: str


class BoundsView(BaseModel):
    """The mean total of ``best`` lies between these, with probability 1 - delta over the whole campaign."""

    lower: float | None
    upper: float | None


class ProgressView(BaseModel):
    """``asked`` pulls so far. The last look was at the first ``looked_at`` results, the next is at
    ``next_look``. No slate exceeds ``best`` by more than ``excess``, with the confidence of the campaign; it
    ends when that is at most epsilon, after about ``more_pulls`` more results.
    """

    asked: int
    looked_at: int
    next_look: int | None
    excess: float | None
    more_pulls: int | None


class SlateGuaranteeView(BaseModel):
    kind: Literal["pac", "none"]
    epsilon: float
    delta: float


class SlateView(BaseModel):
    """``best`` and ``estimates`` are those of the last look; empty before the first."""

    id: str
    state: Literal["sampling", "done"]
    observed: int
    best: list[str]
    estimates: dict[str, float]
    bounds: BoundsView
    progress: ProgressView
    outside: int
    warnings: list[str]
    guarantee: SlateGuaranteeView
    k: int
    arms: list[str]
    method: str
    allocation: str
    bound: str
    noise_range: float | None
    noise_std: float | None
    independent_noise: bool


class PullView(BaseModel):
    pull: str
    slate: list[str]


class PullsView(BaseModel):
    pulls: list[PullView]
    done: bool


class ToldView(BaseModel):
    """``observed`` and ``duplicate`` count the results of this call, ``outside`` totals of the campaign."""

    observed: int
    duplicate: int
    done: bool
    outside: int
