"""Shortlist in 300 lines learns what the service learns, whatever happens to the rewards on the way."""

import ast
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from redis import Redis

from app.storage.embedded.server import EmbeddedServer
from examples import mini
from examples.service import temporary_service
from shortlist_client import Client

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[2]
ARMS, DIM, RIDGE = 8, 4, 1.5
KEYS = ("ann", "bob", "cem")
# The process is killed where it has sent the sums of the learners, and neither watermark nor EXEC.
KILLED_BEFORE_THE_WATERMARK = """
import os, signal, sys
from redis import Redis
from redis.client import Pipeline
from examples.mini import fold

def die(self):
    sums = [words for words, _ in self.command_stack if words[0] == "HSET"]
    assert sums and len(sums) < len(self.command_stack)
    for words in [("MULTI",), *sums]:
        self.connection.send_command(*words)
        assert self.connection.read_response() in (b"OK", b"QUEUED")
    os.kill(os.getpid(), signal.SIGKILL)

Pipeline.execute = die
fold(Redis.from_url(sys.argv[1]))
"""
# The process is killed when the store has both, before it knows.
KILLED_AFTER_THE_WATERMARK = """
import os, signal, sys
from redis import Redis
from redis.client import Pipeline
from examples.mini import fold

execute = Pipeline.execute

def die(self):
    execute(self)
    os.kill(os.getpid(), signal.SIGKILL)

Pipeline.execute = die
fold(Redis.from_url(sys.argv[1]))
"""


@pytest.fixture
def store_url(tmp_path: Path) -> Iterator[str]:
    with EmbeddedServer(tmp_path / "store") as server:
        yield server.url


@pytest.fixture
def store(store_url: str) -> Iterator[Redis]:
    with Redis.from_url(store_url) as store:
        yield store


@pytest.fixture
def http(store: Redis) -> Iterator[TestClient]:
    with TestClient(mini.create_app(mini.Mini(store))) as http:
        yield http


def ok(http: TestClient, method: str, path: str, body: Any = None) -> Any:
    answer = http.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def put(http: TestClient, features: np.ndarray) -> None:
    arms = [{"id": f"arm-{row}", "features": each.tolist()} for row, each in enumerate(features)]
    ok(http, "PUT", "/v1/catalogues/films/arms", {"arms": arms})
    ok(http, "PUT", "/v1/bandits/home", {"catalogue": "films", "ridge": RIDGE})


def choose(http: TestClient, key: str, k: int = ARMS) -> Any:
    return ok(http, "POST", "/v1/bandits/home/choose", {"key": key, "k": k})


def reward(http: TestClient, decision: str, arm: str, value: float) -> str:
    item = {"decision": decision, "arm": arm, "value": value}
    (result,) = ok(http, "POST", "/v1/rewards", {"rewards": [item]})["results"]
    return str(result)


def learner(http: TestClient, key: str) -> Any:
    return ok(http, "GET", f"/v1/bandits/home/learners/{key}")


def fold_all(store: Redis) -> None:
    for _ in range(100):  # a fold that never moves on is a failure, and no hang
        if not mini.fold(store):
            return
    raise AssertionError("the worker does not come to the end of the log")


def kill_a_worker(script: str, store_url: str) -> None:
    run = subprocess.run([sys.executable, "-c", script, store_url], cwd=ROOT, timeout=120, check=False)
    assert run.returncode == -signal.SIGKILL


def put_in_service(client: Client, features: np.ndarray) -> None:
    """A bandit that learns nothing but a ridge regression."""
    client.put_catalogue("films", dim=DIM)
    client.upsert_arms("films", features, ids=[f"arm-{row}" for row in range(ARMS)])
    client.put_bandit(
        "home",
        catalogue="films",
        policy="sub_ts",
        scope="per_key",
        prior="plain",
        ridge=RIDGE,
        exploration=0.5,
        intercept=False,
    )


