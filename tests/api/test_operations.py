"""What operators see: health, readiness, status and metrics, true to what was done."""

import re
import shutil

import pytest

from api_client import Api

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def metrics(api: Api) -> dict[str, float]:
    """Every sample by its name and labels."""
    answer = await api.call("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_health_and_readiness(api: Api):
    assert await api.ok("GET", "/healthz") == {"status": "ok"}
    assert await api.ok("GET", "/readyz") == {"status": "ready", "backlog": 0, "lag_s": 0.0}


async def test_what_can_be_read_can_be_asked_for_without_its_body(api: Api):
    """Monitors ask for the head alone. The server leaves out the body (``tests/server/test_framing.py``)."""
    for path in ["/healthz", "/readyz", "/metrics", "/v1/status", "/openapi.json", "/docs"]:
        known, head = await api.call("GET", path), await api.call("HEAD", path)
        assert (head.status_code, head.headers["content-type"]) == (200, known.headers["content-type"])


async def test_a_full_disk_is_among_the_findings(api: Api, monkeypatch: pytest.MonkeyPatch):
    assert "disk" not in [each["name"] for each in (await api.ok("GET", "/v1/status"))["findings"]]
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40 - 9, 9))
    (found,) = [each for each in (await api.ok("GET", "/v1/status"))["findings"] if each["name"] == "disk"]
    assert (found["good"], "SHORTLIST_DATA_DIR is full" in found["text"]) == (False, True)


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
