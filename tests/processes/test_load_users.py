"""`load_tests/traffic.py`: its users, a process or the whole service that is killed, and wrong answers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from service_process import ROOT, Service, environment, serving
from shortlist_client import Client
from waiting import wait_until_sync

pytestmark = [pytest.mark.rest, pytest.mark.timeout(600)]

LOCUSTFILE = ROOT / "load_tests/traffic.py"


class Users:
    """A run of locust, and what it tells at its end."""

    def __init__(self, folder: Path, url: str, *words: str) -> None:
        self._log = folder / "locust.log"
        command = [sys.executable, "-m", "locust", "--headless", "--only-summary", "--host", url, *words]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment())

    def end(self) -> int:
        try:
            return self.process.wait(300)
        finally:
            self.process.kill()

    @property
    def text(self) -> str:
        return self._log.read_text()

    def requests(self) -> dict[str, tuple[int, int]]:
        """By name: how many there were, and how many failed."""
        found: dict[str, tuple[int, int]] = {}
        for name, count, failed in re.findall(r"^[A-Z]+ +(\w.*?) +(\d+) +(\d+)\(", self.text, re.MULTILINE):
            counted = found.get(name, (0, 0))
            found[name] = counted[0] + int(count), counted[1] + int(failed)
        return found

    def errors(self) -> str:
        return self.text.partition("Error report")[2]


def assert_nothing_is_left(service: Service) -> None:
    with Client(service.url) as client:  # the other process hears of a deletion at its next poll
        wait_until_sync(lambda: not [*client.bandits()], what="all bandits are deleted")
        wait_until_sync(lambda: not [*client.catalogues()], what="all catalogues are deleted")


def test_users_find_no_wrong_answer_and_leave_nothing(tmp_path: Path):
    with serving(tmp_path, "--workers", "2") as service:
        users = Users(tmp_path, service.url, "-f", f"{LOCUSTFILE}", "-u", "8", "-r", "10", "-t", "15s")
        status = users.end()
        assert (status, users.errors()) == (0, ""), users.text
        assert "Traceback" not in users.text, users.text
        calls = {"arms", "candidates", "choose", "log", "page", "report", "rewards", "rewards by event"}
        assert users.requests().keys() == {*calls, "set-up", "settle", "clean-up", "counted once"}
        assert_nothing_is_left(service)


def test_rewards_count_once_though_the_service_is_killed_and_started_again(tmp_path: Path):
    with serving(tmp_path) as service:
        users = Users(tmp_path, service.url, "-f", f"{LOCUSTFILE}", "-u", "20", "-r", "20", "-t", "20s")
        try:
            wait_until_some_is_learned(service)
            service.kill()
            with serving(tmp_path, "--port", f"{service.port}") as again:
                users.end()
                assert_each_counted_once(users)
                assert_nothing_is_left(again)
        finally:
            users.end()


def wait_until_some_is_learned(service: Service) -> None:
    with Client(service.url) as client:
        wait_until_sync(
            lambda: any(
                bandit.id == "locust-load-test-home" for bandit in client.bandits()
            ) and client.get_learner("locust-load-test-home").observations >= 20,
            what="some rewards are learned",
        )  # fmt: skip


def assert_each_counted_once(users: Users) -> None:
    """Of both bandits. Requests that a killed process had are failures; no answer is wrong."""
    assert users.requests()["counted once"] == (2, 0), users.text
    assert "WrongAnswer" not in users.errors(), users.text
    assert "Traceback" not in users.text, users.text


WRONG = (
    "an arm outside of the filter",
    "an arm that is no candidate",
    "an arm that is twice on a page",
    "a reward that was acknowledged is accepted once more",
    "a click that is in the log twice",
)
# The service is one that counts each reward twice, and hears of no filters, candidates or distinct rows. Both
# rows of a page are the same arms: among 5,000 two lists seldom share one.
# The run ends once all of WRONG is found: how much users do in ten seconds is the machine's.
BROKEN = """
import sys
sys.path.insert(0, {folder!r})
from traffic import *
import traffic

real, missing = ShortlistUser.ask, {{*{wrong!r}}}
unheard = {{"filter", "candidates", "distinct"}}

def ask(self, name, method, path, body=None, judge=None):
    if name in {{"choose", "candidates", "page"}}:
        body = {{key: value for key, value in body.items() if key not in unheard}}
    if name == "page":
        arms = [f"arm-{{n}}" for n in range(traffic.LIST)]
        body = {{"requests": [{{**row, "candidates": arms}} for row in body["requests"]]}}
    if name == "set-up" and "/bandits/" in path:
        body = {{**body, "reward": {{"aggregate": "sum"}}}}
    if path == "/v1/rewards":
        body = {{"rewards": [{{**body["rewards"][0], "reward_id": traffic.uuid.uuid4().hex}}]}}
    return real(self, name, method, path, body, judge)

ShortlistUser.ask = ask

@events.init.add_listener
def end_once_all_is_found(environment, **_):
    @environment.events.request.add_listener
    def note(exception, **_):
        if str(exception) in missing:
            missing.remove(str(exception))
            if not missing:
                gevent.spawn(environment.runner.quit)
"""


def test_answers_that_are_wrong_are_failures(tmp_path: Path):
    (tmp_path / "broken.py").write_text(BROKEN.format(folder=f"{LOCUSTFILE.parent}", wrong=WRONG))
    with serving(tmp_path) as service:
        users = Users(tmp_path, service.url, "-f", "broken.py", "-u", "20", "-r", "20", "-t", "200s")
        assert users.end() == 1
        errors = users.errors()
    assert [each for each in WRONG if each not in errors] == []
    assert "rewards were acknowledged" in errors, "counted once"
