"""A service that does not load campaigns: it starts, and has all that is not theirs."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from service_process import Service, serving

pytestmark = pytest.mark.rest

ARMS = [{"id": name, "features": [1.0, index]} for index, name in enumerate("abc")]


def client(service: Service) -> httpx.Client:
    return httpx.Client(base_url=service.url, timeout=60.0)


def test_a_service_without_them_starts_and_lacks_their_calls_alone(tmp_path: Path):
    data = tmp_path / "data"
    with serving(tmp_path / "1", data_dir=data) as service, client(service) as http:
        body = {"id": "s", "arms": ["a", "b", "c"], "k": 2, "noise_std": 0.5, "seed": 1}
        assert http.post("/v1/slates", json=body).status_code == 201
        stored = http.get("/v1/slates/s").json()
        service.process.terminate()
        service.wait()
    without = serving(tmp_path / "2", data_dir=data, SHORTLIST_PLUGINS="")
    with without as service, client(service) as http:
        assert http.get("/v1/status").json()["plugins"] == []
        assert http.put("/v1/catalogues/c", json={"dim": 2}).status_code == 201
        assert http.put("/v1/catalogues/c/arms", json={"arms": ARMS}).is_success
        assert http.put("/v1/bandits/b", json={"catalogue": "c", "policy": "sub_ts"}).status_code == 201
        assert http.post("/v1/bandits/b/choose", json={"k": 2}).status_code == 200
        answers = [http.get("/v1/slates"), http.get("/v1/slates/s"), http.get("/v1/centers")]
        answers.append(http.post("/v1/catalogues/c/centers", json={"k": 2}))
        answers.append(http.post("/v1/sample", json={"log_factors": [[0.0]]}))
        answers.append(http.post("/v1/catalogues/c/sample", json={"query": [1.0, 0.0]}))
        answers.append(http.get("/v1/slates/s/nothing"))
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(404, "not_found")}
        assert all("package shortlist-campaigns" in answer.json()["detail"] for answer in answers)
        assert "package" not in http.get("/v1/catalogues/c/nothing").json()["detail"]
        assert http.post("/v1/mips", json={"query": [1.0], "vectors": [[2.0]]}).status_code == 200
        refused = http.post("/v1/bandits/b/choose", json={"baseline": "s"})
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert error["loc"] == ["body", "baseline"]
        assert "package shortlist-campaigns" in refused.json()["detail"]
        paths = http.get("/openapi.json").json()["paths"]
        assert [path for path in paths if re.search("slates|centers|sample", path)] == []
        assert "campaigns" not in http.get("/console").text
        assert http.get("/console/page-campaigns.js").status_code == 404
        service.process.terminate()
        service.wait()
    with serving(tmp_path / "3", data_dir=data) as service, client(service) as http:
        assert http.get("/v1/slates/s").json() == stored
