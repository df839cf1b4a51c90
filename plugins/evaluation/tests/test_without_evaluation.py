"""A service that does not load evaluations: it starts, and has all that is not theirs."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from server.cli import main
from service_process import serving

pytestmark = pytest.mark.rest

ARMS = [{"id": name, "features": [1.0, index]} for index, name in enumerate("abc")]


def test_a_service_without_them_starts_and_its_other_calls_work(tmp_path: Path):
    with (
        serving(tmp_path, data_dir=tmp_path / "data", SHORTLIST_PLUGINS="") as service,
        httpx.Client(base_url=service.url, timeout=60.0) as http,
    ):
        assert http.get("/v1/status").json()["plugins"] == []
        assert http.put("/v1/catalogues/c", json={"dim": 2}).status_code == 201
        assert http.put("/v1/catalogues/c/arms", json={"arms": ARMS}).is_success
        bandit = {"catalogue": "c", "policy": "softmax", "log": {}}
        assert http.put("/v1/bandits/b", json=bandit).status_code == 201
        choice = http.post("/v1/bandits/b/choose", json={"k": 2}).json()
        reward = {"decision": choice["decision"], "value": 1.0}
        assert http.post("/v1/rewards", json={"rewards": [reward]}).is_success
        explained = http.post("/v1/bandits/b/log/explain", json={"decision": choice["decision"]})
        assert explained.status_code in {200, 404}  # 404: its row is on its way
        assert http.get("/v1/bandits/b/report").status_code == 200
        path = "/v1/bandits/b/evaluations"
        answers = [http.get(path), http.post(path, json={"policy": {}}), http.delete(f"{path}/x")]
        for answer in answers:
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
            assert "shortlist-evaluation" in answer.json()["detail"]
        paths = http.get("/openapi.json").json()["paths"]
        assert [path for path in paths if "evaluations" in path] == []
        assert "What if" not in http.get("/console").text
        assert http.get("/console/page-what-if.js").status_code == 404


def test_the_command_names_the_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("server.cli.plugins.load", lambda *_: {})
    assert main(["evaluate", "log.ndjson", "--catalogue", "arms.ndjson", "--policy", "{}"]) == 2
    assert "evaluate needs the package shortlist-evaluation" in capsys.readouterr().err