def test_it_learns_what_the_service_learns_through_repeats_late_rewards_and_kills(
    http: TestClient, store: Redis, store_url: str
):
    rng = np.random.default_rng(1)
    features = rng.integers(-64, 65, size=(ARMS, DIM)) / 64
    put(http, features)
    with temporary_service() as server, server.connect() as client:
        put_in_service(client, features)
        late = list[tuple[str, str, str, float]]()
        kills = {20: KILLED_BEFORE_THE_WATERMARK, 40: KILLED_AFTER_THE_WATERMARK}
        for turn in range(60):
            key, arm, value = str(rng.choice(KEYS)), f"arm-{rng.integers(ARMS)}", float(rng.normal())
            # Lists of all arms: so both are rewarded for the same arms, though their draws are their own.
            ours = choose(http, key)["decision"]
            theirs = client.choose("home", key=key, k=ARMS).decision
            if turn % 4 == 0:
                late.append((ours, theirs, arm, value))
                continue
            assert reward(http, ours, arm, value) == "accepted"
            client.reward(theirs, value=value, arm=arm)
            if turn % 3 == 0:  # the same once more, and with another value
                for again in (value, value + 1):
                    assert reward(http, ours, arm, again) == "duplicate"
                    client.reward(theirs, value=again, arm=arm)
            if turn in kills:
                kill_a_worker(kills[turn], store_url)
            if turn % 10 == 5:
                fold_all(store)
        for ours, theirs, arm, value in late:
            assert reward(http, ours, arm, value) == "accepted"
            client.reward(theirs, value=value, arm=arm, wait=True)
        fold_all(store)
        for key in KEYS:
            mine, real = learner(http, key), client.get_learner("home", key, include="precision")
            assert mine["observations"] == real.observations > 0
            assert np.allclose(mine["theta"], real.theta, rtol=0, atol=1e-9)
            assert np.allclose(mine["precision"], real.precision, rtol=0, atol=1e-9)


@pytest.mark.parametrize("script", [KILLED_BEFORE_THE_WATERMARK, KILLED_AFTER_THE_WATERMARK])
def test_a_kill_costs_nothing_and_counts_nothing_twice(
    script: str, http: TestClient, store: Redis, store_url: str
):
    put(http, np.eye(DIM))
    assert reward(http, choose(http, "ann", DIM)["decision"], "arm-0", 2.0) == "accepted"
    kill_a_worker(script, store_url)
    assert learner(http, "ann")["observations"] == (script == KILLED_AFTER_THE_WATERMARK)
    fold_all(store)
    assert learner(http, "ann")["observations"] == 1
    assert learner(http, "ann")["theta"] == [2.0 / (1 + RIDGE), 0.0, 0.0, 0.0]


def test_a_token_that_is_altered_or_expired_teaches_nothing(http: TestClient, store: Redis):
    put(http, np.eye(DIM))
    token = choose(http, "ann", 1)["decision"]
    secret: Any = store.get("mini:secret")
    decision = mini.verify(secret, token)
    assert decision is not None
    arm = decision["arms"][0]
    forged = mini.sign(b"a secret of my own", decision)
    for bad in (forged, token[:-8], "", "é", "x"):
        assert reward(http, bad, arm, 1.0) == "invalid"
    assert reward(http, token, "another", 1.0) == "invalid"
    expired = mini.sign(secret, decision | {"expires": int(time.time()) - 1})
    assert reward(http, expired, arm, 1.0) == "expired"
    assert mini.fold(store) == 0
    assert reward(http, token, arm, 1.0) == "accepted"


def test_bad_input_is_refused_and_changes_nothing(http: TestClient, store: Redis):
    put(http, np.eye(DIM))
    before = store.dbsize(), store.hgetall("mini:arms:films"), store.hgetall("mini:versions")
    arm = {"id": "a", "features": [1.0] * DIM}
    for rows, status in (
        ([], 422),
        ([arm, arm | {"features": [1.0]}], 422),
        ([arm | {"features": [1.0]}], 409),
        ([arm | {"features": [1e300] * DIM}], 422),
        ([arm | {"id": "a:b"}], 422),
    ):
        assert http.put("/v1/catalogues/films/arms", json={"arms": rows}).status_code == status
    nan = '{"arms": [{"id": "a", "features": [NaN, 1, 1, 1]}]}'
    answer = http.put("/v1/catalogues/films/arms", content=nan, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()[0]["loc"] == ["body", "arms", 0, "features", 0]
    assert http.put("/v1/bandits/home", json={"catalogue": "films", "ridge": 2}).status_code == 409
    assert http.put("/v1/bandits/new", json={"catalogue": "none"}).status_code == 404
    assert http.post("/v1/bandits/none/choose", json={"key": "ann"}).status_code == 404
    assert before == (store.dbsize(), store.hgetall("mini:arms:films"), store.hgetall("mini:versions"))


def test_it_has_at_most_300_lines_and_its_page_goes_through_all_of_them():
    text = (ROOT / "examples/mini.py").read_text()
    assert len(text.splitlines()) <= 300
    page = (ROOT / "docs/mini.md").read_text()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    parts = [node.name for node in ast.parse(text).body if isinstance(node, kinds)]
    assert [name for name in parts if f"`{name}`" not in page] == []
