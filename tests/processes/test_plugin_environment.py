"""The example of a plug-in in an environment of its own: wheels, without the checkout."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from waiting import wait_until_sync
from wheels import ROOT, build, environment, told

pytestmark = [pytest.mark.rest, pytest.mark.timeout(900)]  # wheels are built

PACKAGES = ("algorithms", "clients/python", "clients/files", ".", "plugins/evaluation", "examples/plugin")
OWN = {"SHORTLIST_PLUGINS": "shortlist-example shortlist-evaluation"}  # tests have others
ARMS = [{"id": f"a{i}", "features": [1.0, i / 10], "metadata": {"maker": "acme"}} for i in range(8)]
ROUNDS = 300
MAIN = "from server.cli import main; raise SystemExit(main())"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the environment."""
    folder = tmp_path_factory.mktemp("environment")
    wheels = build(folder, (ROOT / name for name in PACKAGES))
    return environment(folder / "own", wheels.values())


@contextmanager
def serving(python: Path, folder: Path) -> Iterator[str]:
    """The URL of a service of two processes in the environment."""
    others = str(Path(httpx.__file__).parents[1])
    env = {**os.environ, **OWN, "PYTHONPATH": others, "PYTHONSAFEPATH": "1"}
    words = [python, "-c", MAIN, "serve", "--workers", "2", "--port", "0", "--data-dir", folder / "data"]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=folder, env=env, stdout=output, stderr=output)
    try:

        def port() -> str | None:
            text = log.read_text()
            assert process.poll() is None, text
            match = re.search(r'"port": ?(\d+)', text)
            return match and match[1]

        yield f"http://127.0.0.1:{wait_until_sync(port, what='the service is ready')}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def test_the_example_keeps_the_contracts(python: Path, tmp_path: Path):
    tests = ROOT / "examples/plugin"
    for path in ("pyproject.toml", "tests/conftest.py", "tests/test_example.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes((tests / path).read_bytes())
    where = told(
        python, "-c", "import server, shortlist_example; print(server.__file__)", cwd=tmp_path, **OWN
    )
    assert where.startswith(str(python.parents[1]))
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-config")
    passed = told(python, *words, cwd=tmp_path, **OWN)
    assert re.search(r"^(17 passed, 5 skipped|22 passed)", passed, re.MULTILINE)  # with and without faiss


def test_its_policy_learns_in_two_processes_and_is_evaluated(python: Path, tmp_path: Path):
    """Arms earn 0 but for one, which earns 1: a policy that never learned would show it 37 times of 300."""

    def ok(method: str, path: str, body: Any = None) -> Any:
        answer = http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def play(bandit: str) -> int:
        shown = 0
        for _ in range(ROUNDS):
            choice = ok("POST", f"/v1/bandits/{bandit}/choose", {})
            is_best = choice["arms"][0]["id"] == "a7"
            reward = {"decision": choice["decision"], "value": float(is_best)}
            ok("POST", "/v1/rewards?wait=applied", {"rewards": [reward]})
            shown += is_best
        return shown

    with serving(python, tmp_path) as url, httpx.Client(base_url=url, timeout=60.0) as http:
        ok("PUT", "/v1/catalogues/c", {"dim": 2})
        ok("PUT", "/v1/catalogues/c/arms", {"arms": ARMS})
        ok("PUT", "/v1/bandits/ours", {"catalogue": "c", "policy": "ensemble", "options": {"models": 30}})
        ok("PUT", "/v1/bandits/drawn", {"catalogue": "c", "policy": "softmax", "temperature": 1, "log": {}})
        assert play("ours") > ROUNDS / 2
        assert ok("GET", "/v1/bandits/ours/learners/_global")["observations"] == ROUNDS
        play("drawn")
        for what, name in (("log", "drawn"), ("catalogue", "c")):
            told(
                python, "-c", MAIN, "export", what, name, "--out", f"{what}.ndjson", "--url", url,
                cwd=tmp_path, **OWN,
            )  # fmt: skip
    policy = json.dumps({"policy": "ensemble", "options": {"models": 30}})
    words = ("--policy", policy, "--catalogue", "catalogue.ndjson", "--json", "found")
    told(python, "-c", MAIN, "evaluate", "log.ndjson", *words, cwd=tmp_path, **OWN)
    found = json.loads((tmp_path / "found").read_text())
    values = {estimate["estimator"]: estimate["value"] for estimate in found["estimates"]}
    assert values["snips"] > 2 / len(ARMS)
    assert any("over all ensembles" in warning for warning in found["warnings"])
