"""A service without the plug-in: its catalogues are listed, and choose nothing until it is back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from service_process import Service, environment, serving

pytestmark = pytest.mark.rest

ARMS = [{"id": name, "features": [1.0, index]} for index, name in enumerate("abc")]


def client(service: Service) -> httpx.Client:
    return httpx.Client(base_url=service.url, timeout=60.0)


def test_a_catalogue_whose_source_is_missing_is_listed_and_found_again(tmp_path: Path):
    data, uri = tmp_path / "data", str(tmp_path / "arms.db")
    with serving(tmp_path / "1", data_dir=data, SHORTLIST_MILVUS_URI=uri) as service, client(service) as http:
        body = {"dim": 2, "index": {"kind": "milvus"}}
        for name in ("far", "gone"):
            assert http.put(f"/v1/catalogues/{name}", json=body).status_code == 201
        assert http.put("/v1/catalogues/far/arms", json={"arms": ARMS}).is_success
        assert http.put("/v1/bandits/b", json={"catalogue": "far", "policy": "sub_ts"}).status_code == 201
        choice = http.post("/v1/bandits/b/choose", json={"k": 1}).json()
        service.process.terminate()
        service.wait()
    without = serving(tmp_path / "2", data_dir=data, SHORTLIST_PLUGINS="")
    with without as service, client(service) as http:
        assert http.get("/readyz").status_code == 200
        listed = {item["id"]: item["state"] for item in http.get("/v1/catalogues").json()["items"]}
        assert listed == {"far": "plugin_missing", "gone": "plugin_missing"}
        assert http.get("/v1/catalogues/far").json()["size"] == len(ARMS)
        assert http.get("/v1/catalogues/far/arms/b").json()["features"] == [1.0, 1.0]
        refused = http.post("/v1/bandits/b/choose", json={})
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert "the engine milvus" in refused.json()["detail"]
        query = {"query": [1.0, 0.0], "k": 1, "method": "hnsw"}
        assert http.post("/v1/catalogues/far/mips", json=query).status_code == 503
        findings = http.get("/v1/status").json()["findings"]
        assert [each["good"] for each in findings if each["name"] == "plugins"] == [False]
        rewards = [{"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": 1.0}]
        assert http.post("/v1/rewards?wait=applied", json={"rewards": rewards}).json()["accepted"] == 1
        refused = http.put("/v1/catalogues/new", json=body)
        assert refused.status_code == 422
        assert "shortlist-milvus" in refused.json()["errors"][0]["message"]
        assert http.delete("/v1/catalogues/gone").status_code == 204
        service.process.terminate()
        service.wait()
    with serving(tmp_path / "3", data_dir=data, SHORTLIST_MILVUS_URI=uri) as service, client(service) as http:
        assert [item["id"] for item in http.get("/v1/catalogues").json()["items"]] == ["far"]
        assert http.post("/v1/bandits/b/choose", json={"k": 1}).status_code == 200
        assert http.get("/v1/bandits/b/learners/_global").json()["observations"] == 1


def test_an_address_without_the_plugin_ends_the_start_with_one_line(tmp_path: Path):
    env = environment(SHORTLIST_PLUGINS="", SHORTLIST_MILVUS_URI="http://127.0.0.1:1")
    code = "from server.cli import main; raise SystemExit(main())"
    words = ["serve", "--port", "0", "--data-dir", str(tmp_path)]
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("shortlist:")]
    assert "SHORTLIST_MILVUS_URI is set, but the package shortlist-milvus is not installed" in line
