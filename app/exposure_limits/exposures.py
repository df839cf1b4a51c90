"""The form in which frequency caps count an arm, stored with each key which was shown the arm.

A cap by arm counts the arm's id. A cap by a field counts each value of the field, written as [field, value]
in JSON, which is never the id of an arm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from app.bandits.settings import BY_ARM, RepeatsRule
from app.filters.attribute_snapshot import AttributeSnapshot
from app.filters.fields import Value
from app.indexes.snapshot import Snapshot
from shortlist.types import Rows


def exposures_of(
    rule: RepeatsRule, all_arms: Snapshot, decision: str, arms: Sequence[str], places: Iterable[int]
) -> list[tuple[str, str]]:
    """(name, counted form) of arms at these places of a decision, from 0.

    The same arm of the same decision has the same names. Cost: O(arms), and their values.
    """
    if rule.by == BY_ARM:
        return [(decision, arm) for arm in arms]
    arm_values = values_of(rule.by, all_arms.attributes, all_arms.table.row_of_each(arms))
    return [
        (f"{decision}.{position}", value)
        for position, values in zip(places, arm_values, strict=True)
        for value in values
    ]


def values_of(field: str, attributes: AttributeSnapshot, rows: Rows) -> list[list[str]]:
    """The counted forms of the arms in these rows; none for an arm which is gone, or lacks the field."""
    return [
        [msgspec.json.encode((field, value)).decode() for _, value in values]
        for values in attributes.values_of(field, rows)
    ]


def field_value(counted: str) -> tuple[str, Value] | None:
    """The field and the value of a counted form; None for an arm."""
    return tuple(msgspec.json.decode(counted)) if counted.startswith("[") else None


def is_of(rule: RepeatsRule, counted: str) -> bool:
    """True if ``counted`` belongs to this rule, and not to another field of an earlier one."""
    pair = field_value(counted)
    return rule.by == (BY_ARM if pair is None else pair[0])


def over_cap(rule: RepeatsRule, counts: Mapping[str, int]) -> list[str]:
    """The arms, or values, shown too often to be eligible."""
    return [counted for counted, count in counts.items() if count >= rule.most and is_of(rule, counted)]


def left_of_values(rule: RepeatsRule, counts: Mapping[str, int]) -> list[tuple[Value, int]]:
    """The number of further exposures allowed for each value shown to a key."""
    pairs = ((field_value(counted), count) for counted, count in counts.items())
    return [(pair[1], max(rule.most - count, 0)) for pair, count in pairs if pair and pair[0] == rule.by]
