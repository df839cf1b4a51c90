"""`shortlist explain` against a real service: what it prints, and what it refuses in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from typing import get_args

import pytest

from app.measuring.explain import ChangedInput
from server.cli import main
from server.explaining import REASONS
from service_process import Service, serving
from shortlist_client import Client
from shortlist_client.errors import NotFound
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("explain")) as service:
        yield service


def test_each_reason_why_a_choice_is_not_made_again_has_its_words():
    assert REASONS.keys() == set(get_args(ChangedInput))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("SHORTLIST_KEY", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main(["explain", *arguments])
        except SystemExit as ended:
            status = int(ended.code or 0)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def test_a_token_that_is_too_long_for_an_argument_comes_from_standard_input(
    service: Service, run: Run, monkeypatch: pytest.MonkeyPatch
):
    with Client(service.url) as client:
        client.put_catalogue("long", dim=1)
        client.upsert_arms("long", [[1.0]] * 600, ids=[f"{number:03}{'x' * 125}" for number in range(600)])
        client.put_bandit("many", catalogue="long", policy="sub_ts", log={})
        token = client.choose("many", k=600).decision
        wait_until_sync(lambda: _explained(client, token, "many"), what="the row")
    monkeypatch.setattr("sys.stdin", StringIO(f"{token}\n"))
    status, said, err = run("-", "--bandit", "many", "--url", service.url)
    assert (status, err) == (0, "")
    assert "asked for: 600 arms" in said


def test_a_decision_is_explained_as_text_and_what_is_wrong_is_one_line(service: Service, run: Run):
    with Client(service.url) as client:
        client.put_catalogue("films", dim=2)
        client.upsert_arms("films", [[1.0, float(number)] for number in range(6)], ids=[*"abcdef"])
        client.put_bandit("home", catalogue="films", policy="softmax", scope="per_key", log={})
        token = client.choose("home", key="ann", k=2, exclude=["c"]).decision
        first = wait_until_sync(lambda: _explained(client, token), what="the row")
        status, said, err = run(token, "--bandit", "home", "--url", service.url)
        assert (status, err) == (0, "")
        lines = said.splitlines()
        assert lines[0].startswith("bandit home, key ann: decided at 20")
        assert lines[0].endswith("by softmax")
        assert lines[1] == "bandit version 1, learner version 0, catalogue version 1"
        assert lines[2:4] == ['asked for: 2 arms, exclude ["c"]', f"seed {first.seed}, drawn"]
        assert lines[4] == "made again from the seed: the same"
        assert lines[6].split() == ["place", "id", "score", "propensity", "pinned", "rewards"]
        assert [line.split()[:2] for line in lines[7:9]] == [
            [str(arm.place), arm.id] for arm in first.row.arms
        ]
        assert len(lines[12:]) == 5  # all candidates but the excluded one
        client.reward(token, 0.5, arm=first.row.arms[1].id, wait=True)
        _, said, _ = run(token, "--bandit", "home", "--url", service.url)
        assert "not made again: the learner was rewarded since" in said
        assert said.splitlines()[-1].split()[-1] == "0.5"
    for arguments, told in (
        (("none", "--bandit", "home", "--url", service.url), "404 not_found: the decision"),
        (
            (token, "--bandit", "nobody", "--url", service.url),
            "404 not_found: there is no bandit with this name",
        ),
        ((token, "--bandit", "home", "--url", "http://127.0.0.1:1"), "no service answers"),
        ((token, "--bandit", "home", "--url", "nowhere"), "url must begin with http://"),
        ((token, "--bandit", "home", "--key", "é", "--url", service.url), "key must be printable ASCII"),
        ((token,), "--bandit"),
    ):
        status, said, err = run(*arguments)
        assert (status, said) == (2, "")
        assert told in err
        assert len(err.splitlines()) == 1


def _explained(client: Client, token: str, bandit: str = "home"):
    try:
        return client.explain(bandit, token)
    except NotFound:
        return None
