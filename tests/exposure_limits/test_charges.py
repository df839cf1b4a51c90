"""What a process charges and hears of it, beside other processes and callers that leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.exposure_limits.bandit_quotas import BanditQuotas
from app.exposure_limits.known_quotas import KnownQuotas
from app.exposure_limits.rules import BanditQuota, QuotaRule
from app.storage.store import Store
from store_by_clock import OwnClock, QuotaOfRow, StoreByClock, process_of

pytestmark = pytest.mark.anyio

UID = "0123456789abcdef"
ROWS: Any = None  # in place of a snapshot: ``QuotaOfRow`` reads none


async def put(store: Store, name: str, most: int) -> None:
    quota = BanditQuota.of_rule(name, "0" * 16, QuotaRule(most, {"campaign": int(name)}))
    assert await store.quotas.put(UID, name, quota.record, b"", quota.rule.terms(quota.uid), most=9_999)


async def process_on(store: Store) -> BanditQuotas:
    known: Any = KnownQuotas()
    known.members = QuotaOfRow()
    process = BanditQuotas(store.quotas, UID, known)
    await process.poll()
    return process


async def test_an_answer_says_how_many_are_left_for_a_list():
    store = StoreByClock(OwnClock(), {"0": QuotaRule(5, {"campaign": 0}, per_s=60.0)})
    process = await process_of(store)
    assert await process.charge(ROWS, [0, 0, 0])
    assert {quota.id: left for quota, left in process.known.nearly_closed(4).items()} == {"0": 2}


async def test_a_caller_that_leaves_takes_no_answer_from_others():
    """Both ask in one turn of the event loop, so that one call counts for both."""
    process = await process_of(StoreByClock(OwnClock(), {"0": QuotaRule(5, arm="a", per_s=60.0)}))
    first, second = (asyncio.create_task(process.charge(ROWS, [0])) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second
    (window,) = await process.windows([process.known.by_id["0"]])
    assert window.shown == 2, "what was sent counts"


async def test_a_refusal_says_what_is_closed_also_where_changes_are_gone(store: Store):
    await put(store, "0", 1)
    process = await process_on(store)
    assert await (await process_on(store)).charge(ROWS, [0])
    process.known.number = "1-1"  # as after so many changes that it is not kept any more
    assert await process.charge(ROWS, [0]) is None
    assert [*process.known.closed().quotas] == ["0"]


async def test_one_poll_hears_of_any_number_of_changes(store: Store):
    process = await process_on(store)
    await put(store, "0", 1)
    await process.poll()
    await asyncio.gather(*(put(store, f"{number}", 1) for number in range(1, 1_200)))
    await process.poll()
    assert len(process.known.by_id) == 1_200
