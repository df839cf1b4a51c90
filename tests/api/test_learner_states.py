"""Copies of learners over HTTP: read, given, and refused."""

import base64

import pytest

from api_client import Api
from app.records.records import bytes_to_state

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_over_http(api: Api):
    await api.catalogue("c", {"a": [1, 0, 0], "b": [0, 1, 0]})
    for name in ("b", "other"):
        settings = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
        await api.ok("PUT", f"/v1/bandits/{name}", settings, status=201)
    body = {"observations": [{"id": "o", "key": "ann", "arm": "a", "value": 1}]}
    await api.ok("POST", "/v1/bandits/b/observations?wait=applied", json=body)
    (copy,) = (await api.ok("GET", "/v1/bandits/b/learners?include=state"))["items"]
    assert [each["key"] for each in await api.listed("/v1/bandits/b/learners")] == ["ann"]
    assert (copy["key"], copy["version"], copy["observations"]) == ("ann", 1, 1)
    assert bytes_to_state(base64.b64decode(copy["state"])).version == 1
    path = "/v1/bandits/other/learners/ann"
    shown = {"key": "ann", "version": 1, "observations": 1, "state": None}
    for status in (201, 200):
        answer = await api.call("PUT", path, json={"state": copy["state"]})
        assert (answer.status_code, answer.json()) == (status, shown)
    assert await api.listed("/v1/bandits/other/learners") == [{**shown, "prior_version": 0}]
    spelled = bytearray(base64.b64decode(copy["state"]))
    spelled[1] = spelled[5] = 7  # bytes that say nothing
    other_bytes = {"state": base64.b64encode(spelled).decode()}
    assert (await api.call("PUT", path, json=other_bytes)).status_code == 200, "it is the same state"
    for status in (201, 200):
        answer = await api.call("PUT", "/v1/bandits/other/learners/bob", json=other_bytes)
        assert (answer.status_code, answer.json()) == (status, {**shown, "key": "bob"})
    for wrong in ("!", "c4nary", ""):
        await api.refused("PUT", path, json={"state": wrong}, code="invalid", canary="c4nary")
    await api.refused(
        "PUT", "/v1/bandits/b/learners/_global", json={"state": ""}, status=404, code="not_found"
    )
    for cursor in ("zz", "YQ"):
        await api.refused("GET", f"/v1/bandits/b/learners?cursor={cursor}", code="invalid")


async def test_a_state_as_an_octet_stream(api: Api, monkeypatch: pytest.MonkeyPatch):
    await api.catalogue("c", {"a": [1, 0, 0]})
    await api.bandit("b", "c", scope="per_key")
    body = {"observations": [{"id": "o", "key": "ann", "arm": "a", "value": 1}]}
    await api.ok("POST", "/v1/bandits/b/observations?wait=applied", json=body)
    octets = "application/octet-stream"
    answer = await api.call("GET", "/v1/bandits/b/learners/ann", headers={"accept": octets})
    assert answer.headers["content-type"] == octets
    (copy,) = (await api.ok("GET", "/v1/bandits/b/learners?include=state"))["items"]
    assert answer.content == base64.b64decode(copy["state"])
    path, headers = "/v1/bandits/b/learners/bob", {"content-type": octets}
    for status in (201, 200):
        given = await api.call("PUT", path, content=answer.content, headers=headers)
        assert (given.status_code, given.json()["observations"]) == (status, 1)
    await api.refused("PUT", path, content=b"c4nary", headers=headers, code="invalid", canary="c4nary")
    missing = await api.call("GET", "/v1/bandits/b/learners/nobody", headers={"accept": octets})
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    await api.catalogue("wide", {"a": [1.0] * 640})
    await api.bandit("large", "wide")
    await api.observe("large", {"id": "o", "arm": "a", "value": 1})
    (large,) = (await api.ok("GET", "/v1/bandits/large/learners?include=state"))["items"]
    assert large["state"] is None, "its 3.3 MB are not put into JSON"
