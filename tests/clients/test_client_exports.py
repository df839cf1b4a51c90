"""Exports into files: all rows, in both formats, and an error when the answer breaks off."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

import shortlist_files as files
from app.api.streamed_answers import Streamed
from app.platform.answer_memory import Unread
from server.http_protocol import Clients, ShortlistProtocol
from service_process import Service, serving
from shortlist_client import AsyncClient, Client
from shortlist_client.errors import ConnectionFailed
from waiting import wait_until

pytestmark = pytest.mark.rest

DECISIONS = 300


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("exports")) as service:
        with Client(service.url) as client:
            client.put_catalogue("films", dim=2)
            client.upsert_arms("films", [[1.0, float(number)] for number in range(6)], ids=[*"abcdef"])
            client.put_bandit("home", catalogue="films", policy="softmax", log={}, holdout={"share": 0.3})
            choices = client.choose_batch("home", [{"k": 2} for _ in range(DECISIONS)]).results
            rewards = [{"decision": each.decision, "value": 1.0, "arm": each.arms[0].id} for each in choices]
            client.reward_batch(rewards)  # so every row is written
        yield service


def test_a_file_has_the_rows_of_the_log(service: Service, tmp_path: Path):
    with Client(service.url) as client:
        rows = list(client.log("home"))
        lines, table = io.BytesIO(), tmp_path / "log.parquet"
        client.export_log("home", lines)
        with table.open("wb") as file:
            client.export_log("home", file, format="parquet")
        report = client.report("home", bucket_s=3_600)
        begins = [bucket.from_ms for bucket in report.buckets]  # two, where an hour ended meanwhile
        begin, end = begins[0], begins[-1] + 3_600_000
        assert client.report("home", start=begin, end=end).groups == report.groups
        assert client.report("home", start=end).groups[0].decisions == 0
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [each["decision"] for each in found] == [row.decision for row in rows]
    assert len(rows) == DECISIONS
    read = pq.read_table(table).to_pylist()
    assert all(each.pop("timestamp") for row in read for each in (row, *row["rewards"]))
    assert {row.pop("barred") for row in read} == {
        '{"filters":[],"arms":[]}'
    }  # what the other form leaves out
    assert all(row.pop("candidates") == [] for row in read)
    assert read == found
    assert sum(group.decisions for group in report.groups) == DECISIONS
    assert sum(group.decisions for bucket in report.buckets for group in bucket.groups) == DECISIONS
    assert report.groups[0].mean_reward == 1.0


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_an_export_says_that_a_bandit_logs_nothing(service: Service, tmp_path: Path, ending: str):
    with Client(service.url) as client:
        client.put_bandit("quiet", catalogue="films", policy="softmax")
        said = files.export_log(client, "quiet", tmp_path / f"quiet.{ending}")
        assert said.endswith(": quiet logs no decision, until its setting log is an object, such as {}")
        said = files.export_log(client, "home", tmp_path / f"home.{ending}")
        assert said.endswith(f"home.{ending}")


@pytest.mark.anyio
async def test_an_answer_that_breaks_off_is_an_error(caplog: pytest.LogCaptureFixture):
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"one\n"
        yield b"two\n"
        raise RuntimeError("the store is gone")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer = await Streamed.of(pieces(), media_type="application/x-ndjson", name="log.ndjson")
        await answer(scope, receive, send)

    http: Any = partial(ShortlistProtocol, clients=Clients(Unread(1)))
    config = uvicorn.Config(app, port=0, lifespan="off", http=http, log_config=None)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())

    async def started() -> bool:
        return server.started

    await wait_until(started, what="the server listens")
    port = server.servers[0].sockets[0].getsockname()[1]
    file = io.BytesIO()
    async with AsyncClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(ConnectionFailed):
            await client.export_log("home", file)
    assert file.getvalue() == b"one\ntwo\n"
    server.should_exit = True
    await running
