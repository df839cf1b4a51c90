"""What operators see: health, readiness, status and metrics, true to what was done."""

import logging
import re
import shlex
import shutil
import time
from pathlib import Path

import pytest

from api_client import Api, running
from app.platform.errors import Unavailable
from app.storage.embedded.server import EmbeddedServer
from store_clients import connect

pytestmark = [pytest.mark.anyio, pytest.mark.rest]
ROOT = Path(__file__).parents[2]


async def metrics(api: Api) -> dict[str, float]:
    """Every sample by its name and labels."""
    answer = await api.call("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_health_and_readiness(api: Api):
    assert await api.ok("GET", "/healthz") == {"status": "ok"}
    assert await api.ok("GET", "/readyz") == {"status": "ready", "backlog": 0, "lag_s": 0.0}


async def test_a_full_disk_is_among_the_findings(api: Api, monkeypatch: pytest.MonkeyPatch):
    assert "disk" not in [each["name"] for each in (await api.ok("GET", "/v1/status"))["findings"]]
    # private: the type that shutil answers with
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40 - 9, 9))
    (found,) = [each for each in (await api.ok("GET", "/v1/status"))["findings"] if each["name"] == "disk"]
    assert (found["good"], "SHORTLIST_DATA_DIR is full" in found["text"]) == (False, True)


async def test_a_store_that_becomes_unfit_while_it_runs_is_named(tmp_path: Path):
    """One that takes no writes is not ready, whatever it says it is; one that may drop keys is a finding."""

    async def findings(api: Api) -> list[str]:
        status = await api.ok("GET", "/v1/status")
        assert status["ready"] == (await api.http.get("/readyz")).is_success
        return [each["text"] for each in status["findings"] if each["name"] == "store"]

    with EmbeddedServer(tmp_path / "store") as server:
        async with running(server.url, tmp_path) as api:
            assert await findings(api) == []
            await api.store.execute_command("REPLICAOF", "127.0.0.1", 1)
            assert await findings(api) == ["the store is a replica: writes need the primary"]
            found = await metrics(api)
            assert (found["shortlist_store_up"], found["shortlist_store_replica"]) == (1, 1)
            assert found['shortlist_findings{name="store"}'] == 1
            answer = await api.http.get("/readyz")
            assert (answer.status_code, "is a replica" in answer.json()["detail"]) == (503, True)
            await api.store.execute_command("REPLICAOF", "NO", "ONE")
            assert await findings(api) == []
            await api.store.config_set("min-replicas-to-write", 1)
            (text,) = await findings(api)
            assert "refuses writes: fewer replicas follow it than its min-replicas-to-write" in text
            assert "min-replicas-to-write" in (await api.http.get("/readyz")).json()["detail"]
            await api.store.config_set("min-replicas-to-write", 0)
            assert await findings(api) == []
            await api.store.config_set("maxmemory-policy", "allkeys-lru")
            await api.store.config_set("maxmemory", 1 << 30)
            (text,) = await findings(api)
            assert "noeviction" in text


