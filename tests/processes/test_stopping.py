"""A service that is told to stop finishes what it was asked, ends with status 0, and finds it all again."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from server.serving import GRACE_S
from service_process import Service, serving
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def build(http: httpx.AsyncClient, arms: int = 20) -> None:
    (await http.put("/v1/catalogues/c", json={"dim": 2})).raise_for_status()
    rows = [{"id": f"a{i}", "features": [1, i / arms]} for i in range(arms)]
    (await http.put("/v1/catalogues/c/arms", json={"arms": rows})).raise_for_status()
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
    (await http.put("/v1/bandits/b", json=body)).raise_for_status()


async def ended(service: Service, number: signal.Signals = signal.SIGTERM) -> None:
    """The service ends by itself with status 0, before its patience does, and complains of nothing."""
    started = time.monotonic()
    service.send(number)
    assert await asyncio.to_thread(service.wait) == 0, service.text()
    assert time.monotonic() - started < GRACE_S
    records = service.records()
    assert records[-1]["message"] == "stopped"
    assert [record for record in records if record["level"] in {"ERROR", "CRITICAL"}] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_service_ends_at_once(tmp_path: Path, number: signal.Signals):
    with serving(tmp_path) as service:
        async with service.client() as http:  # its connection stays open, idle
            await build(http)
            store = service.store_pid()
            assert store is not None
            await ended(service, number)
        assert service.store_pid() is None
        assert not (tmp_path / "data" / "server.sock").exists()


async def test_what_is_in_flight_is_answered(tmp_path: Path):
    """Choices and waiting rewards by the hundred while the signal comes: every one that was sent is answered,
    or its connection is refused before it was sent; what was acknowledged is there after the restart."""
    with serving(tmp_path) as service:
        async with service.client(max_connections=40) as http:
            await build(http)
            acknowledged: dict[str, int] = {}
            statuses: set[int] = set()
            refused = 0

            async def work(key: str) -> None:
                nonlocal refused
                while True:
                    try:
                        choice = await http.post("/v1/bandits/b/choose", json={"key": key})
                        reward = {"decision": choice.json()["decision"], "value": 1}
                        answer = await http.post("/v1/rewards?wait=applied", json={"rewards": [reward]})
                    except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
                        refused += 1
                        return
                    statuses.add(choice.status_code)
                    statuses.add(answer.status_code)
                    acknowledged[key] = acknowledged.get(key, 0) + answer.json()["accepted"]

            workers = [asyncio.create_task(work(f"u{i}")) for i in range(20)]

            async def busy() -> bool:
                return sum(acknowledged.values()) > 200

            await wait_until(busy, what="rewards are being answered")
            await ended(service)
            await asyncio.gather(*workers)
    assert statuses == {200}
    with serving(tmp_path) as service:
        async with service.client() as http:
            for key, count in acknowledged.items():
                learner = (await http.get(f"/v1/bandits/b/learners/{key}")).json()
                assert learner["observations"] in {count, count + 1}, "one more may not have been answered"


async def test_a_request_under_way_is_finished(tmp_path: Path):
    """An import that has begun when the signal comes is read to its end."""
    with serving(tmp_path) as service:
        async with service.client() as http:
            await build(http, arms=1)

            async def refuses() -> bool:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", service.port)
                except ConnectionRefusedError:
                    return True
                except ConnectionResetError:  # it had queued when the socket was closed
                    return False
                writer.close()
                return False

            async def rows() -> AsyncIterator[bytes]:
                for i in range(3_000):
                    if i == 1_500:
                        service.send(signal.SIGTERM)
                        await wait_until(refuses, what="the service takes no new connection")
                    yield json.dumps({"id": f"x{i}", "features": [i, 1]}).encode() + b"\n"

            answer = await http.post("/v1/catalogues/c/import", content=rows())
            assert answer.status_code == 200
            assert answer.json()["added"] == 3_000
        assert await asyncio.to_thread(service.wait) == 0, service.text()


async def test_a_silent_client_does_not_hold_up_the_end(tmp_path: Path):
    """Connections that send nothing, or half a request line, are not waited for."""
    with serving(tmp_path) as service:
        streams = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(5)]
        for number, (_, writer) in enumerate(streams):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n"[: 8 * number])
            await writer.drain()
        async with service.client() as http:
            assert (await http.get("/healthz")).status_code == 200
        await ended(service)
        for _, writer in streams:
            writer.close()


async def test_a_service_that_builds_an_index_ends_at_once(tmp_path: Path):
    """The build of a graph that would take many seconds is given up."""
    with serving(tmp_path) as service:
        async with service.client() as http:
            index = {"kind": "hnsw", "m": 64, "ef_construction": 2_000}
            (await http.put("/v1/catalogues/big", json={"dim": 32, "index": index})).raise_for_status()
            rng = np.random.default_rng(0)
            rows = b"\n".join(
                json.dumps({"id": f"a{i}", "features": row}).encode()
                for i, row in enumerate(rng.normal(size=(40_000, 32)).round(3).tolist())
            )
            (await http.post("/v1/catalogues/big/import", content=rows)).raise_for_status()

            async def building() -> bool:
                return (await http.get("/v1/catalogues/big")).json()["index"]["state"] == "building"

            await wait_until(building, what="the index is being built")
            await ended(service)


async def test_everything_is_there_after_a_restart(tmp_path: Path):
    """Catalogues, arms, bandits, learners to the bit, tokens, events, duplicates and forgotten learners."""
    with serving(tmp_path) as service:
        async with service.client() as http:
            await build(http)
            tokens = [
                (await http.post("/v1/bandits/b/choose", json={"key": "ann"})).json()["decision"]
                for _ in range(3)
            ]
            event = (await http.post("/v1/bandits/b/choose", json={"key": "ann", "event_id": "e"})).json()
            late = (await http.post("/v1/bandits/b/choose", json={"key": "bob"})).json()["decision"]
            first = {"rewards": [{"decision": tokens[0], "value": 0.1}, {"decision": late, "value": 1}]}
            (await http.post("/v1/rewards?wait=applied", json=first)).raise_for_status()
            (await http.delete("/v1/bandits/b/learners/bob")).raise_for_status()
            paths = ["/v1/catalogues", "/v1/bandits", "/v1/catalogues/c/arms?limit=1000",
                     "/v1/bandits/b/learners/ann?include=precision"]  # fmt: skip
            before = [(await http.get(path)).json() for path in paths]
            seeded = (await http.post("/v1/bandits/b/choose", json={"key": "ann", "k": 5, "seed": 3})).json()
            await ended(service)
    with serving(tmp_path) as service:
        async with service.client() as http:
            after = [(await http.get(path)).json() for path in paths]
            for one, other in zip(before[0]["items"], after[0]["items"], strict=True):
                assert {**one, "index": 0} == {**other, "index": 0}
            assert before[1:] == after[1:]
            again = (await http.post("/v1/bandits/b/choose", json={"key": "ann", "k": 5, "seed": 3})).json()
            assert again["arms"] == seeded["arms"]
            assert (
                await http.post("/v1/bandits/b/choose", json={"key": "ann", "event_id": "e"})
            ).json() == event
            rewards = [{"decision": token, "value": 0.1} for token in (*tokens, late)]
            answer = (await http.post("/v1/rewards?wait=applied", json={"rewards": rewards})).json()
            assert answer == {"accepted": 2, "duplicate": 1, "rejected": [{"index": 3, "code": "forgotten"}]}
