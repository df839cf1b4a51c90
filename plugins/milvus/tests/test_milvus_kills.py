"""Kills of the service, its follower with it, and of the engine: nothing is lost, no dead arm is shown.

The engine is Milvus Lite, a child of the service, or with SHORTLIST_TEST_MILVUS=server a server beside it.
"""

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from fork_server import ROOT
from milvus_engines import ON_SERVER, StandaloneMilvus
from service_process import Service, run, serving
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

DIM = 3
STAYS = 40


@dataclass(frozen=True, slots=True)
class Deployment:
    """Services of one folder, one after the other, and their engine. ``server`` None: each has its own."""

    folder: Path
    server: StandaloneMilvus | None

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[tuple[Service, httpx.Client]]:
        uri = str(self.folder / "arms.db") if self.server is None else self.server.uri
        settings = {"SHORTLIST_MILVUS_URI": uri}
        with (
            serving(self.folder, *arguments, data_dir=self.folder / "data", **settings) as service,
            httpx.Client(base_url=service.url, timeout=60.0) as http,
        ):
            yield service, http

    def engine_pid(self, service: Service) -> int | None:
        if self.server is not None:
            return self.server.pid
        words = ["pgrep", "-f", "-P", str(service.pid), "run_engine.py"]
        found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
        return int(found[0]) if found else None


@pytest.fixture
def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> Deployment:
    return Deployment(tmp_path, request.getfixturevalue("milvus_engine") if ON_SERVER else None)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def put(http: httpx.Client, arms: dict[str, list[float]]) -> None:
    rows = [{"id": arm, "features": features} for arm, features in arms.items()]
    http.put("/v1/catalogues/c/arms", json={"arms": rows}).raise_for_status()


def shown(http: httpx.Client, k: int = 1_000) -> set[str]:
    """All arms that a choice of so many finds, once the engine answers."""

    def answer() -> httpx.Response | None:
        answer = http.post("/v1/bandits/b/choose", json={"k": k})
        assert answer.status_code in {200, 503}, answer.text
        return answer if answer.status_code == 200 else None

    return {arm["id"] for arm in wait_until_sync(answer, what="the engine answers").json()["arms"]}


def await_followed(http: httpx.Client) -> None:
    def is_followed() -> bool:
        index = http.get("/v1/catalogues/c").json()["index"]
        return bool(index["collection"]) and not index["pending"] and not index["overlay"]

    wait_until_sync(is_followed, what="the engine has everything")


def build(http: httpx.Client) -> dict[str, list[float]]:
    http.put("/v1/catalogues/c", json={"dim": DIM, "index": {"kind": "milvus"}}).raise_for_status()
    arms = {f"stays-{i}": np.random.default_rng(i).normal(size=DIM).tolist() for i in range(STAYS)}
    put(http, arms)
    http.put("/v1/bandits/b", json={"catalogue": "c", "policy": "sub_ts"}).raise_for_status()
    return arms


VICTIMS = [
    pytest.param("service", 3, marks=pytest.mark.slow),
    pytest.param("engine", 3, marks=pytest.mark.slow),
    ("follower's write", 1),
]


@pytest.mark.parametrize(("victim", "lives"), VICTIMS)
def test_kills_lose_no_change_and_show_no_dead_arm(deployment, victim, lives):
    rng = np.random.default_rng(len(victim))
    with deployment.serving() as (service, http):
        arms = build(http)
        if victim != "follower's write":  # else it is killed while it makes the collection, or fills it
            await_followed(http)
    for life in range(lives):
        with deployment.serving() as (service, http):
            assert shown(http) == set(arms), "what was acknowledged before"
            for step in range(6):
                fresh = {f"{life}-{step}-{i}": rng.normal(size=DIM).tolist() for i in range(5)}
                put(http, fresh)
                arms |= fresh
                gone = rng.choice(sorted(arms), 3, replace=False).tolist()
                http.post("/v1/catalogues/c/arms/delete", json={"ids": gone}).raise_for_status()
                arms = {arm: row for arm, row in arms.items() if arm not in gone}
                if victim == "engine" and step == 2 + life:
                    pid = deployment.engine_pid(service)
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)
                assert shown(http) == set(arms)
    with deployment.serving() as (_, http):
        await_followed(http)
        assert shown(http) == set(arms)
        listed = http.get("/v1/catalogues/c/arms", params={"limit": 1_000}).json()["items"]
        assert {arm["id"]: arm["features"] for arm in listed} == arms


@pytest.mark.slow
def test_choices_and_changes_meet_kills_of_the_engine_without_a_pause(deployment):
    """Choices are answered or 503, changes are taken, and no choice shows an arm that was deleted before."""
    rng, over = np.random.default_rng(5), threading.Event()
    deleted, stale, statuses = set[str](), list[str](), Counter[int]()
    with deployment.serving() as (service, http):
        arms = build(http)
        await_followed(http)

        def choose() -> None:
            with httpx.Client(base_url=service.url, timeout=60.0) as own:
                while not over.is_set():
                    gone = set(deleted)
                    answer = own.post("/v1/bandits/b/choose", json={"k": 20})
                    statuses[answer.status_code] += 1
                    if answer.status_code == 200:
                        stale.extend(arm["id"] for arm in answer.json()["arms"] if arm["id"] in gone)

        def change(count: int) -> None:
            for _ in range(count):
                fresh = {f"n{len(deleted)}-{i}": rng.normal(size=DIM).tolist() for i in range(4)}
                put(http, fresh)
                arms.update(fresh)
                gone = rng.choice(sorted(arms), 4, replace=False).tolist()
                http.post("/v1/catalogues/c/arms/delete", json={"ids": gone}).raise_for_status()
                for arm in gone:
                    del arms[arm]
                deleted.update(gone)

        with ThreadPoolExecutor(4) as callers:
            calls = [callers.submit(choose) for _ in range(4)]
            try:
                for _ in range(2):
                    change(20)
                    pid = deployment.engine_pid(service)
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)
                    change(20)
                    assert shown(http) == set(arms)
            finally:
                over.set()
            for call in calls:
                call.result()
        assert statuses.keys() == {200, 503}, "the engine was away, and came back"
        assert stale == []
        await_followed(http)
        assert shown(http) == set(arms)


@pytest.mark.skipif(ON_SERVER, reason="a Milvus server is not the service's own")
def test_the_engine_ends_with_the_service_and_is_started_again_when_it_ends(deployment):
    with deployment.serving() as (service, http):
        arms = build(http)
        await_followed(http)
        first = deployment.engine_pid(service)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert shown(http) == set(arms)
        second = deployment.engine_pid(service)
        assert second not in {None, first}
    wait_until_sync(lambda: not is_alive(second), what="the engine ends with the service")


def test_two_processes_of_a_service_share_an_engine(deployment):
    with deployment.serving("--workers", "2") as (service, first):
        arms = build(first)
        for _ in range(6):  # a connection each, so that both processes are asked
            with httpx.Client(base_url=service.url, timeout=60.0) as http:
                await_followed(http)
                assert shown(http) == set(arms)


@pytest.mark.slow
def test_without_the_extra_the_service_does_not_start_and_says_what_to_install(tmp_path):
    (tmp_path / "pymilvus.py").write_text("raise ImportError\n")
    settings = {"SHORTLIST_MILVUS_URI": "http://127.0.0.1:1", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    ended = run(*arguments, cwd=tmp_path, **settings)
    assert ended.returncode != 0
    assert "pymilvus is not installed: pip install -e '.[milvus]' in a checkout" in ended.stderr
    assert "Traceback" not in ended.stderr
