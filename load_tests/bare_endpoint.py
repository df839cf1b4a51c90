"""What the service is measured against: the plainest FastAPI endpoints with the same requests and answers.

    python -m load_tests.bare_endpoint SAMPLES

SAMPLES is a JSON file with one answer of the service by path. The endpoints validate a pydantic body and
build a pydantic answer out of the sample, and do nothing else; uvicorn runs as in `shortlist serve`.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
samples: dict[str, Any] = {}


class ChooseRequest(BaseModel):
    key: str | None = None
    k: int = 1


class ChosenArm(BaseModel):
    id: str
    score: float


class Choice(BaseModel):
    decision: str
    arms: list[ChosenArm]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool


class Reward(BaseModel):
    decision: str
    value: float


class RewardsRequest(BaseModel):
    rewards: list[Reward]


class Receipt(BaseModel):
    accepted: int
    duplicate: int
    rejected: list[int]


@app.post("/v1/bandits/{bandit}/choose")
async def choose(bandit: str, body: ChooseRequest) -> Choice:
    sample = samples["choose"]
    arms = [ChosenArm(id=arm["id"], score=arm["score"]) for arm in sample["arms"]]
    return Choice(
        decision=sample["decision"],
        arms=arms,
        policy=sample["policy"],
        learner_version=sample["learner_version"],
        catalogue_version=sample["catalogue_version"],
        exact=sample["exact"],
    )


@app.post("/v1/rewards", status_code=202)
async def reward(body: RewardsRequest) -> Receipt:
    return Receipt(accepted=len(body.rewards), duplicate=0, rejected=[])


def main() -> None:
    samples.update(json.loads(Path(sys.argv[1]).read_text()))
    listener = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    host, port = listener.getsockname()
    print(json.dumps({"host": host, "port": port}), file=sys.stderr, flush=True)
    config = uvicorn.Config(app, http="httptools", access_log=False, log_config=None, server_header=False)
    uvloop.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
