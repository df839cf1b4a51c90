"""Exports: what is read back is what JSON says, in any number of pieces, and never in one go."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from app.decision_log.rows import NOTHING_BARRED, Barred, LoggedArm, LoggedCandidate, Row
from app.measuring import export
from app.measuring.export import Exports, FormatName
from app.measuring.parquet import ParquetEncoder, schema_of
from app.platform.errors import Unavailable
from headless_service import HeadlessService
from logged_rows import LogInMemory, reward_of, row

FILTER = {"$or": [{"price": {"$lte": 20}}, {"genre": "drama"}], "old": {"$ne": True}}


def varied(count: int) -> list[Row]:
    """Every field is there, absent, and empty in some of them."""
    rng = np.random.default_rng(1)
    rows = []
    for place in range(count):
        arms = [
            LoggedArm(f"a{i}", i + 1, float(rng.normal()), [None, float(rng.random())][place % 2], i == 1)
            for i in range(place % 4)
        ]
        rewards = [
            reward_of(float(rng.normal()), arm.id, time=place, default=bool(arm.place % 2)) for arm in arms
        ]
        rows.append(
            row(
                decision=f"token-{place}",
                time=1_700_000_000_000 + place,
                key=[None, "ann", "bert é\u2028"][place % 3],
                group=[None, "policy", "holdout"][place % 3],
                context=[None, [], rng.normal(size=3).tolist()][place % 3],
                filter=[None, {}, FILTER][place % 3],
                eligible=[None, 7][place % 2],
                arms=arms,
                rewards=rewards[: place % 3],
                barred=[NOTHING_BARRED, None, Barred([{"campaign": 7}], ["a1"])][place % 3],
                candidates=[(), None, [LoggedCandidate("a1"), LoggedCandidate("n", [0.5, -2.0])]][place % 3],
            )
        )
    return rows


def as_json(rows: Sequence[Row]) -> list[Any]:
    return msgspec.json.decode(msgspec.json.encode(rows))


def read_back(data: bytes) -> list[Any]:
    """The rows of a file, what was text as JSON; without what a row says of nothing, and without timestamps,
    which are compared here.
    """
    found = pq.read_table(io.BytesIO(data)).to_pylist()
    for each in found:
        for timed in (each, *each["rewards"]):
            assert timed.pop("timestamp") == datetime.fromtimestamp(timed["time"] / 1_000, UTC)
        for name in ("filter", "barred"):
            each[name] = each[name] and json.loads(each[name])
        if each["barred"] == {"filters": [], "arms": []}:
            del each["barred"]
        for candidate in each["candidates"] or ():
            for name in ("features", "match"):
                if candidate[name] is None:
                    del candidate[name]
        if each["candidates"] == []:
            del each["candidates"]
    return found


@pytest.mark.parametrize("cut", [1, 7, 1_000])
def test_a_row_that_is_read_back_is_the_row_as_json(cut: int):
    rows, encoder = varied(200), ParquetEncoder(schema_of())
    pieces = [encoder.add(rows[start : start + cut]) for start in range(0, len(rows), cut)]
    assert read_back(b"".join(pieces) + encoder.end()) == as_json(rows)


def test_rows_leave_the_encoder_while_others_come():
    rows, encoder = varied(200), ParquetEncoder(schema_of(), group_rows=50)
    pieces = [encoder.add(rows[start : start + 20]) for start in range(0, 200, 20)]
    assert pieces[0] == b"PAR1"
    assert [len(piece) > 4 for piece in pieces] == [place % 3 == 2 for place in range(10)]
    data = b"".join([*pieces, encoder.end()])
    assert pq.ParquetFile(io.BytesIO(data)).num_row_groups == 4
    assert read_back(data) == as_json(rows)
    assert ParquetEncoder(schema_of(), group_bytes=1).add(rows[:1])


@pytest.mark.anyio
@pytest.mark.parametrize("kind", export.FORMATS)
async def test_an_export_is_the_rows_of_the_time_asked_for(service: HeadlessService, kind: FormatName):
    bandit, rows = await service.bandit(), varied(60)
    first = rows[0].time
    exports = Exports(LogInMemory(rows, page=7))
    pieces = [piece async for piece in exports.stream(bandit, kind, from_ms=first + 10, to_ms=first + 40)]
    assert all(pieces)
    data = b"".join(pieces)
    found = read_back(data) if kind == "parquet" else list(map(json.loads, data.splitlines()))
    assert found == as_json(rows[10:40])


@pytest.mark.anyio
async def test_pages_are_read_as_they_are_taken(service: HeadlessService):
    log = LogInMemory(varied(100), page=10)
    async with aclosing(
        Exports(log).stream(await service.bandit(), "ndjson", from_ms=None, to_ms=None)
    ) as pieces:
        for expected in (1, 2, 3):
            await anext(pieces)
            assert log.asked == expected


@pytest.mark.rest
@pytest.mark.anyio
async def test_few_exports_at_once_and_their_places_are_given_back(service: HeadlessService):
    bandit = await service.bandit()
    exports = Exports(LogInMemory(varied(10)))

    def one() -> Any:
        return exports.stream(bandit, "ndjson", from_ms=None, to_ms=None)

    under_way = [one() for _ in range(export.AT_ONCE)]
    for each in under_way:
        await anext(each)
    with pytest.raises(Unavailable, match="exports"):
        await anext(one())
    await under_way[0].aclose()
    assert len([piece async for piece in one()]) == 1
    for each in under_way:
        await each.aclose()


@pytest.mark.rest
@pytest.mark.anyio
async def test_others_go_on_while_rows_are_encoded(service: HeadlessService, monkeypatch: pytest.MonkeyPatch):
    bandit, loop_is_free, entered = await service.bandit(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Waiting:
        def add(self, rows: Sequence[Row]) -> bytes:
            loop.call_soon_threadsafe(entered.set)
            asyncio.run_coroutine_threadsafe(loop_is_free.wait(), loop).result(30)
            return b"row"

        def end(self) -> bytes:
            return b""

    monkeypatch.setattr(export, "NdjsonEncoder", Waiting)
    stream = Exports(LogInMemory(varied(3))).stream(bandit, "ndjson", from_ms=None, to_ms=None)
    piece = asyncio.ensure_future(anext(stream))
    await entered.wait()
    loop_is_free.set()
    assert await piece == b"row"
    await stream.aclose()
