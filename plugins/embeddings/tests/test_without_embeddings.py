"""A service that does not load embeddings: it starts, and has all that is not theirs."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from service_process import Service, serving
from shortlist_client import Client
from test_following_processes import embedding
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

ARMS = [{"id": f"a{number}", "features": [1.0, number]} for number in range(3)]
PACKAGE = "shortlist-embeddings"


def client(service: Service) -> httpx.Client:
    return httpx.Client(base_url=service.url, timeout=60.0)


def end(service: Service) -> None:
    service.process.terminate()
    service.wait()


def test_a_service_without_them_starts_and_lacks_their_calls_alone(tmp_path: Path):
    data = tmp_path / "data"
    with serving(tmp_path / "1", data_dir=data) as service, client(service) as http:
        assert http.put("/v1/catalogues/source", json={"dim": 2}).is_success
        assert http.put("/v1/catalogues/source/arms", json={"arms": ARMS}).is_success
        with Client(service.url) as sender:
            sender.make_embedding("source", embedding(sender.get_catalogue("source").version))
            wait_until_sync(lambda: sender.get_catalogue("copy").filled, what="it has all arms")
        for name, catalogue in (("plain", "source"), ("liked", "copy")):
            body = {"catalogue": catalogue, "policy": "sub_ts", "log": {}}
            assert http.put(f"/v1/bandits/{name}", json=body).status_code == 201
        choice = http.post("/v1/bandits/liked/choose", json={}).json()
        end(service)
    without = serving(tmp_path / "2", data_dir=data, SHORTLIST_PLUGINS="")
    with without as service, client(service) as http:
        assert http.get("/v1/status").json()["plugins"] == []
        answers = [http.get(f"/v1/bandits/plain/embeddings{each}") for each in ("", "/one")]
        answers.append(http.post("/v1/bandits/plain/embeddings", json={"catalogue": "new"}))
        answers.append(http.post("/v1/catalogues/source/embeddings", content=b""))
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(404, "not_found")}
        assert all(PACKAGE in answer.json()["detail"] for answer in answers)
        paths = http.get("/openapi.json").json()["paths"]
        assert [path for path in paths if "embeddings" in path] == []
        assert http.post("/v1/bandits/plain/choose", json={}).status_code == 200
        # nothing keeps it up to date: it is not served as it was either
        refused = http.post("/v1/bandits/liked/choose", json={})
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert PACKAGE in refused.json()["detail"]
        assert http.get("/v1/catalogues/copy").json()["state"] == "plugin_missing"
        assert "state" not in http.get("/v1/catalogues/source").json()
        more = [{"id": "late", "features": [1.0, 9.0]}]
        assert http.put("/v1/catalogues/source/arms", json={"arms": more}).is_success
        rewarded = http.post("/v1/rewards", json={"rewards": [{"decision": choice["decision"], "value": 1}]})
        assert rewarded.json()["accepted"] == 1
        end(service)
    with serving(tmp_path / "3", data_dir=data) as service, client(service) as http:
        assert http.post("/v1/bandits/liked/choose", json={}).status_code == 200

        def has_late() -> bool:
            return http.get("/v1/catalogues/copy/arms/late").status_code == 200

        wait_until_sync(has_late, what="what was written meanwhile was taken over")
