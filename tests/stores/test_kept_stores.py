"""What earlier versions left in their stores is opened, answered from, and continued.

The content and the answers come from ``make_store.py``, which ran with the version that the folder names.
"""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from kept_store import Caller, differences, dump, load, settle

from app.storage.embedded.server import EmbeddedServer
from clock_shim import Clocks
from service_process import run, serving

pytestmark = pytest.mark.rest

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("*/content.jsonl"))
PARTITIONS = {"SHORTLIST_PARTITIONS": "4"}
KEEP_LOG = {"SHORTLIST_REWARD_LOG_S": "3000000000"}  # old entries stay, to be replayed
POOL_S = 5.0  # a process looks once a second for the newest pooled prior


@pytest.fixture(params=FOLDERS, ids=lambda folder: str(folder.name))
def kept(request: pytest.FixtureRequest) -> Path:
    """Content and answers of one version."""
    folder: Path = request.param
    return folder


@contextmanager
def opened(kept: Path, folder: Path, **settings: str) -> Iterator[tuple[Caller, redis.Redis]]:
    """Today's service on the kept store, and its store."""
    lines = (kept / "content.jsonl").read_text("utf-8").splitlines()
    with EmbeddedServer(folder / "data") as server, redis.Redis.from_url(server.url) as store:
        load(store, lines)
        assert list(map(without_ttl, dump(store))) == list(map(without_ttl, lines))
    path = str(folder / "data" / "server.sock")
    with (
        serving(folder, **PARTITIONS, **settings) as service,
        httpx.Client(base_url=service.url, timeout=60) as http,
        redis.Redis(unix_socket_path=path) as store,
    ):
        yield Caller(http), store
        assert "Traceback" not in service.text()


def without_ttl(line: str) -> Any:
    return {name: value for name, value in json.loads(line).items() if name != "ttl_ms"}


def check(call: Caller, step: Any) -> None:
    """Compare the answer of a step. What only reads is repeated, as a pooled prior may be a second old."""
    words = (step["method"], step["path"], step.get("body"), step.get("name"))
    expected = {name: step[name] for name in ("status", "answer") if name in step}
    deadline = time.monotonic() + POOL_S
    while wrong := differences(call.ask(*words), expected):
        reads = step["method"] == "GET" or step["path"].endswith("/choose")
        assert reads, (words, wrong)
        assert time.monotonic() < deadline, (words, wrong)
        time.sleep(0.05)


def test_it_is_continued_at_any_time(kept: Path, tmp_path: Path) -> None:
    """Learners, choices, rewards and campaigns; then every learner is what the whole log says."""
    answers = json.loads((kept / "answers.json").read_text("utf-8"))
    with opened(kept, tmp_path, **KEEP_LOG) as (call, store):
        settle(call.http, store, due=False)
        for step in answers["at_any_time"]:
            check(call, step)
        data_dir = ("--data-dir", str(tmp_path / "data"))
        letters = run("dead-letters", "list", *data_dir, cwd=tmp_path, **PARTITIONS)
        assert letters.stdout.endswith("1 dead letter\n"), letters
        replayed = run("replay", "--check", *data_dir, cwd=tmp_path, **PARTITIONS)
        assert replayed.returncode == 0, replayed
        assert " 0 differ" in replayed.stdout


def test_a_bandit_without_a_learned_prior_can_be_given_one(kept: Path, tmp_path: Path) -> None:
    """Its keys of then do not know their squared rewards, so the prior is that of those who came since."""
    with opened(kept, tmp_path) as (call, store):
        settle(call.http, store, due=False)
        bandit = "/v1/bandits/ts-keys"
        choose = {"key": "somebody-new", "k": 2, "seed": 1}
        assert call.http.get(bandit).json()["prior"] == "plain"
        assert call.http.get(f"{bandit}/prior").status_code == 404
        known = call.http.get(f"{bandit}/learners/ann").json()
        patch = {"prior": "learned", "ridge": "auto", "exploration": "auto"}
        assert call.http.patch(bandit, json=patch).raise_for_status().json()["prior"] == "learned"
        assert call.http.post(f"{bandit}/prior/refresh").json()["version"] == 0
        observations = [
            {"id": f"{key}-{arm}", "key": f"new-{key}", "arm": f"f{arm}", "value": (arm * key) % 5 - 1.0}
            for key in range(1, 8)
            for arm in range(7, 15)
        ]
        said = call.http.post(f"{bandit}/observations?wait=applied", json={"observations": observations})
        assert said.raise_for_status().json()["accepted"] == len(observations)
        fitted = call.http.post(f"{bandit}/prior/refresh").json()
        assert (fitted["keys"], fitted["observations"]) == (7, len(observations))
        choice = call.http.post(f"{bandit}/choose", json=choose).raise_for_status().json()
        assert choice["prior_version"] == fitted["version"] >= 1
        assert call.http.get(f"{bandit}/learners/ann").json()["observations"] == known["observations"]
        chosen = call.http.post(f"{bandit}/choose", json={**choose, "key": "ann"}).raise_for_status().json()
        assert chosen["prior_version"] == fitted["version"]


@pytest.mark.skipif(sys.platform != "linux", reason="a library put before the system's: Linux only")
@pytest.mark.skipif(shutil.which("cc") is None, reason="the clock needs a C compiler")
def test_it_is_continued_at_its_time(kept: Path, tmp_path: Path, clocks: Clocks) -> None:
    """With the clock of the day it was made on: decisions of then are rewarded, activated and waited for."""
    answers = json.loads((kept / "answers.json").read_text("utf-8"))
    clock, offset_s = clocks.services, answers["made_s"] - int(time.time())
    clock.jump_to(offset_s)
    with opened(kept, tmp_path, **clock.settings) as (call, store):
        call.names.update(answers["names"])
        for step in answers["at_its_time"]:
            if "clock_s" in step:
                clock.jump_to(offset_s + step["clock_s"])
                settle(call.http, store)
            else:
                check(call, step)


def test_answers_that_differ_are_noticed() -> None:
    expected = {"theta": [0.5, 1.0], "version": 3, "best": ["a", "b"], "done": True}
    assert differences({**expected, "new": 1}, expected) == []
    assert differences({**expected, "theta": [0.5 + 1e-12, 1]}, expected) == []
    for change in (
        {"theta": [0.5 + 1e-6, 1.0]}, {"theta": [0.5]}, {"version": 4}, {"version": True},
        {"best": ["b", "a"]}, {"done": 1}, {"best": None},
    ):  # fmt: skip
        assert differences({**expected, **change}, expected), change
    assert differences({}, expected)
