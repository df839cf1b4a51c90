"""The constraints of the service keep the contract of constraints."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from app.bandits.settings import LogRule, RepeatsRule
from app.exposure_limits.rules import QuotaRule
from app.filters.filter import parse
from app.rewards.tokens import decision_of, raw_of
from app.selection.list_limits import AtMost
from app.selection.request import ChooseRequest
from app.selection.rules import Pin, Rules
from app.selection.selection import SelectionRequest
from app.serving.constraints.base import (
    MOST_LOGGED_HAD,
    Applied,
    Constraint,
    ConstraintRow,
    LogRecord,
    Shown,
    View,
    recorded,
)
from app.serving.constraints.frequency_caps import FrequencyCapConstraint
from app.serving.constraints.of_plugins import Missing
from app.serving.constraints.quotas import QuotaConstraint
from app.serving.constraints.requested import AtMostRules, DistinctRows, Exclusions, Filters, Pins
from app.storage.types import LearnerId
from headless_service import HeadlessService
from shortlist_service.testing import ConstraintCase, ConstraintContract, Lists
from shortlist_service.testing.shop import ids, maker, number
from waiting import wait_until


def arms_of(lists: Lists) -> list[str]:
    return [arm for arms in lists for arm in arms]


CASES: dict[type[Constraint], ConstraintCase] = {
    Filters: ConstraintCase(
        lambda lists: all(number(arm) % 2 == 0 for arm in arms_of(lists)),
        {"arm_filter": parse({"even": True})},
    ),
    Exclusions: ConstraintCase(
        lambda lists: not {"a1", "a4", "a9"} & set(arms_of(lists)),
        {"exclude": ["a1", "a4", "a9", "nobody"]},
    ),
    DistinctRows: ConstraintCase(
        lambda lists: not {"a1", "a4", "a9"} & set(arms_of(lists)), {"shown": ["a1", "a4", "a9"]}
    ),
    AtMostRules: ConstraintCase(
        lambda lists: all(max(Counter(map(maker, arms)).values()) == 1 for arms in lists),
        {"rules": Rules(at_most=[AtMost("maker", 1)])},
    ),
    Pins: ConstraintCase(
        lambda lists: all(arms[1] == "a2" for arms in lists), {"rules": Rules([Pin("a2", 2)])}
    ),
    FrequencyCapConstraint: ConstraintCase(
        lambda lists: max(Counter(arms_of(lists)).values()) == 1,
        settings={"repeats": RepeatsRule(most=1, within_s=3_600.0)},
        batch=2,
        counts=True,
    ),
    QuotaConstraint: ConstraintCase(
        lambda lists: sum(maker(arm) == "m0" for arm in arms_of(lists)) <= 4,
        quota=QuotaRule(4, {"maker": "m0"}),
        batch=20,
        counts=True,
    ),
}


class TestConstraints(ConstraintContract):
    @pytest.fixture(params=CASES, ids=lambda constraint: constraint.__name__)
    def case(self, request: pytest.FixtureRequest) -> ConstraintCase:
        return CASES[request.param]


@pytest.mark.anyio
async def test_every_constraint_has_a_case(service: HeadlessService):
    # Where a plug-in is missing there are no lists: tests/processes/test_plugins.py.
    constraints = {type(row.constraint) for row in service.parts.pipeline.constraints} - {Missing}
    assert constraints == set(CASES)


class Clock(Constraint):
    """It leaves out an arm, at which time it is asked, and whom it has to forget."""

    def __init__(self) -> None:
        self.times, self.forgotten = list[int](), list[LearnerId | None]()

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        self.times.append(request.time_ms)
        return View(exclude=[f"a{request.time_ms % 4}"])

    def forget(self, learner: LearnerId) -> None:
        self.forgotten.append(learner)

    def forget_all(self) -> None:
        self.forgotten.append(None)


def add_clock(service: HeadlessService) -> Clock:
    """Make a clock the last constraint of all choices."""
    pipeline, clock = service.parts.pipeline, Clock()
    pipeline.constraints = [*pipeline.constraints, ConstraintRow(clock, lambda *_: True)]
    return clock


@pytest.mark.anyio
async def test_a_constraint_by_the_clock_is_made_again_at_the_time_of_the_decision(service: HeadlessService):
    clock, bandit = add_clock(service), await service.bandit("b", log=LogRule())
    for seed in range(4):
        choice = await service.choose(bandit, seed=seed)
        find = partial(service.parts.decision_log.find, bandit, choice.decision)
        await wait_until(find, what="the row is in the log")
        explanation = await service.parts.explanations.explain(bandit, choice.decision)
        assert explanation.repeated is True
        decision = decision_of(raw_of(choice.decision))
        assert clock.times == [decision.issued_ms] * 2
        assert f"a{decision.issued_ms % 4}" not in ids(choice)
        clock.times.clear()


@pytest.mark.anyio
async def test_a_constraint_is_told_who_is_forgotten(service: HeadlessService):
    clock, bandit = add_clock(service), await service.bandit("b")
    await service.observe(bandit, "o1")
    learner = bandit.learner_named("ann")
    await service.parts.erasure.forget(learner)
    assert learner in clock.forgotten


class Counted(Constraint):
    """One that counts, and says what it left out."""

    counts = is_in_row = True

    def __init__(self, record: LogRecord) -> None:
        self.own = record

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        return View()

    async def charge(self, view: View, shown: Shown) -> str:
        return "charged"

    def record(self, view: View, charge: object, shown: Shown) -> LogRecord:
        return self.own


SHOWN: Any = Shown(None, None, [], "d")  # type: ignore[arg-type]  # nobody here reads them


class CountedOutOfRow(Counted):
    """One whose row does not say all that it left."""

    is_in_row = False


def recorded_of(*records: LogRecord) -> LogRecord:
    return recorded([Applied(Counted(record), View()) for record in records], SHOWN)


def test_what_several_left_out_is_all_recorded():
    closed, had = LogRecord(("7-0", 5)), LogRecord(had=["a", "b"])
    assert recorded_of(had, LogRecord(), closed, LogRecord(had=["c"])) == LogRecord(
        ("7-0", 5), ["a", "b", "c"]
    )
    assert not recorded_of(LogRecord(had=["a"] * (MOST_LOGGED_HAD + 1))).is_told
    unsaid = [Applied(Counted(closed), View()), Applied(CountedOutOfRow(closed), View())]
    assert recorded(unsaid, SHOWN) == LogRecord(is_told=False)


def test_where_one_does_not_know_what_it_left_out_nobody_says_it():
    known, unknown = LogRecord(("7-0", 5), ["a"]), LogRecord(is_told=False)
    for records in ((known, unknown), (unknown, known)):
        assert recorded_of(*records) == LogRecord(is_told=False)
