"""The table of the states of a share, row by row, and what each state lets a choice take."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest

from app.quotas.arrays import UNBOUNDED, QuotaArrays
from app.quotas.rules import BanditQuota, QuotaRule
from app.quotas.share import (
    NEVER,
    Demand,
    Gone,
    NoWindow,
    Open,
    QuotaShare,
    ShareState,
    Unknown,
    UsedUp,
    answered,
    end,
    offer_back,
)
from app.storage.types import Share, ShareAsked

SHOWN, REWARDED = QuotaRule(10, arm="a"), QuotaRule(10, arm="a", counts="rewarded")
OPEN = Open(
    start_ms=5_000, ends_ms=9_000, began=0.0, until=4.0, share=6, spent=2, others=1, granted=7, rewarded=0,
    free=3, fair=2,
)  # fmt: skip
USED_UP = UsedUp(**msgspec.structs.asdict(OPEN) | {"free": 0})
STATES: list[ShareState] = [Unknown(5_000), NoWindow(until=3.0), OPEN, USED_UP, Gone()]


def answer(**fields: object) -> Share:
    share = Share(True, True, 5_000, 9_000, mine=6, granted=7, spent=3, rewarded=0, most=10, fair=2)
    return share._replace(**fields)


def after(share: Share, rule: QuotaRule = SHOWN, window_ms: int = 5_000) -> ShareState:
    return answered(rule, ShareAsked("q", "u", window_ms, 2, 0, 0), share, asked_at=100.0, now_ms=5_000)


@pytest.mark.parametrize(
    ("share", "rule", "kind"),
    [
        (answer(known=False), SHOWN, Gone),
        (answer(holds=False, start_ms=-1), SHOWN, NoWindow),
        (answer(), SHOWN, Open),
        (answer(granted=10), SHOWN, UsedUp),
        (answer(granted=12), SHOWN, UsedUp),  # most was lowered
        (answer(granted=10), REWARDED, Open),
        (answer(rewarded=10), REWARDED, UsedUp),
    ],
)
def test_what_the_store_answers(share: Share, rule: QuotaRule, kind: type):
    assert type(after(share, rule)) is kind


def test_an_answer_is_taken_by_the_clock_of_when_it_was_asked_for():
    state = after(answer())
    assert isinstance(state, Open)
    assert (state.began, state.until, state.ends_ms) == (100.0, 104.0, 9_000)
    assert (state.spent, state.others, state.free) == (2, 1, 3)
    assert after(answer(until_ms=2**52)).ends_ms is None  # type: ignore[union-attr]
    # What was spent in another window is not of this one.
    state = after(answer(), window_ms=1_000)
    assert isinstance(state, Open)
    assert (state.spent, state.others) == (0, 3)


def test_a_window_that_is_over_is_remembered_by_its_start():
    assert [end(state) for state in STATES] == [
        Unknown(5_000), Unknown(-1), Unknown(5_000), Unknown(5_000), Gone(),
    ]  # fmt: skip
    assert Unknown(5_000).until == NEVER


def test_what_is_offered_back_is_not_held():
    assert [offer_back(state, 4) for state in STATES[:2]] == STATES[:2]
    assert offer_back(OPEN, 4).share == offer_back(USED_UP, 4).share == 4
    assert offer_back(OPEN, 9) == OPEN
    assert type(offer_back(USED_UP, 4)) is UsedUp


class Allowance(NamedTuple):
    """What a choice may take of a share, and whether its arms are not eligible."""

    left: int
    most_left: int
    holds: bool
    limits: bool
    is_out: bool


@pytest.mark.parametrize(
    ("state", "rule", "expected"),
    [
        (Unknown(), SHOWN, Allowance(0, UNBOUNDED, True, True, False)),
        (NoWindow(until=3.0), SHOWN, Allowance(0, UNBOUNDED, False, False, False)),
        (OPEN, SHOWN, Allowance(6, 9, True, True, False)),
        (USED_UP, SHOWN, Allowance(6, 6, True, True, False)),
        (offer_back(USED_UP, 0), SHOWN, Allowance(0, 0, True, True, True)),
        (OPEN, REWARDED, Allowance(6, UNBOUNDED, True, False, False)),
        (USED_UP, REWARDED, Allowance(6, UNBOUNDED, True, False, True)),
        (Gone(), SHOWN, Allowance(0, UNBOUNDED, False, False, False)),
    ],
)
def test_what_each_state_lets_a_choice_take(state: ShareState, rule: QuotaRule, expected: Allowance):
    arrays = QuotaArrays()
    share = QuotaShare(BanditQuota("q", "u", rule), 0, arrays)
    share.state = state
    assert share.note() == expected.is_out
    found = Allowance(share.left, share.most_left, share.holds, share.limits, bool(arrays.out[0]))
    assert found == expected


def test_a_quota_far_ahead_of_its_even_pace_is_held_back_within_a_slice():
    """200 in 4 s: 5 were planned by the end of the slice, and a two-hundredth of most is one more."""
    arrays = QuotaArrays()
    share = QuotaShare(BanditQuota("q", "u", QuotaRule(200, arm="a", per_s=4, pace="even")), 0, arrays)
    share.state = msgspec.structs.replace(OPEN, share=100)
    assert not share.note()
    row = arrays.rows[0]
    assert (row["rate"], row["began"], row["others"]) == (50.0, OPEN.began, OPEN.others)
    row["planned"] = 5.0
    for spent, is_held_back in ((4, False), (5, False), (6, True)):
        arrays.spent[0] = spent
        assert share.note() == arrays.out[0] == is_held_back
        assert arrays.enough[0] == 5  # one more, and it is looked at again


def test_another_window_begins_with_nothing_spent_and_the_same_goes_on():
    arrays = QuotaArrays()
    share = QuotaShare(BanditQuota("q", "u", SHOWN), 0, arrays)
    sent = ShareAsked("q", "u", -1, 0, 0, 0)
    share.answer(sent, answer(), 0.0, 5_000)
    number, arrays.spent[0] = share.window_number, 4
    share.state = end(share.state)
    share.answer(sent, answer(), 0.0, 5_000)
    assert (share.spent, share.window_number) == (4, number)
    share.answer(sent, answer(start_ms=9_000, until_ms=13_000), 0.0, 9_000)
    assert share.spent == 0
    assert share.window_number > number


def test_the_last_of_a_quota_does_not_lie_with_a_process_that_does_not_need_it():
    share = QuotaShare(BanditQuota("q", "u", SHOWN), 0, QuotaArrays())
    share.demand = Demand(size=64)
    sent = ShareAsked("q", "u", -1, 0, 64, 0)
    share.answer(sent, answer(fair=2), 0.0, 5_000)
    assert share.demand.size == 2
    share.answer(sent, answer(holds=False, start_ms=-1), 0.0, 5_000)
    assert share.demand.size == 0


def test_demand_doubles_where_it_ran_low_and_halves_where_little_is_used():
    demand = Demand().grow()
    assert [demand.size, demand.grow().size] == [8, 16]
    assert demand.after_round(8).size == 8
    idle = demand
    for _ in range(9):
        idle = idle.after_round(0)
    assert (idle.size, idle.after_round(0).size) == (8, 4)
    assert Demand(size=64).after_round(1).size == 32
    assert demand.within(3).size == 3
