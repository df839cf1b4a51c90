"""A client and a sender after a fork: a child gets its own answers, sends its own rewards, never hangs."""

import json
import pickle
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from service_process import environment
from shortlist_client import AsyncClient, AsyncRewardSender, Client, RewardSender

FORKING = Path(__file__).with_name("forking.py")
WAYS = ["os.fork", "fork", pytest.param("forkserver", marks=pytest.mark.rest)]


class Echo(ThreadingHTTPServer):
    """A choice is of one arm, the key of its request; rewards are counted."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.keys_by_connection: dict[Any, set[str]] = defaultdict(set)
        self.rewarded: list[str] = []
        self.is_silent = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Echo

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.is_silent:
            threading.Event().wait()
        if self.path.endswith("/choose"):
            self.server.keys_by_connection[self.client_address].add(body["key"])
            arms = [{"id": body["key"], "score": 1.0}]
            about = {"policy": "sub_ts", "learner_version": 0, "catalogue_version": 1, "exact": True}
            about["bandit_version"] = 1
            answer: Any = {"decision": "t", "arms": arms, **about}
        else:
            decisions = [reward["decision"] for reward in body["rewards"]]
            self.server.rewarded += decisions
            answer = {"accepted": len(decisions), "duplicate": 0, "rejected": []}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as echo:
        thread = threading.Thread(target=echo.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield echo
        echo.shutdown()
        thread.join()


def run(echo: Echo, scenario: str, way: str = "os.fork") -> Any:
    """What a scenario of `forking.py` prints; a child that hangs is a failure after a while."""
    command = [sys.executable, FORKING, scenario, way, echo.url]
    found = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=120.0
    )
    assert (found.returncode, found.stderr) == (0, "")
    return json.loads(found.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_each_process_gets_the_answers_to_its_own_questions(echo: Echo, way: str):
    found = run(echo, "choose", way)
    assert found == [[key] * 20 for key in ("parent", "0", "1", "parent")]
    assert all(len(keys) == 1 for keys in echo.keys_by_connection.values()), "a connection had two processes"


@pytest.mark.parametrize("way", WAYS)
def test_each_process_sends_what_was_added_in_it(echo: Echo, way: str):
    assert run(echo, "reward", way) == [[3, 0], [3, 0], 1]
    children = [f"child {number} {place}" for number in (0, 1) for place in range(3)]
    assert sorted(echo.rewarded) == [*children, "parent 0"]


def test_tasks_of_a_child_have_connections_and_a_loop_of_their_own(echo: Echo):
    assert run(echo, "tasks") == [[["0"] * 20, 3, 0], [["1"] * 20, 3, 0], 1]
    assert len(echo.rewarded) == 7
    assert all(len(keys) == 1 for keys in echo.keys_by_connection.values())


def test_a_second_event_loop_sends_what_the_first_has_left(echo: Echo):
    assert run(echo, "loops") == [2, 0]


def test_flush_and_close_of_a_service_that_never_answers_end(echo: Echo):
    echo.is_silent = True
    unsent = ["1 reward is not sent (not all was sent in 0.1 s)", ["t0"]]
    assert run(echo, "silent") == [unsent, unsent, True]


def test_no_client_or_sender_is_sent_to_another_process():
    client, task_client = Client(), AsyncClient()
    for each in (client, task_client, RewardSender(client), AsyncRewardSender(task_client)):
        name = type(each).__name__
        with pytest.raises(TypeError, match=f"make a {name} in each"):
            pickle.dumps(each)
