"""Filters and rules in the bodies of requests."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.fields import Identifier
from app.api.request_limits import MAX_AT_MOST, MAX_K
from app.api.strict_json import StrictModel
from app.filters.fields import MAX_FIELD_CHARS
from app.filters.filter import Filter, parse
from app.platform.errors import FieldPath, Invalid
from app.selection.list_limits import AtMost
from app.selection.rules import OVER_FEATURES, Diverse, Pin, Rules

# Operators are checked by ``parse``: its errors name the place within the filter.
FilterBody = Annotated[
    dict[str, Any], Field(description="which arms are eligible: conditions on their metadata")
]


class PinBody(StrictModel):
    """``place`` is counted from 1."""

    arm: Identifier
    place: Annotated[int, Field(ge=1, le=MAX_K)]


class AtMostBody(StrictModel):
    """At most ``count`` arms of one choice share a value of ``field``."""

    field: Annotated[str, Field(min_length=1, max_length=MAX_FIELD_CHARS)]
    count: Annotated[int, Field(ge=1, le=MAX_K)]


class DiverseBody(StrictModel):
    """Each place takes the arm of largest (1 - weight) x score, scaled to [0, 1] over the best arms, less
    weight x its largest likeness to those above: the cosine of their features, or 1 if they share a value of
    the field ``over``.
    """

    weight: Annotated[float, Field(ge=0, le=1)]
    over: Annotated[str, Field(min_length=1, max_length=MAX_FIELD_CHARS)] = OVER_FEATURES


class RulesBody(StrictModel):
    pin: list[PinBody] = Field(default_factory=list, max_length=MAX_K, fail_fast=True)
    at_most: list[AtMostBody] = Field(default_factory=list, max_length=MAX_AT_MOST, fail_fast=True)
    diverse: DiverseBody | None = None


def parsed_filter(body: dict[str, Any] | None) -> Filter | None:
    """The filter of a request. Raises Invalid."""
    return None if body is None else parse(body)


def rules(body: RulesBody, k: int) -> Rules:
    """The rules of a choice of ``k`` arms. Raises Invalid, naming every rule which cannot be kept."""
    errors: list[tuple[FieldPath, str]] = []
    arms: set[str] = set()
    positions: set[int] = set()
    for index, pin in enumerate(body.pin):
        where = ("rules", "pin", index)
        if pin.arm in arms:
            errors.append(((*where, "arm"), "this arm is pinned twice"))
        if pin.place in positions:
            errors.append(((*where, "place"), "another arm is pinned to this place"))
        if pin.place > k:
            errors.append(((*where, "place"), f"must not be greater than k, {k}"))
        arms.add(pin.arm)
        positions.add(pin.place)
    fields = [limit.field for limit in body.at_most]
    errors += [
        (("rules", "at_most", index, "field"), "this field is limited twice")
        for index, name in enumerate(fields)
        if name in fields[:index]
    ]
    if errors:
        raise Invalid.many(errors)
    return Rules(
        [Pin(pin.arm, pin.place) for pin in body.pin],
        [AtMost(limit.field, limit.count) for limit in body.at_most],
        None if body.diverse is None else Diverse(body.diverse.weight, body.diverse.over),
    )
