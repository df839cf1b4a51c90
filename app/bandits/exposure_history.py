"""What is stored of the arms that a key was shown, for frequency caps: names, and what each counts as.

A rule by arm counts the arm's id. A rule by a field counts each value of the field, written as [field, value]
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

MOST_KEPT = 1_000  # of each key


def kept_of(
    rule: RepeatsRule,
    whole: Snapshot,
    decision: str,
    arms: Sequence[str],
    places: Iterable[int] | None = None,
) -> list[tuple[str, str]]:
    """(name, what it counts as) of arms that stand at ``places`` of a decision, from 0; None: at all of them.

    The same arm of the same decision has the same names. Cost: O(arms), and their values.
    """
    if rule.by == BY_ARM:
        return [(decision, arm) for arm in arms]
    values = values_of(rule.by, whole.attributes, whole.table.row_of_each(arms))
    return [
        (f"{decision}.{place}", value)
        for place, each in zip(range(len(arms)) if places is None else places, values, strict=True)
        for value in each
    ]


def values_of(field: str, attributes: AttributeSnapshot, rows: Rows) -> list[list[str]]:
    """What the arms of these rows count as; nothing of an arm that is gone, or lacks the field."""
    return [
        [msgspec.json.encode((field, value)).decode() for _, value in each]
        for each in attributes.values_of(field, rows)
    ]


def value_of(kept: str) -> tuple[str, Value] | None:
    """The field and the value that it is; None of an arm."""
    return tuple(msgspec.json.decode(kept)) if kept.startswith("[") else None


def left_of_values(rule: RepeatsRule, counts: Mapping[str, int]) -> list[tuple[Value, int]]:
    """How many more arms of each value a key may be shown. ``counts``: of what is kept."""
    pairs = ((value_of(kept), count) for kept, count in counts.items())
    return [(named[1], max(rule.most - count, 0)) for named, count in pairs if named and named[0] == rule.by]
