"""Contract of a store: quotas, what is counted for them, and which are closed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from app.storage import redis_keys as keys
from app.storage.store import Store
from app.storage.types import QuotaChanges, QuotaCount, QuotaEvent, QuotasNow, QuotaTerms, QuotaWindow

pytestmark = pytest.mark.anyio

UID, FIRST, SECOND = "0123456789abcdef", "first-incarnation", "second-incarnation"
DAY_MS = 86_400_000


def terms(most: int = 100, **fields: int | str) -> QuotaTerms:
    rest = {"uid": FIRST, "per_ms": 0, "from_ms": 0, "to_ms": 0, "pace": "none", "counts": "shown"}
    return QuotaTerms(most=most, **(rest | fields))  # type: ignore[arg-type]


async def now(store: Store) -> QuotasNow:
    everything = await store.quotas.changes(UID, "")
    assert isinstance(everything, QuotasNow)
    return everything


async def put(store: Store, quota: str = "q", record: bytes = b"r", **fields: object) -> None:
    before = (await now(store)).records.get(quota, b"")
    assert await store.quotas.put(UID, quota, record, before, terms(**fields), most=1_000)  # type: ignore[arg-type]


class Answer(NamedTuple):
    """Of one event."""

    counted: bool
    windows: Sequence[QuotaWindow]


async def counted(store: Store, event: QuotaEvent, counts: Sequence[QuotaCount]) -> Answer:
    answer = await store.quotas.count(UID, [(event, counts)], after="")
    return Answer(answer.counted == [True], [*answer.windows.values()])


async def count(store: Store, event: QuotaEvent, times: int, quota: str = "q", **fields: int | str) -> Answer:
    asked = QuotaCount(quota, times=times, **({"uid": FIRST} | fields))  # type: ignore[arg-type]
    return await counted(store, event, [asked])


async def window(store: Store, quota: str = "q") -> QuotaWindow:
    (found,) = (await count(store, "read", 0, quota)).windows
    return found


async def is_closed(store: Store, quota: str = "q") -> bool:
    everything = await now(store)
    return everything.closed.get(quota, 0) > everything.now_ms


async def test_a_quota_is_put_where_its_record_is_the_one_that_is_known(store: Store):
    """So what it counts is never changed beside another process; and there are no more than may be."""
    await put(store)
    await put(store, "q2")
    assert await store.quotas.put(UID, "q", b"s", b"other", terms(), most=9) is False
    assert await store.quotas.put(UID, "q3", b"s", b"r", terms(), most=9) is False
    assert await store.quotas.put(UID, "q3", b"s", b"", terms(), most=2) is None
    assert await store.quotas.put(UID, "q", b"s", b"r", terms(), most=2)
    assert (await now(store)).records == {"q": b"s", "q2": b"r"}
    assert await store.quotas.delete(UID, "q")
    assert (await window(store)).start_ms == -1, "whoever has not heard of it counts nothing"
    assert not await store.quotas.delete(UID, "q")
    assert await store.quotas.put(UID, "q", b"s", b"r", terms(), most=9) is False
    assert [*(await now(store)).records] == ["q2"]
    await store.quotas.erase(UID)
    assert (await now(store))[1:] == ("", {}, {})


async def test_what_changed_since_is_told_and_everything_where_that_is_not_known(store: Store):
    await put(store, most=1)
    first = await now(store)
    assert (await store.quotas.changes(UID, first.number))[1:] == ([],)
    await count(store, "show", 1)
    await put(store, record=b"s", most=2)
    await store.quotas.delete(UID, "q")
    heard = await store.quotas.changes(UID, first.number)
    assert isinstance(heard, QuotaChanges)
    assert heard.changes is not None
    closed, changed, deleted = heard.changes
    assert (closed.until_ms > 0, closed.was_ms, closed.record) == (True, 0, None)
    assert (changed.until_ms, changed.was_ms) == (0, closed.until_ms)
    assert (changed.record, changed.before) == (b"s", b"r")
    assert (deleted.record, deleted.before) == (b"", b"s")
    answer = await store.quotas.count(UID, [], after=first.number)
    assert answer.changes.changes == heard.changes
    numbers = [first.number, *(change.number for change in heard.changes)]
    between = [each.number for each in await store.quotas.changes_between(UID, numbers[1], numbers[-1])]
    assert between == numbers[1:]
    between = [each.number for each in await store.quotas.changes_between(UID, numbers[-1], numbers[0])]
    assert between == numbers[::-1]
    for unknown in ("1-1", "9999999999999-0"):  # long gone, or the store has lost writes
        assert isinstance(await store.quotas.changes(UID, unknown), QuotasNow)
        assert (await store.quotas.count(UID, [], after=unknown)).changes.changes is None


async def test_changes_go_with_the_rows_that_name_them_and_the_last_before_stays(store: Store):
    for most in range(400):
        await put(store, record=f"{most}".encode(), most=most + 1)
    last = await now(store)
    await store.quotas.trim(UID, last.now_ms + DAY_MS)
    assert isinstance(await store.quotas.changes(UID, last.number), QuotaChanges)
    kept = await store.quotas.changes_between(UID, "0-1", last.number)
    assert 1 <= len(kept) <= 200
    assert len(await store.quotas.changes_between(UID, last.number, last.number)) == 1


async def test_all_processes_hear_of_changes(store: Store):
    before = await store.registry.version()
    assert await store.quotas.changed(UID) == 1
    registry = await store.registry.read()
    assert (registry.quotas, registry.version) == ({UID: 1}, before + 1)
    await store.quotas.erase(UID)
    assert (await store.registry.read()).quotas == {}


async def test_all_of_a_choice_is_counted_or_nothing(store: Store):
    await put(store, most=3)
    await put(store, "q2", most=10)
    both = [QuotaCount("q", FIRST, 2), QuotaCount("q2", FIRST, 4)]
    answer = await counted(store, "show", both)
    assert (answer.counted, [each.shown for each in answer.windows]) == (True, [2, 4])
    answer = await counted(store, "show", both)
    assert (answer.counted, [each.shown for each in answer.windows]) == (False, [2, 4])
    assert not await is_closed(store)
    assert (await count(store, "show", 1)).counted
    assert await is_closed(store)
    assert not (await count(store, "show", 1)).counted


async def test_events_of_one_call_count_one_after_the_other(store: Store):
    """What one uses up the next one does not get, and what one gives back it does."""
    await put(store, most=3)
    await put(store, "q2", most=10)
    of_q, of_both = [QuotaCount("q", FIRST, 2)], [QuotaCount("q", FIRST, 2), QuotaCount("q2", FIRST, 1)]
    events: list[tuple[QuotaEvent, list[QuotaCount]]] = [
        ("show", of_q),
        ("show", of_both),
        ("show", [QuotaCount("q2", FIRST, 4)]),
        ("refund", [QuotaCount("q", FIRST, -1, 0)]),
        ("show", of_both),
        ("show", [QuotaCount("q", FIRST, 1)]),
        ("read", of_q),
    ]
    answer = await store.quotas.count(UID, events, after="")
    assert answer.counted == [True, False, True, True, True, False, True]
    assert {name: window.shown for name, window in answer.windows.items()} == {
        ("q", FIRST): 3,
        ("q2", FIRST): 5,
    }
    assert await is_closed(store)
    assert [(await window(store, name)).shown for name in ("q", "q2")] == [3, 5]


async def test_a_refund_is_of_its_window_and_opens_the_quota_again(store: Store):
    await put(store, most=3, per_ms=DAY_MS)
    (shown,) = (await count(store, "show", 3)).windows
    assert await is_closed(store)
    await count(store, "refund", -2, start=shown.start_ms - DAY_MS)
    await count(store, "refund", -2, start=shown.start_ms, uid=SECOND)
    assert (await window(store)).shown == 3
    await count(store, "refund", -2, start=shown.start_ms)
    assert (await window(store)).shown == 1
    assert not await is_closed(store)


@pytest.mark.rest
async def test_a_quota_of_another_uid_or_that_is_gone_neither_counts_nor_refuses(store: Store):
    await put(store, most=0)
    assert (await count(store, "show", 1, uid=SECOND)).counted
    answer = await count(store, "show", 1, "none")
    assert (answer.counted, answer.windows) == (True, [QuotaWindow(-1, 0, 0, 0)])
    assert not (await count(store, "show", 1)).counted


async def test_a_window_that_the_clock_has_left_backwards_goes_on(store: Store):
    """As if the clock had gone back by a day: what was counted in the later window stays counted."""
    await put(store, most=10, per_ms=DAY_MS)
    today = (await window(store)).start_ms
    later = ["window", today + DAY_MS, "shown", 8, "rewarded", 0]
    redis = store.quotas._redis  # private: the latest window as it is stored
    await redis.command("HSET", keys.quota(UID, "q"), *later)
    assert not (await count(store, "show", 3)).counted
    assert (await count(store, "show", 2)).counted
    assert await window(store) == (today + DAY_MS, today + 2 * DAY_MS, 10, 0)


@pytest.mark.rest
async def test_windows_are_multiples_since_from(store: Store):
    await put(store, per_ms=DAY_MS, from_ms=1_000)
    found, now_ms = await window(store), (await now(store)).now_ms
    assert (found.start_ms - 1_000) % DAY_MS == 0
    assert found.start_ms <= now_ms < found.ends_ms == found.start_ms + DAY_MS


async def test_a_new_window_begins_with_all_of_it(store: Store):
    await put(store, most=4, per_ms=50)
    shown = Counter[int]()
    for _ in range(150):
        answer = await count(store, "show", 1)
        shown[answer.windows[0].start_ms] += answer.counted
        await asyncio.sleep(0.001)
    assert len(shown) > 1
    assert max(shown.values()) == 4


async def test_the_last_window_ends_with_the_quota(store: Store):
    end_ms = (await now(store)).now_ms + DAY_MS // 3
    await put(store, per_ms=DAY_MS, from_ms=end_ms - 3 * DAY_MS // 2, to_ms=end_ms)
    assert (await window(store))[:2] == (end_ms - DAY_MS // 2, end_ms)


@pytest.mark.rest
async def test_outside_of_its_time_it_does_not_hold(store: Store):
    now_ms = (await now(store)).now_ms
    await put(store, most=0, from_ms=now_ms + DAY_MS, to_ms=now_ms + 2 * DAY_MS)
    assert (await window(store)).start_ms == -1
    assert (await count(store, "show", 1)).counted
    await put(store, record=b"s", most=0, from_ms=1, to_ms=now_ms - 1)
    assert (await count(store, "show", 1)).counted
    assert not await is_closed(store)


@pytest.mark.rest
async def test_another_incarnation_counts_anew_and_the_same_goes_on(store: Store):
    await put(store, most=10)
    await count(store, "show", 8)
    await put(store, record=b"s", most=6)
    assert await is_closed(store)
    assert (await window(store)).shown == 8
    await put(store, record=b"t", most=9)
    assert not await is_closed(store)
    await put(store, record=b"u", most=9, uid=SECOND)
    assert (await count(store, "show", 9, uid=SECOND)).counted


@pytest.mark.rest
async def test_rewards_close_a_quota_that_counts_them(store: Store):
    await put(store, most=5, per_ms=DAY_MS, counts="rewarded")
    assert (await count(store, "show", 50)).counted
    for times in (2, 2):
        await count(store, "reward", times)
        assert (await count(store, "show", 1)).counted
    assert (await count(store, "reward", 3)).counted  # of what was shown before
    assert await is_closed(store)
    assert not (await count(store, "show", 1)).counted
    assert (await count(store, "activate", 1)).counted
    assert (await window(store))[2:] == (53, 7)


async def test_an_even_pace_is_a_line_that_activations_may_cross(store: Store):
    """A day began half a day ago: half of the 1,000 may have been shown, and those of the slice of now."""
    now_ms = (await now(store)).now_ms
    await put(store, most=1_000, from_ms=now_ms - DAY_MS // 2, to_ms=now_ms + DAY_MS // 2, pace="even")
    assert (await count(store, "show", 499)).counted
    assert (await count(store, "show", 3)).counted  # a list may cross the line
    assert await is_closed(store)
    opens_ms = (await now(store)).closed["q"]
    assert opens_ms % 100 == 0
    # The line reaches 502 after 1.5 to 2.5 thousandths of a day, as long as this test has taken.
    assert 1.0 < (opens_ms - now_ms) * 1_000 / DAY_MS < 3.0
    assert not (await count(store, "show", 1)).counted
    assert (await count(store, "activate", 400)).counted
    assert not (await count(store, "activate", 100)).counted  # that would be too many
    await put(store, record=b"s", most=1_000, from_ms=now_ms - DAY_MS // 2, to_ms=now_ms + DAY_MS // 2)
    assert not await is_closed(store)
    assert (await count(store, "show", 98)).counted


async def test_of_an_even_pace_no_more_is_shown_than_the_line_allows_by_the_end_of_a_slice(store: Store):
    """One in a slice of 100 ms, however often it is asked for."""
    await put(store, most=600, per_ms=60_000, pace="even")
    events: list[tuple[QuotaEvent, list[QuotaCount]]] = [("show", [QuotaCount("q", FIRST, 1)])] * 20
    # Make up for what was not shown before.
    found = await window(store)
    missed = ((await now(store)).now_ms - found.start_ms) // 100
    await count(store, "activate", missed)
    for _ in range(20):
        answer = await store.quotas.count(UID, events, after="")
        shown, now_ms = answer.windows["q", FIRST], answer.changes.now_ms
        slices = (now_ms - shown.start_ms) // 100 + 1
        assert shown.shown == slices or shown.start_ms > found.start_ms
        await asyncio.sleep(0.01)


@pytest.mark.rest
async def test_whatever_processes_do_never_more_is_counted_than_there_is(store: Store):
    """Calls side by side, of several quotas each, some of which are refunded."""
    draw = random.Random(4)
    most = {f"q{number}": draw.randrange(1, 80) for number in range(6)}
    for quota, own in most.items():
        await put(store, quota, most=own)
    shown = Counter[str]()

    async def choose(quotas: Sequence[str], *, is_refunded: bool) -> None:
        counts = [QuotaCount(quota, FIRST, draw.randrange(1, 4)) for quota in quotas]
        answer = await counted(store, "show", counts)
        if answer.counted:
            charged = [each._replace(times=-each.times, start=0) for each in counts]
            if is_refunded:
                await counted(store, "refund", charged)
            else:
                shown.update({each.quota: each.times for each in counts})

    for _ in range(40):
        names = (draw.sample([*most], draw.randrange(1, 4)) for _ in range(8))
        await asyncio.gather(*(choose(each, is_refunded=draw.random() < 0.2) for each in names))
    windows = {quota: (await window(store, quota)).shown for quota in most}
    assert windows == {quota: shown[quota] for quota in most}
    assert all(shown[quota] <= own for quota, own in most.items())
    assert sum(shown.values()) > 0.8 * sum(most.values())
