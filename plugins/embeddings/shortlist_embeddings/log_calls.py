"""/v1/bandits/{b}/embeddings: coordinates of arms from the log of a bandit, taken only if they gain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from shortlist_embeddings.jobs import AskedEmbedding, EmbeddingJobs
from shortlist_embeddings.log_embeddings import LogEmbedding, LogEmbeddings
from shortlist_embeddings.new_embeddings import Embeddings
from shortlist_service.routes import (
    Bandits,
    Cursor,
    Identifier,
    Limit,
    Page,
    Provided,
    Request,
    Response,
    RouteDependencies,
    Routes,
    StrictModel,
    check_catalogue,
    json_router,
    page_by_name,
    problems,
    reply,
)

MAX_LOG_DIM = 64
MIN_EVERY_S, MAX_EVERY_S = 3_600, 90 * 86_400
_TIME = re.compile(r"([1-9][0-9]{0,3})([hd])")

router = json_router(prefix="/v1/bandits/{bandit}", tags=["evaluations"])


def _seconds(text: str) -> int:
    """A time such as "12h" or "7d". Raises ValueError: it is none, or out of bounds."""
    parts = _TIME.fullmatch(text)
    seconds = int(parts[1]) * (3_600 if parts[2] == "h" else 86_400) if parts else 0
    if not MIN_EVERY_S <= seconds <= MAX_EVERY_S:
        raise ValueError('must be a time from "1h" to "90d"')
    return seconds


def _checked_time(text: str) -> str:
    _seconds(text)
    return text


class LogEmbeddingBody(StrictModel):
    """``catalogue``: the name of the catalogue that is made if the log gains by it. ``dim``: how many
    coordinates. ``every``: judge again after this time until it gains, from "1h" to "90d"; null: once.
    ``signal``: of a bandit with signals, the one whose values are judged; null: their weighted sum.
    """

    catalogue: Identifier
    dim: Annotated[int, Field(ge=1, le=MAX_LOG_DIM)] = 8
    every: Annotated[str, AfterValidator(_checked_time)] | None = None
    signal: Identifier | None = None


class StartedEmbedding(BaseModel):
    """The id of a job."""

    id: str


class LogEmbeddingHead(BaseModel):
    """``state``: ``waiting``, ``running``, ``done`` or ``failed``. ``created``: in ms since 1970. ``error``:
    why it failed.
    """

    id: str
    created: int
    state: Literal["waiting", "running", "done", "failed"]
    error: str | None


class LogEmbeddingJob(LogEmbeddingHead):
    """As in the list. ``result``: what was found last; once it is done, for an hour."""

    result: LogEmbedding | None


@router.post("/embeddings", response_model=StartedEmbedding, status_code=202, responses=problems(409, 429))
async def start(
    bandit: str,
    body: LogEmbeddingBody,
    request: Request,
    *,
    bandits: Provided[Bandits],
    log_embeddings: Provided[LogEmbeddings],
    embedding_jobs: Provided[EmbeddingJobs],
) -> Response:
    """Judge coordinates made of the bandit's own rewards, and move it to a catalogue with them if they gain.

    Its features and learners of the first nine tenths of the log are judged on the last tenth.
    """
    check_catalogue(request, body.catalogue)
    owner = await bandits.get(bandit)
    every_s = None if body.every is None else _seconds(body.every)
    await log_embeddings.check(owner, body.catalogue, body.dim, body.signal)
    asked = AskedEmbedding(owner.uid, body.catalogue, body.dim, every_s, body.signal)
    return reply({"id": await embedding_jobs.start(owner, asked)}, 202)


@router.get("/embeddings", response_model=Page[LogEmbeddingHead])
async def list_embeddings(
    bandit: str,
    bandits: Provided[Bandits],
    embedding_jobs: Provided[EmbeddingJobs],
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response:
    """The jobs of a bandit that go on, or ended in the last hour; the oldest first."""
    jobs = await embedding_jobs.all(await bandits.get(bandit))
    items, following = page_by_name(jobs, itemgetter("id"), cursor, limit)
    return reply({"items": items, "next": following})


@router.get("/embeddings/{embedding}", response_model=LogEmbeddingJob)
async def get(
    bandit: str, embedding: str, bandits: Provided[Bandits], embedding_jobs: Provided[EmbeddingJobs]
) -> Response:
    """The state of a job, and its finding once done."""
    return reply(await embedding_jobs.find(await bandits.get(bandit), embedding))


@router.delete("/embeddings/{embedding}", status_code=204)
async def delete(
    bandit: str, embedding: str, bandits: Provided[Bandits], embedding_jobs: Provided[EmbeddingJobs]
) -> None:
    """Forget it; one that goes on is cancelled."""
    await embedding_jobs.delete(await bandits.get(bandit), embedding)


class LogCalls(Routes):
    """``/v1/bandits/{bandit}/embeddings``."""

    router = router

    def services(self, dependencies: RouteDependencies) -> Mapping[str, object]:
        store, catalogues, bandits = dependencies.store, dependencies.catalogues, dependencies.bandits
        log_embeddings = LogEmbeddings(
            catalogues,
            bandits,
            dependencies.decision_log,
            Embeddings(store, catalogues, dependencies.metrics),
            dependencies.moving,
        )
        jobs = EmbeddingJobs(
            dependencies.jobs,
            store.write_once,
            log_embeddings.embed,
            lambda uid: bandits.by_uid(uid) is not None,
        )
        return {"log_embeddings": log_embeddings, "embedding_jobs": jobs}
