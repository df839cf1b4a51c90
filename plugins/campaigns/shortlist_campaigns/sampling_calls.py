"""POST /v1/sample and /v1/catalogues/{c}/sample: draws from discrete distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from shortlist_campaigns import campaign_limits as limits
from shortlist_campaigns.sampling import LogFactor as Given
from shortlist_campaigns.sampling import SampleRequest, SampleResult, Sampling, SamplingMethod
from shortlist_service.errors import FieldPath, TooLarge
from shortlist_service.octet_streams import (
    REAL,
    WHOLE,
    body_or_octets,
    check_magnitude,
    documented,
    numbers,
    shape,
)
from shortlist_service.routes import (
    AttributesView,
    Catalogues,
    Delta,
    FilterBody,
    Identifier,
    OrZero,
    Part,
    Provided,
    Query,
    QueryBody,
    Request,
    RouteDependencies,
    Routes,
    Seed,
    StrictModel,
    Temperature,
    json_router,
    parsed_filter,
    problems,
)

router = json_router(prefix="/v1/sample", tags=["sampling"])
catalogue_router = json_router(prefix="/v1/catalogues/{catalogue}", tags=["sampling"])


class _NumberOrMinusInfinity:
    """One message about the number, not one about each thing it could be; as quick as a number alone."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        number = core_schema.float_schema(
            strict=True, allow_inf_nan=False, ge=-limits.MAX_LOG_FACTOR, le=limits.MAX_LOG_FACTOR
        )
        zero = core_schema.literal_schema(["-Infinity"])
        return core_schema.union_schema(
            [number, core_schema.none_schema(), zero],
            mode="left_to_right",
            custom_error_type="log_factor",
            custom_error_message=(
                f"must be a number from -{limits.MAX_LOG_FACTOR:.0f} to {limits.MAX_LOG_FACTOR:.0f}; for "
                'probability zero null or "-Infinity"'
            ),
        )


LogFactor = Annotated[Given, _NumberOrMinusInfinity]
Row = Annotated[list[LogFactor], Field(min_length=1, max_length=limits.MAX_FACTORS)]


class _HowBody(StrictModel):
    """``variance`` is used by the races, ``setting`` by lil_ucb, ``delta`` by all but exact."""

    method: SamplingMethod = "racing_normal"
    delta: Delta = 0.05
    draws: Annotated[int, Field(ge=1, le=limits.MAX_DRAWS)] = 1
    variance: Literal["pairwise", "marginal"] = "pairwise"
    setting: Literal["safe", "heuristic"] = "safe"
    seed: Seed | None = None

    def request(self) -> SampleRequest:
        return SampleRequest(self.method, self.delta, self.draws, self.variance, self.setting, self.seed)


class SampleBody(_HowBody):
    """D rows of N numbers. null and "-Infinity" are log 0: a row that has one is never drawn."""

    max_bytes: ClassVar[int] = limits.MAX_BODY_BYTES
    instead: ClassVar[str] = "send it as application/octet-stream"
    long_list: ClassVar[str] = "log_factors"

    log_factors: Annotated[list[Row], Field(min_length=1, max_length=limits.MAX_STATES)]
    log_prior: Annotated[list[LogFactor], Field(min_length=1, max_length=limits.MAX_STATES)] | None = None


class CatalogueSampleBody(_HowBody, QueryBody):
    """``query`` or ``embedding``: one of them."""

    max_bytes: ClassVar[int] = limits.MAX_VECTOR_BYTES

    temperature: Temperature = 1.0
    filter: FilterBody | None = None


class SampleCostView(AttributesView):
    """Factors of states (coordinates of arms) that were used, each counted once, of D x N."""

    reads: int
    exhaustive_reads: int


class SampleGuaranteeView(AttributesView):
    """``exact``: drawn from p. ``pac``: each draw is within ``delta`` of p in total variation; ``assumes``
    names a condition of that. ``none``: no promise. ``reason`` explains a kind
    that was not asked for.
    """

    kind: Literal["exact", "pac", "none"]
    delta: OrZero
    assumes: Literal["normal_means"] | None
    reason: str | None


class SampleView(BaseModel):
    """``draws`` are rows of the request, each an independent draw."""

    draws: list[int]
    method: str
    guarantee: SampleGuaranteeView
    cost: SampleCostView
    elapsed_ms: float


class CatalogueSampleView(BaseModel):
    """``draws`` are ids of arms, each an independent draw: an arm may appear more than once."""

    draws: list[str]
    method: str
    guarantee: SampleGuaranteeView
    cost: SampleCostView
    catalogue_version: int
    elapsed_ms: float


