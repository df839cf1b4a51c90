"""Requests for a choice: what makes two of them the same one, and what an event or a pin is for."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from app.bandits.settings import HoldoutRule, RepeatsRule
from app.filters.filter import parse
from app.platform.errors import NoArms
from app.selection.list_limits import AtMost
from app.selection.request import ChooseRequest
from app.selection.rules import Diverse, Pin, Rules
from headless_service import HeadlessService
from waiting import wait_until

OTHER: list[dict[str, Any]] = [
    {"k": 2},
    {"exclude": ["b"]},
    {"seed": 1},
    {"activate": False},
    {"arms": ["a"]},
    {"arm_filter": parse({"x": 1})},
    {"rules": Rules([Pin("a", 1)])},
    {"rules": Rules([Pin("a", 2)])},
    {"rules": Rules(at_most=[AtMost("x", 1)])},
    {"rules": Rules(diverse=Diverse(0.5, "x"))},
    {"visitor": "ann"},
    {"visitor": "ben"},
    {"weights": {"click": 1.0}},
    {"weights": {"click": 2.0}},
    {"weights": {"buy": 1.0}},
]


def test_requests_that_ask_for_different_choices_have_different_digests():
    requests = [ChooseRequest(), *(ChooseRequest(**fields) for fields in OTHER)]
    digests = {request.digest(None) for request in requests}
    digests |= {requests[0].digest(np.array(numbers, np.float32)) for numbers in ([0.0], [1.0])}
    assert len(digests) == len(requests) + 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"exclude": ["a", "b"]}, {"exclude": ["b", "a"]}),
        ({"weights": {"click": 1.0, "buy": 2.0}}, {"weights": {"buy": 2.0, "click": 1.0}}),
        ({"include": ["metadata"]}, {}),
        ({"key": "ann"}, {"key": "ben"}),
    ],
    ids=lambda fields: next(iter(fields), "none"),
)
def test_requests_that_ask_for_the_same_choice_have_one_digest(one: Any, other: Any):
    assert ChooseRequest(**one).digest(None) == ChooseRequest(**other).digest(None)


def test_each_visitor_with_a_pass_has_events_of_its_own():
    events = {ChooseRequest(event_id="e", owner=owner).event for owner in (None, "ann", "ben")}
    assert len(events) == 3


@pytest.mark.anyio
async def test_what_is_sent_again_for_an_event_is_in_the_same_group(service: HeadlessService):
    bandit = await service.bandit(scope="global", holdout=HoldoutRule(0.5))
    for number in range(20):
        request = ChooseRequest(event_id=f"e{number}")
        assert len({request.group(bandit, f"decision {n}") for n in range(10)}) == 1


@pytest.mark.anyio
async def test_pins_stand_at_their_places_in_whichever_order_they_are_sent(service: HeadlessService):
    bandit = await service.bandit()
    pins = [Pin("a1", 2), Pin("a0", 1)]  # which come first without rewards
    for order in (pins, pins[::-1]):
        choice = await service.choose(bandit, k=4, rules=Rules(order))
        assert [choice.arms[pin.place - 1].id for pin in pins] == [pin.arm for pin in pins]
        assert [place for place, arm in enumerate(choice.arms, 1) if arm.pinned] == [1, 2]
        assert len({arm.id for arm in choice.arms}) == 4


@pytest.mark.anyio
async def test_choices_at_once_for_one_event_are_shown_once(service: HeadlessService):
    await service.catalogue("single", arms=1)
    bandit = await service.bandit(catalogue="single", repeats=RepeatsRule(most=2, within_s=3_600.0))
    service.store.hold["choices.get_event"] = asyncio.Event()
    calls = [asyncio.ensure_future(service.choose(bandit, event_id="e")) for _ in range(2)]

    async def both_wait() -> bool:
        return service.store.held["choices.get_event"] == 2

    await wait_until(both_wait, what="neither knows of the other")
    service.store.hold.pop("choices.get_event").set()
    one, other = await asyncio.gather(*calls)
    assert one == other
    await service.choose(bandit)
    with pytest.raises(NoArms):
        await service.choose(bandit)


@pytest.mark.anyio
async def test_a_cap_of_rewards_counts_no_list_that_is_only_shown(service: HeadlessService):
    await service.catalogue("single", arms=1)
    rule = RepeatsRule(most=1, within_s=3_600.0, counts="rewarded")
    bandit = await service.bandit(catalogue="single", repeats=rule)
    for _ in range(3):
        assert len((await service.choose(bandit)).arms) == 1
