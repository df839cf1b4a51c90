"""POST /v1/catalogues/{c}/embeddings: a catalogue of the same arms, whose features are made of behaviour.

The embedding is computed by whoever has the behaviour: `shortlist embed` does, from tables of clicks. The
body is blocks, as in an import. The first is a msgpack document ``{"catalogue": name,
"version": that of the followed catalogue when its arms were read, "linear": d x T numbers, "shift": d
numbers, "kappa": number, "rewards", "keys", "arms", "without": counts, "beside": true where
features begin with those of the followed catalogue}``; each of the others ``{"ids": [...],
"likes": n numbers, "vectors": n x d numbers}``. Numbers are bytes: float32, little-endian, row after row.
``BehaviourRecord`` says what is made of them. ``"prior"``, which may be absent: what the behaviour
says of keys, ``{"mean": a number for each feature, "covariance": its lower triangle, row by row, "noise",
"liking", "keys", "directions"}``, these numbers as float64: ``HistoryPriorRecord``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist_embeddings.encoding import BehaviourEncoding
from shortlist_embeddings.following import CatalogueFollowing
from shortlist_embeddings.new_embeddings import Embeddings, NewEmbedding
from shortlist_service.catalogues import (
    MAX_BASIS_NUMBERS,
    MAX_FEATURE,
    MAX_FEATURES,
    MAX_PRIOR_DIM,
    BehaviourRecord,
    Catalogue,
    HistoryPriorRecord,
)
from shortlist_service.errors import BadRequest, Conflict, DimensionMismatch, Invalid, counted
from shortlist_service.routes import (
    BLOCKS_BODY,
    IDENTIFIER,
    MAX_BLOCK_ARMS,
    CatalogueView,
    Provided,
    Request,
    Response,
    RouteDependencies,
    Routes,
    answer_of,
    blocks_of,
    check_catalogue,
    is_identifier,
    json_router,
    problems,
)
from shortlist_service.work import REQUESTS

T = TypeVar("T")
MOST_KAPPA = 1e6

router = json_router(prefix="/v1/catalogues/{catalogue}", tags=["catalogues"])


class EmbeddingHead(msgspec.Struct, forbid_unknown_fields=True):
    """The first block; see the module."""

    catalogue: str
    version: int
    linear: bytes
    shift: bytes
    kappa: float
    rewards: int
    keys: int
    arms: int
    without: int
    prior: HistoryPriorRecord | None = None
    beside: bool = False


class ArmsOfBehaviour(msgspec.Struct, forbid_unknown_fields=True):
    """A further block."""

    ids: list[str]
    likes: bytes
    vectors: bytes


@router.post(
    "/embeddings",
    response_model=CatalogueView,
    status_code=201,
    responses={**problems(400, 409, 429), 200: {"model": CatalogueView}},
    openapi_extra=BLOCKS_BODY,
)
async def make(catalogue: str, request: Request, embeddings: Provided[Embeddings]) -> Response:
    """Make a catalogue that follows this one: the same arms, by an embedding of behaviour.

    The embedding was computed elsewhere, as `shortlist embed` does. Arms come within seconds; until
    ``filled`` is true no bandit can have it. 200: the same one exists, 409: another one has the name.
    """
    source = await embeddings.source(catalogue)
    body = blocks_of(request)
    head = _decoded(EmbeddingHead, await anext(body, b""), "first block")
    record = _record(head, source)
    if head.prior is not None:
        await REQUESTS.run(partial(_check_prior, head.prior, BehaviourEncoding(record).dim))
    check_catalogue(request, head.catalogue)
    async with embeddings.begin(source, record, head.prior) as embedding:
        await _receive(embedding, len(head.shift) // 4, body)
        created, new = await embedding.make(head.catalogue)
    return await answer_of(request, created, 201 if new else 200)


async def _receive(embedding: NewEmbedding, dim: int, body: AsyncIterator[bytes]) -> None:
    number = 0
    async for data in body:
        block = _decoded(ArmsOfBehaviour, data, "block after the first")
        count = len(block.ids)
        if count > MAX_BLOCK_ARMS or not all(map(is_identifier, block.ids)):
            message = f"must be at most {MAX_BLOCK_ARMS} ids that match ^{IDENTIFIER}$"
            raise Invalid(message, path=(number, "ids"))
        likes = _numbers(block.likes, (count, 1), (number, "likes"))[:, 0]
        if (likes <= 0.0).any():
            raise Invalid("must be above 0: an arm without likes is left out", path=(number, "likes"))
        await embedding.add(block.ids, likes, _numbers(block.vectors, (count, dim), (number, "vectors")))
        number += 1


def _record(head: EmbeddingHead, source: Catalogue) -> BehaviourRecord:
    """Raises Invalid, Conflict: the source is not what it was when its arms were read."""
    if not is_identifier(head.catalogue):
        raise Invalid(f"must match ^{IDENTIFIER}$", path=("catalogue",))
    dim = len(head.shift) // 4
    most = MAX_FEATURES - head.beside * source.dim
    if not 1 <= dim <= most:
        raise Invalid(f"must be 1 to {most:,} numbers", path=("shift",))
    if dim * source.dim > MAX_BASIS_NUMBERS:
        raise Invalid(
            f"dim times the {counted(source.dim, 'feature', 'features')} of {source.name} must be at most "
            f"{MAX_BASIS_NUMBERS:,}",
            path=("shift",),
        )
    _numbers(head.shift, (1, dim), ("shift",))
    if len(head.linear) != 4 * dim * source.dim or head.version > source.version:
        raise Conflict(f"{source.name} is another catalogue than when its arms were read: begin again")
    _numbers(head.linear, (dim, source.dim), ("linear",))
    if not 0.0 < head.kappa <= MOST_KAPPA:
        raise Invalid(f"must be above 0, and at most {MOST_KAPPA:,.0f}", path=("kappa",))
    counts = {name: getattr(head, name) for name in ("rewards", "keys", "arms", "without")}
    if wrong := next((name for name, count in counts.items() if not 0 <= count < 2**63), None):
        raise Invalid("must not be negative", path=(wrong,))
    return BehaviourRecord(
        source.name, source.uid, head.linear, head.shift, head.kappa, **counts, beside=head.beside
    )


def _check_prior(prior: HistoryPriorRecord, dim: int) -> None:
    """Raises Invalid, DimensionMismatch."""
    if dim > MAX_PRIOR_DIM:
        raise Invalid(f"is possible for at most {MAX_PRIOR_DIM} numbers", path=("prior",))
    if len(prior.mean) != 8 * dim or len(prior.covariance) != 4 * dim * (dim + 1):
        message = f"must be {dim} numbers, and a lower triangle of {dim} x {dim}, of float64"
        raise DimensionMismatch(message, path=("prior",))
    try:
        prior.prior()
    except ValueError as error:
        raise Invalid(f"is no prior: {error}", path=("prior",)) from None


def _decoded(kind: type[T], data: bytes, what: str) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the {what} is not what POST …/embeddings takes: {error}") from None


def _numbers(data: bytes, shape: tuple[int, int], where: tuple[str | int, ...]) -> NDArray[np.float32]:
    rows, columns = shape
    if len(data) != 4 * rows * columns:
        raise DimensionMismatch(f"must be {rows} x {columns} numbers of float32", path=where)
    matrix = np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False).reshape(shape)
    if not (np.abs(matrix) <= MAX_FEATURE).all():
        raise Invalid(f"every number must be finite, and at most {MAX_FEATURE:,.0f} in magnitude", path=where)
    return matrix


class CatalogueCalls(Routes):
    """``POST /v1/catalogues/{catalogue}/embeddings``; and what fills the catalogues that it makes."""

    router = router

    def services(self, dependencies: RouteDependencies) -> Mapping[str, object]:
        store, catalogues, metrics = dependencies.store, dependencies.catalogues, dependencies.metrics
        return {
            "embeddings": Embeddings(store, catalogues, metrics),
            "catalogue_following": CatalogueFollowing(store, catalogues, metrics),
        }