@router.post("", response_model=SampleView, openapi_extra=documented(SampleBody))
async def sample(
    request: Request,
    sampling: Provided[Sampling],
    *,
    n: Annotated[Annotated[int, WHOLE, Field(ge=1, le=limits.MAX_STATES)] | None, Query()] = None,
    dim: Annotated[Annotated[int, WHOLE, Field(ge=1, le=limits.MAX_FACTORS)] | None, Query()] = None,
    method: Annotated[SamplingMethod, Query()] = "racing_normal",
    delta: Annotated[Annotated[Delta, REAL], Query()] = 0.05,
    draws: Annotated[Annotated[int, WHOLE, Field(ge=1, le=limits.MAX_DRAWS)], Query()] = 1,
    variance: Annotated[Literal["pairwise", "marginal"], Query()] = "pairwise",
    setting: Annotated[Literal["safe", "heuristic"], Query()] = "safe",
    seed: Annotated[Annotated[int, WHOLE, Field(ge=0, lt=2**63)] | None, Query()] = None,
) -> SampleView:
    """Draw rows x with p(x) proportional to exp(log_prior[x] + sum of log_factors[x]).

    As JSON, everything is in the body. As octet-stream, the body is little-endian float32: the n x dim
    factors, row after row, and then the n log priors, if there are any; -inf is log 0. All else are query
    parameters.
    """
    body = await body_or_octets(request, SampleBody)
    if isinstance(body, SampleBody):
        options, factors, prior = body.request(), body.log_factors, body.log_prior
        if sum(map(len, factors)) > limits.MAX_FACTORS:
            raise _too_many_factors(("log_factors",))
        answer = await sampling.sample(factors, prior, options)
    else:
        options = SampleRequest(method, delta, draws, variance, setting, seed)
        answer = await sampling.sample(*_raw(body, *shape(n, dim)), options)
    return SampleView(draws=answer.draws, method=options.method, **_common(answer))


def _raw(data: bytes, n: int, dim: int) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Factors and priors. Raises Invalid, TooLarge."""
    count = n * dim
    if count > limits.MAX_FACTORS:
        raise _too_many_factors((Part.QUERY, "n"))
    sent = numbers(data, [count, count + n], "n x dim factors, and n log priors or none")
    with_zeros = sent.astype(np.float64)
    finite = with_zeros[with_zeros != -np.inf]
    if len(finite):
        check_magnitude(finite, limits.MAX_LOG_FACTOR)
    prior = with_zeros[count:]
    return with_zeros[:count].reshape(n, dim), prior if len(prior) else None


def _too_many_factors(where: FieldPath) -> TooLarge:
    return TooLarge(f"log_factors must not hold more than {limits.MAX_FACTORS} numbers", path=where)


@catalogue_router.post("/sample", response_model=CatalogueSampleView, responses=problems(409))
async def sample_arms(
    catalogue: Identifier,
    body: CatalogueSampleBody,
    catalogues: Provided[Catalogues],
    sampling: Provided[Sampling],
) -> CatalogueSampleView:
    """Draw arms with p proportional to exp(query.x / temperature)."""
    request, arms = body.request(), await catalogues.get_fitted(catalogue)
    answer = await sampling.sample_arms(
        arms, body.query_in(arms.encoding), body.temperature, request, parsed_filter(body.filter)
    )
    return CatalogueSampleView(
        draws=answer.draws,
        method=request.method,
        catalogue_version=answer.catalogue_version,
        **_common(answer),
    )


def _common(answer: SampleResult[Any]) -> dict[str, Any]:
    return {"guarantee": answer.guarantee, "cost": answer.result, "elapsed_ms": answer.elapsed_ms}


class SampleCalls(Routes):
    """``POST /v1/sample``."""

    router = router
    scopes: ClassVar[Mapping[str, str]] = {"POST": "read"}

    def services(self, dependencies: RouteDependencies) -> Mapping[str, object]:
        return {"sampling": Sampling(dependencies.copies, dependencies.filtered)}


class CatalogueSampleCalls(Routes):
    """``POST /v1/catalogues/{catalogue}/sample``, with the service of ``SampleCalls``."""

    router = catalogue_router
    scopes: ClassVar[Mapping[str, str]] = {"POST /sample": "read"}
    examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "POST /sample": {"query": [0.9, 0.1, 0.3], "draws": 2}
    }
