"""Which quotas were closed when a choice was made, beside what its process knew then."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from app.exposure_limits.bandit_quotas import BanditQuotas
from app.exposure_limits.closed_history import ClosedHistory
from app.exposure_limits.known_quotas import KnownQuotas
from app.exposure_limits.rules import BanditQuota, QuotaRule
from app.storage.store import Store
from app.storage.types import QuotaCount

pytestmark = pytest.mark.anyio

UID = "0123456789abcdef"


async def put(store: Store, name: str, rule: QuotaRule, uid: str) -> None:
    before = (await store.quotas.changes(UID, "")).records.get(name, b"")  # type: ignore[union-attr]
    quota = BanditQuota.of_rule(name, uid, rule)
    assert await store.quotas.put(UID, name, quota.record, before, rule.terms(uid), most=99)


async def played(store: Store, draw: random.Random, steps: int) -> list[tuple[str, int, list[Any]]]:
    """What rows would name, and the arms of the quotas that were closed then."""
    known = KnownQuotas()
    process, uids, rows = BanditQuotas(store.quotas, UID, known), dict[str, str](), list[Any]()
    for step in range(steps):
        name, chance = f"q{draw.randrange(6)}", draw.random()
        if name not in uids or chance < 0.2:
            uid = uids.setdefault(name, f"{step:016}")
            # Of the same quota another number, and another pace; the arm says which quota it is.
            pace: Any = draw.choice(["none", "even"])
            rule = QuotaRule(draw.randrange(4), arm=uid, per_s=draw.choice([0.1, 60.0, 9e6]), pace=pace)
            await put(store, name, rule, uid)
        elif chance < 0.3:
            await store.quotas.delete(UID, name)
            del uids[name]
        elif chance < 0.7:
            (window,) = await process.windows([SimpleNamespace(id=name, uid=uids[name])])  # type: ignore[list-item]
            counts = [QuotaCount(name, uids[name], 1)]
            await store.quotas.count(UID, [("show", counts)], after="")
            if chance < 0.4 and window.start_ms >= 0:
                counts = [QuotaCount(name, uids[name], -1, window.start_ms)]
                await store.quotas.count(UID, [("refund", counts)], after="")
        await process.poll()
        closed = known.closed()
        rows.append((closed.number, closed.at_ms, sorted(q.rule.arm or "" for q in closed.quotas.values())))
    return rows


async def closed_then(history: ClosedHistory, number: str, at_ms: int) -> list[str] | None:
    rules = await history.closed(number, at_ms)
    return None if rules is None else sorted(rule.arm or "" for rule in rules)


@pytest.mark.parametrize("seed", range(2))
async def test_rows_in_any_order_say_what_was_closed(store: Store, seed: int):
    draw = random.Random(seed)
    rows = await played(store, draw, 120)
    assert sum(bool(closed) for _, _, closed in rows) > 20
    history = ClosedHistory(store.quotas, UID)
    for order in (rows, rows[::-1], draw.sample(rows, len(rows))):
        for number, at_ms, closed in order:
            assert await closed_then(history, number, at_ms) == closed


async def test_what_is_not_kept_any_more_is_not_known(store: Store):
    rows = await played(store, random.Random(9), 400)
    *_, last = rows
    history, reader = ClosedHistory(store.quotas, UID), ClosedHistory(store.quotas, UID)
    assert await closed_then(reader, *rows[5][:2]) == rows[5][2]
    await store.quotas.trim(UID, last[1] + 1_000)
    assert await closed_then(reader, *last[:2]) is None, "where it stands is gone"
    assert await closed_then(reader, *last[:2]) == last[2]
    assert await closed_then(history, *rows[5][:2]) is None
    assert await closed_then(history, *last[:2]) == last[2]
    assert await closed_then(history, "", 0) is None


async def test_of_more_than_a_thousand_it_is_not_known_which(store: Store):
    known = KnownQuotas()
    process = BanditQuotas(store.quotas, UID, known)
    for number in range(1_001):
        rule, uid = QuotaRule(0, arm=f"a{number}"), f"{number:016}"
        quota = BanditQuota.of_rule(f"q{number}", uid, rule)
        await store.quotas.put(UID, quota.id, quota.record, b"", rule.terms(uid), most=9_999)
        if number >= 999:
            await process.poll()
            closed = known.closed()
            found = await ClosedHistory(store.quotas, UID).closed(closed.number, closed.at_ms)
            assert (found is None) == (number == 1_000)
            assert len(closed.quotas) == number + 1
