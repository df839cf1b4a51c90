"""/v1/bandits/{b}/embeddings: coordinates of arms from the log of a bandit, taken only if they gain."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from app.api.fields import Identifier
from app.api.problems import problems
from app.api.strict_json import Provided, StrictModel, json_router, reply
from app.bandits.registry import Bandits
from app.measuring.embedding_jobs import EmbeddingJobs
from app.moving.log_embeddings import LogEmbedding, LogEmbeddings

MAX_LOG_DIM = 64

router = json_router(prefix="/v1/bandits", tags=["measuring"])


class LogEmbeddingBody(StrictModel):
    """``catalogue``: the name of the catalogue that is made if the log gains by it. ``dim``: how many
    coordinates. ``every``: null; it is not repeated by itself.
    """

    catalogue: Identifier
    dim: Annotated[int, Field(ge=1, le=MAX_LOG_DIM)] = 8
    every: None = None


class StartedEmbedding(BaseModel):
    """The id of a job."""

    id: str


class LogEmbeddingJob(BaseModel):
    """``state``: ``waiting``, ``running``, ``done`` or ``failed``. ``created``: in ms since 1970. ``error``:
    why it failed. ``result``: once it is done, for an hour.
    """

    id: str
    created: int
    state: Literal["waiting", "running", "done", "failed"]
    error: str | None
    result: LogEmbedding | None


@router.post(
    "/{bandit}/embeddings", response_model=StartedEmbedding, status_code=202, responses=problems(409, 429)
)
async def start(
    bandit: str,
    body: LogEmbeddingBody,
    bandits: Provided[Bandits],
    log_embeddings: Provided[LogEmbeddings],
    embedding_jobs: Provided[EmbeddingJobs],
) -> Response:
    """Judge coordinates made of the bandit's own rewards, and move it to a catalogue with them if they gain.

    Its features and learners of the first nine tenths of the log are judged on the last tenth.
    """
    found = await bandits.get(bandit)
    await log_embeddings.check(found, body.catalogue, body.dim)
    return reply({"id": await embedding_jobs.start(found, body.catalogue, body.dim)}, 202)


@router.get("/{bandit}/embeddings/{embedding}", response_model=LogEmbeddingJob)
async def get(
    bandit: str, embedding: str, bandits: Provided[Bandits], embedding_jobs: Provided[EmbeddingJobs]
) -> Response:
    """How it stands, and what was found once it is done."""
    return reply(await embedding_jobs.find(await bandits.get(bandit), embedding))


@router.delete("/{bandit}/embeddings/{embedding}", status_code=204)
async def delete(
    bandit: str, embedding: str, bandits: Provided[Bandits], embedding_jobs: Provided[EmbeddingJobs]
) -> None:
    """Forget it; one that goes on is cancelled."""
    await embedding_jobs.delete(await bandits.get(bandit), embedding)
