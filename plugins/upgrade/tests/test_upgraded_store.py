"""A store of 2.0.0 goes on in this version: to the bit where a bandit stays what it was."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clock_shim import Clocks
from server.cli import main
from service_process import serving
from shortlist_service.engines import EmbeddedServer
from store_clients import connect_sync
from stored_text import kept_answers, kept_lines, load
from waiting import wait_until_sync

pytestmark = [
    pytest.mark.rest,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None,
        reason="a library put before the system's: Linux, and a C compiler",
    ),
]

# What is measured, sentences, and tokens, which are new each time.
VOLATILE = {"decision", "detail", "elapsed_ms", "index", "warnings"}
GONE = {"auto", "explore", "prior_strength", "shift_rewards", "reserved"}
SETTINGS = {"SHORTLIST_PARTITIONS": "2", "SHORTLIST_PLUGINS": "shortlist-campaigns"}


@pytest.fixture
def http(tmp_path: Path, clocks: Clocks) -> Iterator[httpx.Client]:
    """A service on the upgraded store, at the time when it was made."""
    data_dir = tmp_path / "data"
    with EmbeddedServer(data_dir) as embedded, connect_sync(embedded.url) as client:
        load(client, kept_lines())
    command, dropped = ["upgrade", "--data-dir", str(data_dir)], ["--drop-learners", "shifted"]
    assert main([*command, "--check"]) == 1, "its learners stop it"
    assert main([*command, "--check", *dropped]) == 0
    assert main([*command, "--no-copy", *dropped]) == 0
    clocks.services.jump_to(int(kept_answers()["made_s"] - time.time()))
    with (
        serving(tmp_path, **SETTINGS, **clocks.services.settings) as service,
        httpx.Client(base_url=service.url, timeout=60) as http,
    ):
        wait_until_sync(lambda: http.get("/readyz").json().get("backlog") == 0, what="rewards are folded")
        yield http
        assert "Traceback" not in service.text()


def ask(http: httpx.Client, names: dict[str, str], step: Any) -> Any:
    """Status and answer; ``{name}`` in a body stands for the decision that was named so."""
    body = step.get("body")
    text = None if body is None else json.dumps(body)
    for name, decision in names.items():
        text = text and text.replace(f"{{{name}}}", decision)
    headers = {"content-type": "application/json"}
    answer = http.request(step["method"], step["path"], content=text, headers=headers)
    return answer.status_code, answer.json() if answer.content else None


def differences(found: Any, expected: Any, place: str = "") -> list[str]:
    """Where two answers differ. New fields may be added."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = [name for name in expected if name not in VOLATILE | GONE]
        lists = [differences(found.get(name), expected[name], f"{place}.{name}") for name in names]
        return [line for lines in lists for line in lines]
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        lists = [differences(one, other, f"{place}[{number}]") for number, (one, other) in pairs]
        return [line for lines in lists for line in lines]
    return [] if found == expected else [f"{place}: {found!r} instead of {expected!r}"]


def test_it_answers_and_learns_as_2_0_would_have(http: httpx.Client) -> None:
    """Arms, learners, choices, answers for events, the decision log, campaigns; then choices that count and
    rewards of tokens of then."""
    kept = kept_answers()
    wrong = {}
    for number, step in enumerate(kept["steps"]):
        status, answer = ask(http, kept["names"], step)
        found = (
            differences(answer, step.get("answer")) if status == step["status"] else [f"{status}: {answer}"]
        )
        if found:
            wrong[f"{number} {step['method']} {step['path']} {json.dumps(step.get('body'))}"] = found
    assert not wrong, json.dumps(wrong, indent=1)


def test_what_changed_goes_on_by_the_new_rules(http: httpx.Client) -> None:
    bandits = {bandit["id"]: bandit for bandit in http.get("/v1/bandits").json()["items"]}
    assert bandits["pooled"]["prior"] == bandits["pooled-waiting"]["prior"] == "learned"
    assert bandits["pooled-numbers"]["prior"] == "plain"
    for name, then in kept_answers()["changed"].items():
        now = http.get(f"/v1/bandits/{name}/learners/ann").raise_for_status().json()
        assert (now["version"], now["observations"]) == (then["version"], then["observations"]), name
        # what is gone of the others is no part of what a learner knows
        assert (now["theta"] == then["theta"]) == (name in {"explored", "noted"}), name
    for name in bandits:
        key = {"key": "ann"} if bandits[name]["scope"] == "per_key" else {}
        context = {"context": {"device": "tv"}} if name == "context" else {}
        answer = http.post(f"/v1/bandits/{name}/choose", json={**key, **context, "dry_run": True})
        patch = http.patch(f"/v1/bandits/{name}", json={})
        # the constraint of one is of a plug-in that is not here
        expected = (503, 422) if name == "noted" else (200, 200)
        assert (answer.status_code, patch.status_code) == expected, (name, answer.json(), patch.json())
    wait_until_sync(lambda: "move" not in http.get("/v1/bandits/moving").json(), what="it is moved")
    learner = http.get("/v1/bandits/moving/learners/ann").raise_for_status().json()
    assert (learner["version"], len(learner["theta"])) == (3, 2)
    shifted = http.get("/v1/bandits/shifted/learners/_global").json()
    assert shifted["version"] == 3  # the rewards that were not folded
