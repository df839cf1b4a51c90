"""POST /v1/catalogues/{c}/mips and /v1/mips: the arms of largest inner product, or the nearest ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from fastapi import Query, Request
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from app.api import request_limits as limits
from app.api.fields import AttributesView, Delta, Feature, Identifier, QueryBody, Seed
from app.api.filters import FilterBody, parsed_filter
from app.api.octet_streams import (
    REAL,
    REALS,
    WHOLE,
    body_or_octets,
    check_magnitude,
    documented,
    numbers,
    shape,
)
from app.api.problems import Part, problems
from app.api.strict_json import Provided, StrictModel, invalid, json_router
from app.catalogues.catalogues import Catalogues
from app.platform.errors import DimensionMismatch, FieldPath, TooLarge
from app.queries.mips import Mips, MipsMethod, MipsRequest, MipsResult

router = json_router(tags=["mips"])

Numbers = NDArray[np.floating[Any]]
Term = Annotated[float, Field(ge=-limits.MAX_TERM, le=limits.MAX_TERM)]
Count = Annotated[int, Field(ge=1, le=limits.MAX_K)]
Epsilon = Annotated[float, Field(gt=0, le=limits.MAX_TERM)]


def _ordered(value: list[float]) -> list[float]:
    if len(value) != 2 or value[0] > value[1]:
        raise ValueError("must be two numbers, the lower one first")
    return value


ValueRange = Annotated[list[Term], AfterValidator(_ordered)]


class _MipsBody(StrictModel):
    """``epsilon`` is in units of the mean over coordinates: of an inner product (or squared distance) / dim.

    ``value_range`` bounds every coordinate's product, or (q - x)^2 for ``nearest``. ``seed`` fixes the order
    in which coordinates are sampled.
    """

    max_bytes: ClassVar[int] = limits.MAX_VECTOR_BYTES

    k: Count = 1
    method: MipsMethod = "bounded_me"
    epsilon: Epsilon = 0.1
    delta: Delta = 0.05
    objective: Literal["inner_product", "nearest"] = "inner_product"
    value_range: ValueRange | None = None
    seed: Seed | None = None


class CatalogueMipsBody(_MipsBody, QueryBody):
    """``filter``: which arms are searched. ``query`` or ``embedding``: one of them."""

    filter: FilterBody | None = None


class VectorsMipsBody(_MipsBody):
    """Without ``value_range`` finding the range reads everything, so the answer is exact."""

    max_bytes: ClassVar[int] = limits.MAX_BODY_BYTES
    instead: ClassVar[str] = "send it as application/octet-stream"
    long_list: ClassVar[str] = "vectors"

    query: Annotated[list[Feature], Field(min_length=1, max_length=limits.MAX_VECTOR_DIM)]
    vectors: Annotated[
        list[Annotated[list[Feature], Field(min_length=1, max_length=limits.MAX_VECTOR_DIM)]],
        Field(min_length=1, max_length=limits.MAX_JSON_VECTORS),
    ]


class MipsCostView(AttributesView):
    """Coordinates of arms read by the search, and the number of all: arms x dimension.

    ``reads`` is null for a graph, which does not count them.
    """

    reads: int | None
    exhaustive_reads: int


class MipsGuaranteeView(AttributesView):
    """``exact``: the best arms. ``pac``: with probability at least 1 - delta the k-th best arm returned is
    within epsilon of the k-th best. ``none``: no promise. ``reason`` explains a kind that was not asked for.
    """

    kind: Literal["exact", "pac", "none"]
    epsilon: float | None
    delta: float | None
    reason: str | None


class MipsArmView(BaseModel):
    """``value``: the inner product, or the squared distance."""

    id: str
    value: float


class MipsVectorView(BaseModel):
    """``index``: the row of the request. ``value``: the inner product, or the squared distance."""

    index: int
    value: float


class MipsView(BaseModel):
    """The best arm first. ``eligible``: how many the filter matches; null without one, and in an engine."""

    arms: list[MipsArmView]
    method: str
    guarantee: MipsGuaranteeView
    cost: MipsCostView
    catalogue_version: int
    elapsed_ms: float
    eligible: int | None = None


class VectorsMipsView(BaseModel):
    """The best vector first."""

    arms: list[MipsVectorView]
    method: str
    guarantee: MipsGuaranteeView
    cost: MipsCostView
    elapsed_ms: float


@router.post("/v1/catalogues/{catalogue}/mips", response_model=MipsView, responses=problems(409))
async def search(
    catalogue: Identifier, body: CatalogueMipsBody, catalogues: Provided[Catalogues], mips: Provided[Mips]
) -> MipsView:
    """Find the arms of largest inner product with a query, or the nearest ones."""
    stocked, arm_filter = await catalogues.get_fitted(catalogue), parsed_filter(body.filter)
    result = await mips.search(stocked, _request(body, body.query_in(stocked.encoding)), arm_filter)
    values = result.answer.values.tolist()
    arms = [MipsArmView(id=arm, value=value) for arm, value in zip(result.ids, values, strict=True)]
    return MipsView(
        arms=arms,
        catalogue_version=result.catalogue_version,
        eligible=result.eligible,
        **_common(result, body.method),
    )


@router.post("/v1/mips", response_model=VectorsMipsView, openapi_extra=documented(VectorsMipsBody))
async def search_vectors(
    request: Request,
    mips: Provided[Mips],
    *,
    n: Annotated[Annotated[int, WHOLE, Field(ge=1, le=limits.MAX_VECTORS)] | None, Query()] = None,
    dim: Annotated[Annotated[int, WHOLE, Field(ge=1, le=limits.MAX_VECTOR_DIM)] | None, Query()] = None,
    k: Annotated[Annotated[int, WHOLE, Field(ge=1, le=limits.MAX_K)], Query()] = 1,
    method: Annotated[MipsMethod, Query()] = "bounded_me",
    epsilon: Annotated[Annotated[float, REAL, Field(gt=0, le=limits.MAX_TERM)], Query()] = 0.1,
    delta: Annotated[Annotated[Delta, REAL], Query()] = 0.05,
    objective: Annotated[Literal["inner_product", "nearest"], Query()] = "inner_product",
    value_range: Annotated[Annotated[str, REALS] | None, Query()] = None,
    seed: Annotated[Annotated[int, WHOLE, Field(ge=0, lt=2**63)] | None, Query()] = None,
    query: Annotated[Annotated[str, REALS] | None, Query()] = None,
) -> VectorsMipsView:
    """Find the vectors of a request of largest inner product with its query, or the nearest ones.

    As JSON, everything is in the body. As octet-stream, the body is little-endian float32: the query and
    then the n x dim vectors, row after row, or the vectors alone when the query is a parameter; all else
    are query parameters, with value_range as "low,high".
    """
    body = await body_or_octets(request, VectorsMipsBody)
    if isinstance(body, VectorsMipsBody):
        result = await mips.search_vectors(partial(_matrix, body.vectors), _request(body, body.query))
        return _view(result, body.method)
    bounds = None if value_range is None else _split(value_range, ValueRange, "value_range")
    asked = None if query is None else _split(query, list[Feature], "query")
    vectors, row = _raw(body, *shape(n, dim), asked)
    options = MipsRequest(
        row, k, method, epsilon, delta, objective, None if bounds is None else (bounds[0], bounds[1]), seed
    )
    return _view(await mips.search_vectors(vectors, options), method)


def _matrix(vectors: Sequence[Sequence[float]]) -> Numbers:
    for position, row in enumerate(vectors):
        if len(row) != len(vectors[0]):
            message = "all vectors must have as many numbers"
            raise DimensionMismatch(message, path=("vectors", position))
    return np.asarray(vectors, dtype=np.float64)


def _raw(data: bytes, n: int, dim: int, query: list[float] | None) -> tuple[Callable[[], Numbers], Numbers]:
    """The vectors, once they are asked for, and the query. Raises Invalid, DimensionMismatch."""
    if query is not None and len(query) != dim:
        raise DimensionMismatch(
            f"query must have {dim} numbers, not {len(query)}", path=(Part.QUERY, "query")
        )
    rows = n + (query is None)
    what = "the query and n vectors" if query is None else "n vectors"
    matrix = numbers(data, [rows * dim], what).reshape(rows, dim)
    row: Numbers = matrix[0] if query is None else np.array(query)
    check_magnitude(row, limits.MAX_FEATURE)

    def vectors() -> Numbers:
        vectors_sent = matrix[rows - n :]
        check_magnitude(vectors_sent, limits.MAX_FEATURE)
        return vectors_sent

    return vectors, row


def _split(text: str, kind: Any, name: str) -> list[float]:
    if text.count(",") >= limits.MAX_VECTOR_DIM:
        raise TooLarge(f"at most {limits.MAX_VECTOR_DIM} numbers", path=(Part.QUERY, name))
    path: FieldPath = (Part.QUERY, name)
    try:
        result: list[float] = TypeAdapter(kind).validate_python([float(part) for part in text.split(",")])
    except ValidationError as error:
        raise invalid(error, path) from None
    return result


def _request(body: _MipsBody, query: Sequence[float] | Numbers) -> MipsRequest:
    value_range = None if body.value_range is None else (body.value_range[0], body.value_range[1])
    return MipsRequest(
        query, body.k, body.method, body.epsilon, body.delta, body.objective, value_range, body.seed
    )


def _view(result: MipsResult, method: str) -> VectorsMipsView:
    pairs = zip(result.answer.rows.tolist(), result.answer.values.tolist(), strict=True)
    arms = [MipsVectorView(index=index, value=value) for index, value in pairs]
    return VectorsMipsView(arms=arms, **_common(result, method))


def _common(result: MipsResult, method: str) -> dict[str, Any]:
    answer = result.answer
    return {"method": method, "guarantee": answer.guarantee, "cost": answer, "elapsed_ms": result.elapsed_ms}
