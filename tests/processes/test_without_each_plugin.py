"""Each package of ``plugins/`` taken away by itself: what is not of it works, and what is names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.platform import plugins
from fork_server import ROOT
from server.cli import main
from service_process import serving

pytestmark = pytest.mark.rest

Call = tuple[str, str, Any]
# A call of each package, and the words of a command.
OF_PACKAGES: dict[str, tuple[Call | None, list[str]]] = {
    "shortlist-campaigns": (("POST", "/v1/sample", {"log_factors": [[0.0]]}), []),
    "shortlist-embeddings": (("GET", "/v1/bandits/b/embeddings", None), ["embed", "new"]),
    "shortlist-evaluation": (
        ("POST", "/v1/bandits/b/evaluations", {"policy": {}}),
        ["evaluate", "log.ndjson"],
    ),
    "shortlist-lake": (None, ["rebuild", "--log", "lake", "--out", "learners.ndjson"]),
    "shortlist-mcp": (None, ["mcp"]),
    "shortlist-milvus": (None, []),
    "shortlist-personalizer": (("POST", "/personalizer/v1.0/rank", {}), ["personalizer", "init", "shop"]),
    "shortlist-streams": (None, ["ingest", "--from", "kafka://host/topic"]),
    "shortlist-upgrade": (None, ["upgrade", "--check"]),
}
ARMS = [{"id": name, "features": [1.0, index]} for index, name in enumerate("abc")]


def test_the_table_has_all_packages():
    folders = {f"shortlist-{path.parent.name}" for path in ROOT.glob("plugins/*/pyproject.toml")}
    assert folders == {*OF_PACKAGES}


@pytest.mark.parametrize("package", OF_PACKAGES)
def test_without_it_the_service_has_all_else(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    others = {plugin.name for plugin in plugins.plugins() if plugin.name in OF_PACKAGES} - {package}
    words = OF_PACKAGES[package][1]
    with (
        serving(tmp_path, data_dir=tmp_path / "data", SHORTLIST_PLUGINS=" ".join(others)) as service,
        httpx.Client(base_url=service.url, timeout=60.0) as http,
    ):
        assert {plugin["name"] for plugin in http.get("/v1/status").json()["plugins"]} == others
        assert http.put("/v1/catalogues/c", json={"dim": 2}).status_code == 201
        assert http.put("/v1/catalogues/c/arms", json={"arms": ARMS}).is_success
        bandit = {"catalogue": "c", "policy": "softmax", "log": {}}
        assert http.put("/v1/bandits/b", json=bandit).status_code == 201
        choice = http.post("/v1/bandits/b/choose", json={}).json()
        rewards = {"rewards": [{"decision": choice["decision"], "value": 1.0}]}
        assert http.post("/v1/rewards", json=rewards).json()["accepted"] == 1
        assert http.get("/v1/bandits/b/report").status_code == 200
        for name, (of_other, _) in OF_PACKAGES.items():
            if of_other is not None and name in {*others, package}:
                method, path, body = of_other
                answer = http.request(method, path, json=body)
                detail = answer.json().get("detail", "")
                assert (answer.status_code == 404 and name in detail) == (name == package), (name, detail)
        milvus = http.put("/v1/catalogues/m", json={"dim": 2, "index": {"kind": "milvus"}})
        assert not milvus.is_success  # none is running
        assert ("shortlist-milvus" in milvus.text) == (package == "shortlist-milvus")
    if words:
        loaded = plugins.load
        monkeypatch.setattr(
            "server.cli.plugins.load",
            lambda group, *rest: {} if group == "commands" else loaded(group, *rest),
        )
        assert main(words) == 2
        assert f"{words[0]} needs the package {package}" in capsys.readouterr().err
