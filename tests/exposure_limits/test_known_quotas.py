"""What a process knows of quotas, whatever the order in which answers come."""

from __future__ import annotations

import random

import pytest

from app.exposure_limits.known_quotas import FEW, KnownQuotas
from app.exposure_limits.rules import BanditQuota, QuotaRule
from app.storage.types import QuotaChange, QuotaChanges, QuotasNow
from store_by_clock import OwnClock

pytestmark = pytest.mark.anyio

UID = "0" * 16


def record(rule: QuotaRule) -> bytes:
    return BanditQuota.of_rule("", UID, rule).record


def of_campaign(most: int) -> bytes:
    return record(QuotaRule(most, {"campaign": 1}))


async def knowing(clock: OwnClock, **records: bytes) -> KnownQuotas:
    known = KnownQuotas(clock)
    await known.replace(QuotasNow(0, "1-0", records, {}))
    return known


def closed(known: KnownQuotas) -> set[str]:
    return {*known.closed().quotas}


async def test_a_quota_opens_at_its_time_and_not_before():
    clock = OwnClock()
    known = await knowing(clock, p=of_campaign(9), q=of_campaign(9))
    known.hear(QuotaChanges(0, [QuotaChange("2-0", "q", 500, 0), QuotaChange("3-0", "p", 900, 0)]), "1-0")
    assert closed(known) == {"p", "q"}
    clock.seconds = 0.499
    assert closed(known) == {"p", "q"}
    clock.seconds = 0.5
    assert closed(known) == {"p"}
    # Closed for longer, then opened by a refund: of what was known before nothing is left.
    known.hear(QuotaChanges(500, [QuotaChange("4-0", "p", 2_000, 900)]), "3-0")
    clock.seconds = 1.0
    assert closed(known) == {"p"}
    known.hear(QuotaChanges(1_000, [QuotaChange("5-0", "p", 0, 2_000)]), "4-0")
    assert closed(known) == set()


@pytest.mark.parametrize("seed", range(3))
async def test_answers_side_by_side_in_any_order_tell_the_same(seed: int):
    """Each tells all since what was known when it was asked."""
    draw = random.Random(seed)
    changes = [
        QuotaChange(f"{number}-0", f"q{draw.randrange(3)}", draw.choice([0, 10**6]), 0)
        for number in range(2, 30)
    ]
    known = await knowing(OwnClock(), **{f"q{number}": of_campaign(9) for number in range(3)})
    latest = {change.quota: change.until_ms for change in changes}
    while known.number != "29-0":
        asked = known.number
        first = int(asked.removesuffix("-0")) - 1
        answers = [changes[first : first + draw.randrange(6)] for _ in range(3)]
        for answer in answers:
            known.hear(QuotaChanges(0, answer), asked)
    assert closed(known) == {name for name, until_ms in latest.items() if until_ms}


async def test_where_changes_are_missing_nothing_is_taken_for_known():
    known = await knowing(OwnClock(), q=of_campaign(9))
    known.hear(QuotaChanges(0, None), "0-9")  # of a question from before everything was read
    assert known.number == "1-0"
    known.hear(QuotaChanges(0, None), "1-0")
    known.hear(QuotaChanges(0, [QuotaChange("9-0", "q", 10**6, 0)]), "1-0")
    assert (known.number, closed(known)) == ("", set())


async def test_quotas_come_change_and_go_with_changes():
    known = await knowing(OwnClock(), q=of_campaign(9))
    new, other = of_campaign(3), of_campaign(4)
    known.hear(QuotaChanges(0, [QuotaChange("2-0", "new", 0, 0, new, b"")]), "1-0")
    known.hear(QuotaChanges(0, [QuotaChange("3-0", "new", 10**6, 0, other, new)]), "2-0")
    assert (known.by_id["new"].rule.most, closed(known)) == (4, {"new"})
    known.hear(QuotaChanges(0, [QuotaChange("4-0", "new", 0, 10**6, b"", other)]), "3-0")
    assert ([*known.by_id], closed(known)) == (["q"], set())


async def test_the_time_is_that_of_the_last_answer():
    """Also where the clock of the store has jumped."""
    known = await knowing(OwnClock(), q=of_campaign(9))
    known.hear(QuotaChanges(0, [QuotaChange("2-0", "q", 500, 0)]), "1-0")
    assert closed(known) == {"q"}
    known.hear(QuotaChanges(600, []), "2-0")
    assert closed(known) == set()


async def test_few_are_those_that_a_list_might_use_up():
    clock = OwnClock()
    arm = record(QuotaRule(1, arm="a"))
    known = await knowing(clock, few=of_campaign(3), many=of_campaign(FEW), arm=arm)

    def few(places: int) -> dict[str, int]:
        return {quota.id: left for quota, left in known.nearly_closed(places).items()}

    assert few(1) == {}
    assert few(3) == {}
    assert few(4) == {"few": 3}  # a list has one arm of the other at most
    many = known.by_id["many"]
    known.note_left(many, 2, 1_000)
    assert few(5) == {"few": 3, "many": 2}
    known.hear(QuotaChanges(0, [QuotaChange("2-0", "many", 800, 0)]), "1-0")
    assert few(5) == {"few": 3}
    clock.seconds = 1.0  # another window
    assert closed(known) == set()
    assert few(5) == {"few": 3}
    known.note_left(known.by_id["few"], 1, 2_000)
    clock.seconds = 2.0
    assert few(3) == {}