async def test_a_store_without_memory_is_not_ready_and_a_finding(tmp_path: Path):
    async def said(api: Api) -> tuple[int, bool, bool]:
        status = await api.ok("GET", "/v1/status")
        texts = [each["text"] for each in status["findings"] if each["name"] == "space"]
        is_refused = any("rewards are refused, too" in text for text in texts)
        return (await api.http.get("/readyz")).status_code, status["ready"], is_refused

    full = (503, False, True)
    with EmbeddedServer(tmp_path / "store") as server:
        async with running(server.url, tmp_path) as api:
            used = (await api.store.info("memory"))["used_memory"]
            await api.store.config_set("maxmemory", used // 2)
            assert await said(api) == full, "without a write that was refused"
            await api.store.config_set("maxmemory", 2 * used)
            assert await said(api) == (200, True, False)
            await api.store.config_set("maxmemory", 1)
            assert (await api.http.put("/v1/catalogues/d", json={"dim": 1})).status_code in {429, 503}
            assert await said(api) == full
            await api.store.config_set("maxmemory", 0)
            assert await said(api) == (200, True, False)


async def test_the_status_says_what_the_process_knows_while_the_store_is_away(tmp_path: Path):
    with EmbeddedServer(tmp_path / "store") as server:
        async with running(server.url, tmp_path) as api:
            await api.catalogue("c", {"a": [1.0], "b": [2.0]})
            assert (await api.ok("GET", "/v1/status"))["store_away_since"] is None
            before = time.time()
            server.stop()
            stopped = time.time()
            status = await api.ok("GET", "/v1/status")
            assert (status["ready"], status["store"], status["backlog"]) == (False, "always", 0)
            assert (status["catalogues"], status["arms"], status["bandits"]) == (1, 2, 0)
            assert before - 10.0 < status["store_away_since"] / 1_000 <= stopped
            (text,) = [each["text"] for each in status["findings"] if each["name"] == "store"]
            assert text.startswith("the store does not answer")
            assert (await metrics(api))["shortlist_store_up"] == 0


async def test_the_permissions_that_the_docs_name_are_enough(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """And what a user lacks is named, in one line."""
    page = (ROOT / "docs" / "operations.md").read_text()
    (rules,) = re.findall(r"ACL SETUSER shortlist on '>…' (.*)", page)
    with EmbeddedServer(tmp_path / "store") as server:
        async with connect(server.url) as store:
            await store.execute_command("ACL", "SETUSER", "shortlist", "on", ">pw", *shlex.split(rules))
            url = server.url.replace("unix://", "unix://shortlist@") + "?password=pw"
            async with running(url, tmp_path, empty=False) as api:
                await api.catalogue("c", {"a": [1.0], "b": [2.0]})
                await api.bandit("b", "c", scope="per_key")
                choice = await api.choose("b", key="ann", event_id="e")
                await api.reward({"decision": choice["decision"], "value": 1.0})
                await api.ok("GET", "/v1/bandits/b/learners/ann")
                await api.ok("GET", "/v1/status")
                await api.ok("GET", "/readyz")
                await api.ok("DELETE", "/v1/bandits/b", status=204)
            assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
            await store.execute_command("ACL", "SETUSER", "shortlist", "-info")
            with pytest.raises(Unavailable, match="does not permit the command INFO to the user of its URL"):
                async with running(url, tmp_path, empty=False):
                    pass
    assert not [record for record in caplog.records if record.exc_info]


async def test_the_status_counts_what_there_is(api: Api):
    await api.catalogue("c", {"a": [1.0], "b": [2.0]})
    await api.catalogue("d", {}, dim=3)
    await api.bandit("b", "c")
    status = await api.ok("GET", "/v1/status")
    assert (status["catalogues"], status["arms"], status["bandits"]) == (2, 2, 1)
    assert (status["ready"], status["worker"], status["store"], status["backlog"]) == (
        True,
        True,
        "always",
        0,
    )
    assert status["uptime_s"] > 0
    assert re.match(r"\d+\.\d+\.\d+$", status["python"])


async def test_metrics_count_requests_by_route_and_rewards_by_outcome(api: Api):
    await api.catalogue("c4nary", {"a": [1.0], "b": [2.0]})
    await api.bandit("b", "c4nary", scope="per_key", reward={"max": 1})
    tokens = [(await api.choose("b", key="c4nary-user"))["decision"] for _ in range(3)]
    bad = [{"decision": "x", "value": 1}, {"decision": tokens[0], "value": 2}]
    await api.reward(
        *({"decision": token, "value": 1} for token in tokens), *bad, {"decision": tokens[0], "value": 1}
    )
    await api.observe(
        "b", {"id": "o", "key": "ann", "arm": "a", "value": 1}, {"id": "p", "arm": "a", "value": 1}
    )
    found = await metrics(api)
    counted = {
        "accepted": 4, "duplicate": 1, "invalid_token": 1, "out_of_range": 1, "key_required": 1,
    }  # fmt: skip
    for outcome, count in counted.items():
        assert found[f'shortlist_rewards_total{{outcome="{outcome}"}}'] == count
    assert found["shortlist_rewards_applied_total"] == 4
    assert found["shortlist_reward_backlog"] == 0
    assert found["shortlist_arms"] == 2
    choose = 'method="POST",route="/v1/bandits/{bandit}/choose",status="200"'
    assert found[f"shortlist_requests_total{{{choose}}}"] == 3
    assert found['shortlist_request_seconds_count{route="/v1/bandits/{bandit}/choose"}'] == 3


async def test_labels_are_never_what_a_client_sent(api: Api):
    """Else anybody could fill the memory with time series."""
    for number in range(5):
        await api.call("GET", f"/c4nary/{number}")
        await api.call("GET", f"/v1/catalogues/c4nary{number}/arms/c4nary")
        await api.call(f"C4NARY{number}", "/healthz")
        await api.call("GET", "/healthz", headers={"x-request-id": f"c4nary{number}"})
    text = (await api.call("GET", "/metrics")).text
    assert "c4nary" not in text.lower()
    assert (await metrics(api))['shortlist_requests_total{method="other",route="/healthz",status="405"}'] == 5
