"""Shortlist in at most 300 lines: a file to read before the service, with a few of its calls.

    $ python -m examples.mini          # on an embedded store; with redis://… on a store of yours
    $ U=http://127.0.0.1:8090/v1 J=content-type:application/json
    $ curl -X PUT -H $J $U/catalogues/films/arms -d '{"arms": [{"id": "alien", "features": [1, 0]}]}'
    $ curl -X PUT -H $J $U/bandits/home -d '{"catalogue": "films", "ridge": 1, "exploration": 0.5}'
    $ curl -H $J $U/bandits/home/choose -d '{"key": "user-42", "k": 1}'
    {"arms": [{"id": "alien", "score": -0.31}], "decision": "3q2-…"}
    $ curl -H $J $U/rewards -d '{"rewards": [{"decision": "3q2-…", "arm": "alien", "value": 1}]}'
    {"results": ["accepted"]}
    $ curl $U/bandits/home/learners/user-42
    {"key": "user-42", "observations": 1, "theta": [0.5, 0.0], "precision": [[2.0, 0.0], [0.0, 1.0]]}

docs/mini.md says of each part where the service has it, and what the service adds. Keys of the store:

    mini:secret             signs tokens; the first process makes it
    mini:dim, mini:bandits  hashes: the dimension of each catalogue, the settings of each bandit
    mini:versions           hash: how often the arms of each catalogue have changed
    mini:arms:C             hash: the features of each arm of catalogue C, float64
    mini:came:ID:ARM        a reward of this decision and arm has come; expires with the token
    mini:log                stream of the rewards that are not folded yet
    mini:learner:B:KEY      hash: the sums A and b of a learner of bandit B
    mini:watermark          id of the last entry of the log that the learners contain
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import hnswlib
import numpy as np
import uvicorn
from fastapi import Body, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from redis import Redis, RedisError

from app.storage.embedded.server import EmbeddedServer

SHORTLIST = 30  # arms that a search proposes
SCANNED = 1_000  # arms: up to here all are compared, which is faster than a graph and misses none
BATCH, POLL_S = 1_000, 0.05  # how many entries are folded at once, and how often
TOKEN_TTL_S, PORT = 86_400, 8090

# KEYS   mini:came:ID:ARM, mini:log, mini:arms:C      ARGV   arm, learner, reward, when the token expires
# Effect in one step: the reward is appended to the log, with the features of its arm, unless its token has
#        expired or a reward of its decision and arm has come before.
# The clock is the store's, for both checks: a reward that comes after its key `came` is gone has expired.
APPEND = """
if tonumber(redis.call('TIME')[1]) >= tonumber(ARGV[4]) then return 'expired' end
if not redis.call('SET', KEYS[1], '', 'NX', 'EXAT', ARGV[4]) then return 'duplicate' end
local x = redis.call('HGET', KEYS[3], ARGV[1])
redis.call('XADD', KEYS[2], '*', 'learner', ARGV[2], 'x', x, 'reward', ARGV[3])
return 'accepted'
"""

Floats = NDArray[np.float64]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
Number = Annotated[float, Field(ge=-1e6, le=1e6)]  # sums of these stay finite
ListLength = Annotated[int, Body(ge=1, le=100)]


class ArmBody(BaseModel):
    id: Name
    features: Annotated[list[Number], Field(min_length=1, max_length=256)]


class Bandit(BaseModel):
    catalogue: Name
    ridge: Annotated[float, Field(ge=1e-9, le=1e9)] = 1.0
    exploration: Annotated[float, Field(ge=0, le=1e6)] = 0.5


class RewardBody(BaseModel):
    decision: str
    value: Number
    arm: str


class Arms(NamedTuple):
    """The arms of a catalogue, at one version. Shapes: features (n, d). ``graph``: None of few arms."""

    version: int
    ids: list[str]
    features: Floats
    graph: Any

    def search(self, query: Floats, k: int) -> list[dict[str, Any]]:
        """The ``k`` arms of largest inner product with the query (d,), the best first, with this product."""
        rows = np.arange(len(self.ids))
        if self.graph is not None:
            rows = self.graph.knn_query(query[None], k=max(SHORTLIST, k))[0][0].astype(np.int64)
        scores = self.features[rows] @ query  # exact: those of the graph are float32
        best = np.argsort(-scores, kind="stable")[:k]
        return [{"id": self.ids[rows[at]], "score": float(scores[at])} for at in best]


def read_arms(store: Redis, catalogue: str) -> Arms:
    """The arms of now, and a graph of them where they are many. Cost: the whole catalogue."""
    read: Any = store.pipeline(transaction=True)
    version, arms = read.hget("mini:versions", catalogue).hgetall(f"mini:arms:{catalogue}").execute()
    features = np.array([np.frombuffer(row) for row in arms.values()])
    graph = None
    if len(arms) > SCANNED:
        graph = hnswlib.Index(space="ip", dim=features.shape[1])
        graph.init_index(max_elements=len(arms), M=16, ef_construction=200)
        # The longest first: they have the largest inner products, so they become the hubs.
        longest_first = np.argsort(-np.linalg.norm(features, axis=1))
        graph.add_items(features[longest_first], longest_first)
        graph.set_ef(200)  # the more, the better and the slower is a search
    return Arms(int(version), [arm.decode() for arm in arms], features, graph)


class Learner(NamedTuple):
    """Of rewards r of arms x (d,): A, the sum of x x^T (d, d), b, the sum of r x (d,), and how many."""

    A: Floats
    b: Floats
    observations: int

    def posterior(self, ridge: float) -> tuple[Floats, Floats]:
        """The precision V = A + ridge I (d, d), and the estimate theta^ = V^-1 b (d,)."""
        precision = self.A + ridge * np.eye(len(self.b))
        return precision, np.asarray(np.linalg.solve(precision, self.b))

    def draw(self, ridge: float, exploration: float, xi: Floats) -> Floats:
        """theta~ = theta^ + exploration L^-T xi (d,), where V = L L^T and xi is standard normal (d,)."""
        precision, theta = self.posterior(ridge)
        return np.asarray(theta + exploration * np.linalg.solve(np.linalg.cholesky(precision).T, xi))


def read_learner(store: Redis, name: str, dim: int) -> Learner:
    stored: Any = store.hgetall(f"mini:learner:{name}")
    if not stored:
        return Learner(np.zeros((dim, dim)), np.zeros(dim), 0)
    gram, moment = np.frombuffer(stored[b"A"]), np.frombuffer(stored[b"b"])
    return Learner(gram.reshape(dim, dim), moment, int(stored[b"n"]))


def sign(secret: bytes, decision: dict[str, Any]) -> str:
    """A token: the decision as JSON, behind its HMAC-SHA256. Nothing of a choice is stored."""
    payload = json.dumps(decision).encode()
    return base64.urlsafe_b64encode(hmac.digest(secret, payload, "sha256") + payload).decode()


def verify(secret: bytes, token: str) -> dict[str, Any] | None:
    """The decision of a token; None where nobody with the secret has signed it."""
    with suppress(ValueError):  # of what is not base64
        signed = base64.urlsafe_b64decode(token)
        # In constant time: a comparison that ends early tells an attacker how many bytes were right.
        if hmac.compare_digest(signed[:32], hmac.digest(secret, signed[32:], "sha256")):
            return dict(json.loads(signed[32:]))
    return None


def fold(store: Redis) -> int:
    """Add the next entries of the log to the learners, and return how many.

    The learners and the watermark change in one transaction: a kill before has changed nothing, and after it
    these entries are not read again. Raises WatchError, and stores nothing, if another worker was faster.
    """
    with store.pipeline(transaction=True) as transaction:
        transaction.watch("mini:watermark")  # type: ignore[no-untyped-call]
        watermark: Any = transaction.get("mini:watermark") or b"0-0"
        entries: Any = transaction.xrange("mini:log", min=b"(" + watermark, count=BATCH)
        if not entries:
            return 0
        learners = dict[str, Learner]()
        for _, entry in entries:
            name, x = entry[b"learner"].decode(), np.frombuffer(entry[b"x"])
            learner = learners.get(name) or read_learner(store, name, len(x))
            A, b = learner.A + np.outer(x, x), learner.b + float(entry[b"reward"]) * x
            learners[name] = Learner(A, b, learner.observations + 1)
        transaction.multi()
        for name, learner in learners.items():
            sums: Any = {"A": learner.A.tobytes(), "b": learner.b.tobytes(), "n": learner.observations}
            transaction.hset(f"mini:learner:{name}", mapping=sums)
        transaction.set("mini:watermark", entries[-1][0])
        transaction.xtrim("mini:log", minid=entries[-1][0])
        transaction.execute()
        return len(entries)


def work(store: Redis) -> None:
    """The worker: folds for ever."""
    while True:
        time.sleep(POLL_S)
        with suppress(RedisError):  # another worker was faster, or the store is away
            fold(store)


class Mini:
    """The calls, as those of the service but for what they lack. ``store`` gives bytes."""

    def __init__(self, store: Redis) -> None:
        self._store, self._append = store, store.register_script(APPEND)
        store.set("mini:secret", os.urandom(32), nx=True)
        self._secret: Any = store.get("mini:secret")
        self._arms: dict[str, Arms] = {}
        self._reading = threading.Lock()  # FastAPI runs calls in threads: one of them reads the arms
        self._rng = np.random.default_rng()

    def put_arms(self, catalogue: Name, arms: Annotated[list[ArmBody], Body(embed=True)]) -> None:
        dims = {len(arm.features) for arm in arms}
        if len(dims) != 1:
            raise HTTPException(422, "arms: give some, each with as many features")
        self._put_once("dim", catalogue, str(dims.pop()))
        rows: Any = {arm.id: np.array(arm.features).tobytes() for arm in arms}
        write: Any = self._store.pipeline(transaction=True)
        write.hset(f"mini:arms:{catalogue}", mapping=rows).hincrby("mini:versions", catalogue, 1).execute()

    def put_bandit(self, bandit: Name, body: Bandit) -> None:
        self._find("versions", body.catalogue)
        self._put_once("bandits", bandit, body.model_dump_json())

    def choose(self, bandit: Name, key: Annotated[Name, Body()], k: ListLength = 1) -> dict[str, Any]:
        settings = Bandit.model_validate_json(self._find("bandits", bandit))
        arms, name = self._arms_of(settings.catalogue), f"{bandit}:{key}"
        learner = read_learner(self._store, name, arms.features.shape[1])
        xi = self._rng.standard_normal(len(learner.b))
        shown = arms.search(learner.draw(settings.ridge, settings.exploration, xi), k)
        what = {"learner": name, "catalogue": settings.catalogue, "arms": [arm["id"] for arm in shown]}
        ends = {"id": os.urandom(12).hex(), "expires": int(time.time()) + TOKEN_TTL_S}
        return {"arms": shown, "decision": sign(self._secret, what | ends)}

    def reward(self, rewards: Annotated[list[RewardBody], Body(embed=True)]) -> dict[str, Any]:
        return {"results": [self._reward(each) for each in rewards]}

    def get_learner(self, bandit: Name, key: Name) -> dict[str, Any]:
        settings = Bandit.model_validate_json(self._find("bandits", bandit))
        learner = read_learner(self._store, f"{bandit}:{key}", int(self._find("dim", settings.catalogue)))
        precision, theta = learner.posterior(settings.ridge)
        learned = {"theta": theta.tolist(), "precision": precision.tolist()}
        return {"key": key, "observations": learner.observations, **learned}

    def _reward(self, body: RewardBody) -> str:
        decision = verify(self._secret, body.decision)
        if decision is None or body.arm not in decision["arms"]:
            return "invalid"
        keys = [f"mini:came:{decision['id']}:{body.arm}", "mini:log", f"mini:arms:{decision['catalogue']}"]
        code: Any = self._append(keys, [body.arm, decision["learner"], repr(body.value), decision["expires"]])
        return str(code.decode())

    def _arms_of(self, catalogue: str) -> Arms:
        """The arms in memory, if no process has changed them since they were read."""
        version = int(self._find("versions", catalogue))
        with self._reading:
            if catalogue not in self._arms or self._arms[catalogue].version < version:
                self._arms[catalogue] = read_arms(self._store, catalogue)
            return self._arms[catalogue]

    def _find(self, what: str, name: str) -> bytes:
        value: Any = self._store.hget(f"mini:{what}", name)
        if value is None:
            raise HTTPException(404, f"{name} is not in {what}")
        return bytes(value)

    def _put_once(self, what: str, name: str, value: str) -> None:
        """Learners depend on the value, so it is the same for ever. Repeated, the call changes nothing."""
        if not self._store.hsetnx(f"mini:{what}", name, value) and self._find(what, name) != value.encode():
            raise HTTPException(409, f"{name} exists with another {what}")


async def refuse(_: Request, error: RequestValidationError) -> JSONResponse:
    """422 without the value that FastAPI would repeat: NaN is no JSON, and the answer would be 500."""
    return JSONResponse([{"loc": each["loc"], "msg": each["msg"]} for each in error.errors()], 422)


def create_app(mini: Mini) -> FastAPI:
    app = FastAPI(title="Shortlist in 300 lines", exception_handlers={RequestValidationError: refuse})
    app.put("/v1/catalogues/{catalogue}/arms")(mini.put_arms)
    app.put("/v1/bandits/{bandit}")(mini.put_bandit)
    app.post("/v1/bandits/{bandit}/choose")(mini.choose)
    app.post("/v1/rewards", status_code=202)(mini.reward)
    app.get("/v1/bandits/{bandit}/learners/{key}")(mini.get_learner)
    return app


def main(url: str | None = None) -> None:
    """Serve and work, on the store at ``url``; without one on a store that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mini-") as folder, ExitStack() as stack:
        store = Redis.from_url(url or stack.enter_context(EmbeddedServer(Path(folder))).url)
        threading.Thread(target=work, args=(store,), daemon=True).start()
        uvicorn.run(create_app(Mini(store)), port=PORT)


if __name__ == "__main__":
    main(*sys.argv[1:])
