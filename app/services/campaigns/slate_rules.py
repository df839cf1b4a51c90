"""Rules of a slate campaign: how many arms of one slate may share a value of a field.

One rule makes the slates the bases of a partition matroid: arms of the same value are a group. With two rules
they would be no matroid, nor with an arm of several values, so neither is taken. An arm that lacks the field
is a group of its own: no rule keeps it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from app.errors import FieldPath, Invalid, NotFound
from app.filters.fields import Value, fields_of, kind_of
from app.services.campaigns.fold import MOST_NAMED
from app.services.catalogues.catalogues import Catalogue, Catalogues
from shortlist.slates.matroids import PartitionMatroid

Metadata = Mapping[str, Mapping[str, Any]]


class AtMostRule(msgspec.Struct, frozen=True):
    """At most ``count`` arms of one slate share a value of ``field``."""

    field: str
    count: int


class SlateRules(msgspec.Struct, frozen=True):
    """``at_most`` has one rule."""

    at_most: list[AtMostRule]

    @property
    def rule(self) -> AtMostRule:
        return self.at_most[0]


def partition(arms: Sequence[str], metadata: Metadata, rules: SlateRules, k: int) -> PartitionMatroid:
    """The slates that a rule allows. ``metadata`` is as ``given`` and ``stored`` return it.

    Groups are numbered in the order of their first arms.
    """
    rule, numbers = rules.rule, dict[object, int]()
    groups, limits = [], []
    for arm in arms:
        value = metadata[arm][rule.field] if arm in metadata else None
        kind = kind_of(value)
        label: object = arm if kind is None else (kind, value)  # else True would equal 1
        if label not in numbers:
            numbers[label] = len(numbers)
            limits.append(1 if kind is None else rule.count)
        groups.append(numbers[label])
    return PartitionMatroid(tuple(groups), tuple(limits), k)


def given(arms: Sequence[str], metadata: Metadata, rules: SlateRules) -> dict[str, dict[str, Value]]:
    """The value of the rule's field of each arm that has one, out of metadata as a body gives it.

    Raises Invalid: metadata of other arms, an arm with several values, a field that no arm has.
    """
    if not metadata.keys() <= set(arms):
        raise Invalid("metadata must be of arms of the campaign", path=("metadata",))
    name = rules.rule.field
    values = [fields_of((), metadata.get(arm, {})).get(name, []) for arm in arms]
    return _of_one_value(arms, values, name)


async def stored(
    catalogues: Catalogues, name: str, arms: Sequence[str], rules: SlateRules
) -> dict[str, dict[str, Value]]:
    """The same, out of the catalogue's arms as they are now.

    Raises NotFound (the catalogue), Invalid (also arms that it lacks).
    """
    field = rules.rule.field
    missing: list[int] = []

    async def read(catalogue: Catalogue) -> Sequence[Sequence[Value]]:
        catalogue.need_arms("a campaign with rules")
        snapshot = catalogue.index.snapshot()
        rows = [snapshot.table.rows_of([arm]) for arm in arms]
        missing[:] = [position for position, row in enumerate(rows) if not len(row)]
        if missing:
            raise NotFound("arms are missing")
        return [[value for _, value in snapshot.attributes.values_of(field, row)[0]] for row in rows]

    try:
        return _of_one_value(arms, await catalogues.use(name, read), field)
    except NotFound:
        if not missing:
            raise
    text = "this arm is not in the catalogue"
    raise Invalid.many([(("arms", position), text) for position in missing[:MOST_NAMED]])


def _of_one_value(
    arms: Sequence[str], values: Sequence[Iterable[Value]], field: str
) -> dict[str, dict[str, Value]]:
    distinct = [list({(kind_of(value), value): value for value in each}.values()) for each in values]
    errors: list[tuple[FieldPath, str]] = [
        (("arms", position), "has several values of the rule's field: groups must not overlap")
        for position, each in enumerate(distinct)
        if len(each) > 1
    ]
    if errors:
        raise Invalid.many(errors[:MOST_NAMED])
    metadata = {arm: {field: each[0]} for arm, each in zip(arms, distinct, strict=True) if each}
    if not metadata:
        raise Invalid("no arm has this field", path=("rules", "at_most", 0, "field"))
    return metadata
