"""The constraints of the service keep the contract of constraints."""

from __future__ import annotations

from collections import Counter

import pytest

from app.bandits.settings import RepeatsRule
from app.filters.filter import parse
from app.policies.limits import AtMost
from app.policies.rules import Pin, Rules
from app.quotas.rules import QuotaRule
from app.serving.constraints.base import Constraint
from app.serving.constraints.frequency_caps import FrequencyCapConstraint
from app.serving.constraints.quotas import QuotaConstraint
from app.serving.constraints.requested import AtMostRules, Exclusions, Filters, Pins
from contracts.constraint import ConstraintCase, ConstraintContract, Lists
from contracts.shop import maker, number


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
