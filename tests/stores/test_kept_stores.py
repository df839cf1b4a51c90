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
from clock_shim import Clock, Clocks
from service_process import run, serving
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

FOLDER = Path(__file__).parent
FOLDERS = sorted(path.parent for path in FOLDER.glob("*/content.jsonl"))
PARTITIONS = {"SHORTLIST_PARTITIONS": "4"}
needs_clock = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="a library put before the system's: Linux, and a C compiler",
)
KEEP_LOG = {"SHORTLIST_REWARD_LOG_S": "3000000000"}  # old entries stay, to be replayed
POOL_S = 5.0  # a process looks once a second for the newest pooled prior


@pytest.fixture
def version_folder() -> Path:
    """Content and answers of the first version."""
    return FOLDER / "0.1.0"


@contextmanager
def opened(version_folder: Path, folder: Path, **settings: str) -> Iterator[tuple[Caller, redis.Redis]]:
    """Today's service on the kept store, and its store."""
    lines = (version_folder / "content.jsonl").read_text("utf-8").splitlines()
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


def test_it_is_continued_at_any_time(version_folder: Path, tmp_path: Path) -> None:
    """Learners, choices, rewards and campaigns; then every learner is what the whole log says."""
    answers = notes_of(version_folder)
    with opened(version_folder, tmp_path, **KEEP_LOG) as (call, store):
        settle(call.http, store, due=False)
        for step in answers["at_any_time"]:
            check(call, step)
        data_dir = ("--data-dir", str(tmp_path / "data"))
        letters = run("dead-letters", "list", *data_dir, cwd=tmp_path, **PARTITIONS)
        assert letters.stdout.endswith("1 dead letter\n"), letters
        replayed = run("replay", "--check", *data_dir, cwd=tmp_path, **PARTITIONS)
        assert replayed.returncode == 0, replayed
        assert " 0 differ" in replayed.stdout


def test_a_bandit_without_a_learned_prior_can_be_given_one(version_folder: Path, tmp_path: Path) -> None:
    """Its keys of then do not know their squared rewards, so the prior is that of those who came since."""
    with opened(version_folder, tmp_path) as (call, store):
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


def test_a_bandit_with_a_setting_that_is_gone_can_be_changed(version_folder: Path, tmp_path: Path) -> None:
    with opened(version_folder, tmp_path) as (call, _):
        changed = call.http.patch("/v1/bandits/shown", json={"exploration": 0.5})
        assert changed.raise_for_status().json()["exploration"] == 0.5
        assert "explore" not in changed.json()


@contextmanager
def opened_at_its_time(
    version_folder: Path, folder: Path, clock: Clock
) -> Iterator[tuple[Caller, redis.Redis]]:
    """As ``opened``, with the clock of the day on which the store was made, and the decisions of then."""
    answers = notes_of(version_folder)
    clock.jump_to(offset_s(answers))
    with opened(version_folder, folder, **clock.settings) as (call, store):
        call.names.update(answers["names"])
        yield call, store


def notes_of(version_folder: Path) -> Any:
    return json.loads((version_folder / "answers.json").read_text("utf-8"))


def offset_s(answers: Any) -> int:
    return int(answers["made_s"] - time.time())


@needs_clock
@pytest.mark.parametrize("version_folder", FOLDERS, ids=lambda folder: str(folder.name))
def test_it_is_continued_at_its_time(version_folder: Path, tmp_path: Path, clocks: Clocks) -> None:
    """Decisions of then are rewarded, activated and waited for."""
    clock = clocks.services
    answers = notes_of(version_folder)
    start_s = offset_s(answers)
    with opened_at_its_time(version_folder, tmp_path, clock) as (call, store):
        for step in answers["at_its_time"]:
            if "clock_s" in step:
                clock.jump_to(start_s + step["clock_s"])
                settle(call.http, store)
            else:
                check(call, step)


@needs_clock
def test_quotas_of_1_0_count_on(tmp_path: Path, clocks: Clocks) -> None:
    """What deferred decisions held is given back, and counts when they are activated."""
    quotas, choose = "/v1/bandits/quotas/quotas", "/v1/bandits/quotas/choose"
    with opened_at_its_time(FOLDER / "1.0.0", tmp_path, clocks.services) as (call, store):
        wait_until_sync(lambda: not store.keys("shortlist:{q:*}:held"), what="what was held is given back")
        found = {item["id"]: (item["used"], item["most"]) for item in call.http.get(quotas).json()["items"]}
        assert found == {
            "by-filter": (5, 1_000), "by-value": (3, 40), "even": (1, 100_000),
            "one-arm": (5, 5), "rewarded": (1, 2),
        }  # fmt: skip
        assert call.ask("POST", choose, {"filter": {"year": 1991}})["answer"]["code"] == "no_arms"
        activated = call.ask(
            "POST", "/v1/decisions/activate", {"decisions": ["{deferred-10}", "{deferred-11}"]}
        )
        assert activated["answer"]["activated"] == 2, activated
        shown = sum(
            call.ask("POST", choose, {"filter": {"group": 2}, "seed": seed})["status"] == 200
            for seed in range(40)
        )
        assert shown == 40 - 3 - 2
        assert call.http.get(f"{quotas}/by-value").json()["used"] == 40


@needs_clock
def test_bandits_of_1_0_keep_their_rules_and_get_what_is_new(tmp_path: Path, clocks: Clocks) -> None:
    with opened_at_its_time(FOLDER / "1.0.0", tmp_path, clocks.services) as (call, _):
        http = call.http
        for bandit in http.get("/v1/bandits").json()["items"]:
            assert (bandit["auto"], bandit["arm_effects"]) == (1, "off"), bandit["id"]
            assert bandit.get("state") != "plugin_missing"
        report = http.get("/v1/bandits/held-out/report").json()
        assert report["as_of_decisions"] == sum(group["decisions"] for group in report["groups"])
        assert 0 < report["as_of_decisions"] <= report["decisions"]
        change = {"auto": 2, "arm_effects": "auto"}
        changed = http.patch("/v1/bandits/learned", json=change).raise_for_status().json()
        assert (changed["auto"], changed["arm_effects"]) == (2, "auto")
        choice = call.ask("POST", "/v1/bandits/learned/choose", {"key": "ann", "k": 3, "seed": 1})
        assert len(choice["answer"]["arms"]) == 3, choice
        fitted = http.post("/v1/bandits/learned/prior/refresh").raise_for_status().json()
        assert (fitted["keys"], fitted["observations"]) == (8, 6 + 8 * 12)


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
