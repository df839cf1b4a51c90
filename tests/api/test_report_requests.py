"""Reports and exports: times, bad queries, clients that leave, logs that break off."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace as replaced
from test_reports import EXPORT, REPORT, bandit, rows

from api_client import Api
from app.bandits.bandit import Bandit
from app.decision_log.rows import Row
from app.measuring import export
from app.measuring.report import AT_ONCE, Reports
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from logged_rows import LogInMemory
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_the_report_of_a_bandit_with_a_learner_per_key_takes_keys_as_drawn(api: Api):
    """A thousand decisions of a single user are one draw, and tell nothing of users."""
    busy = [replaced(each, key="ann") for each in rows() * 10]
    users = [replaced(each, key=f"user-{number % 77}") for number, each in enumerate(rows() * 10)]
    await bandit(api, LogInMemory(users), scope="per_key")
    found = await api.ok("GET", REPORT)
    assert (found["unit"], found["as_of_decisions"], found["warnings"]) == ("key", 1_024, [])
    assert (found["decisions"], found["next_look"], found["interval_decisions"]) == (1_200, 2_048, 1_024)
    assert sum(group["decisions"] for group in found["groups"]) == 1_024
    low, high = found["lift"]["interval"]
    assert low < found["lift"]["value"] < high
    api.app.service.reports = Reports(api.app.service.bandits, LogInMemory(busy), Metrics())
    found = await api.ok("GET", REPORT)
    assert (found["lift"]["interval"], found["lift"]["value"]) == (None, pytest.approx(0.0, abs=0.01))
    assert found["warnings"] == [f"{name}: no interval below 30 keys" for name in ("policy", "holdout")]


BAD_QUERIES: list[Any] = [
    (REPORT, "from=2026-01-02&to=2026-01-01", "from"),
    (REPORT, "from=yesterday", "from"),
    (REPORT, "to=", "to"),
    (REPORT, "to=1e400", "to"),
    (REPORT, "bucket_s=0", "bucket_s"),
    (REPORT, "bucket_s=1.5", "bucket_s"),
    (REPORT, "bucket_s=999999999999", "bucket_s"),
    (REPORT, "bucket_s=1", "bucket_s"),
    (REPORT, "bucket_s=1&from=2020-01-01", "bucket_s"),
    (REPORT, "start=2026-01-02", "start"),
    (REPORT, "buckets=1", "buckets"),
    (EXPORT, "from=2026-01-02&to=2026-01-01", "from"),
    (EXPORT, "format=csv", "format"),
    (EXPORT, "format=", "format"),
    (EXPORT, "to=nan", "to"),
    (EXPORT, "limit=1", "limit"),
]


async def test_bad_input_is_named(api: Api):
    await bandit(api, LogInMemory(rows()))
    for path, asked, name in BAD_QUERIES:
        await api.refused("GET", f"{path}?{asked}", loc=("query", name))


async def test_an_unknown_bandit_is_not_found(api: Api):
    for path in ("report", "log/export"):
        await api.refused("GET", f"/v1/bandits/nobody/{path}", status=404, code="not_found")


async def test_an_export_is_a_file_of_rows(api: Api):
    await bandit(api, LogInMemory(rows(), page=50))
    lines = await api.call("GET", EXPORT)
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.headers["content-disposition"] == 'attachment; filename="b.ndjson"'
    assert "content-length" not in lines.headers
    file = await api.call("GET", f"{EXPORT}?format=parquet")
    assert file.headers["content-type"] == "application/vnd.apache.parquet"
    read = pq.read_table(io.BytesIO(file.content)).to_pylist()
    # What the other form leaves out.
    for timed in [each for row in read for each in (row, *row["rewards"])]:
        assert timed.pop("timestamp") == datetime.fromtimestamp(timed["time"] / 1_000, UTC)
    assert {row.pop("barred") for row in read} == {'{"filters":[],"arms":[]}'}
    assert not any(row.pop("candidates") for row in read)
    assert read == list(map(json.loads, lines.content.splitlines()))


async def test_without_the_extra_parquet_is_not_possible(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    await bandit(api, LogInMemory(rows()))
    answer = await api.http.get(f"{EXPORT}?format=parquet")
    assert (answer.status_code, answer.json()["code"]) == (501, "not_installed")
    assert answer.json()["errors"][0]["loc"] == ["query", "format"]
    assert ".[parquet]" in answer.json()["detail"]


class Held:
    """A log that gives one page, and the next when it may go on, or fails then."""

    def __init__(self, *, fails: bool = False) -> None:
        self.goes_on = asyncio.Event()
        self.under_way = 0
        self._fails = fails

    async def reads(self, count: int) -> bool:
        return self.under_way == count

    async def complete_from(self, bandit: Bandit, from_ms: int | None) -> int | None:
        return None

    async def pages(
        self, bandit: Bandit, *, from_ms: int | None, to_ms: int | None
    ) -> AsyncIterator[Sequence[Row]]:
        self.under_way += 1
        try:
            yield rows()
            await self.goes_on.wait()
            if self._fails:
                raise Unavailable("the store does not answer")
            yield rows()
        finally:
            self.under_way -= 1


class Asgi:
    """One request to an application whose client may leave, and what it was sent."""

    def __init__(self, api: Api, path: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self.news = asyncio.Event()
        self._left = asyncio.Event()
        self._asked = False
        name, _, query = path.partition("?")
        scope = {
            "type": "http", "method": "GET", "path": name, "raw_path": name.encode(),
            "query_string": query.encode(), "headers": [(b"host", b"localhost")], "http_version": "1.1",
            "scheme": "http", "client": ("127.0.0.1", 1), "server": ("localhost", 80), "root_path": "",
        }  # fmt: skip
        self.task = asyncio.create_task(api.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self.news.set()

    def leave(self) -> None:
        self._left.set()

    @property
    def is_whole(self) -> bool:
        return any(not message.get("more_body", True) for message in self.sent)


async def test_a_report_ends_when_the_client_leaves(api: Api):
    log = Held()
    await bandit(api, log)
    request = Asgi(api, REPORT)
    await wait_until(lambda: log.reads(1), what="the report reads the log")
    request.leave()
    await request.task
    assert (request.sent, log.under_way) == ([], 0)
    log.goes_on.set()
    for _ in range(AT_ONCE + 1):  # no place was kept
        assert await api.ok("GET", REPORT)


async def test_an_export_ends_when_the_client_leaves(api: Api):
    log = Held()
    await bandit(api, log)
    for _ in range(export.AT_ONCE + 1):
        request = Asgi(api, EXPORT)
        while len(request.sent) < 2:
            await request.news.wait()
            request.news.clear()
        request.leave()
        await request.task
        assert not request.is_whole
        assert log.under_way == 0


async def test_an_export_that_fails_half_way_breaks_off(api: Api, caplog: pytest.LogCaptureFixture):
    log = Held(fails=True)
    await bandit(api, log)
    request = Asgi(api, EXPORT)
    while len(request.sent) < 2:
        await request.news.wait()
        request.news.clear()
    log.goes_on.set()
    await request.task  # the server then closes the connection before the end of the answer
    assert not request.is_whole
    (record,) = [record for record in caplog.records if record.name == "shortlist.http"]
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "the store does not answer" in record.getMessage()
