"""Rules of one choice: arms that stand at given places, and how many arms may share a value of a field.

The arms are taken in the order of the policy. One is passed over when as many as are allowed have one of its
values already. Pinned arms count first. An arm that lacks the field is never passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.algorithms.types import NO_ROWS, MipsSolver, Rows, TopK, Vector
from app.filters.attribute_view import AttributeView, Labelled
from app.filters.filter import equals
from app.indexes.eligible_rows import eligible_rows
from app.services.catalogues.learner_view import LearnerView

MORE = 4

Values = Sequence[tuple[str, Labelled]]  # field and value, of the fields that are limited


@dataclass(frozen=True, slots=True)
class Pin:
    """``arm`` stands at ``place``, counted from 1."""

    arm: str
    place: int


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most ``count`` arms of one choice share a value of ``field``."""

    field: str
    count: int


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of one choice."""

    pins: Sequence[Pin] = ()
    at_most: Sequence[AtMost] = ()

    @property
    def pinned(self) -> Sequence[str]:
        return [pin.arm for pin in self.pins]


NO_RULES = Rules()


@dataclass(slots=True)
class Limits:
    """How many arms of each value were taken so far. For one choice."""

    at_most: Sequence[AtMost]
    attributes: AttributeView
    taken: Counter[tuple[str, Labelled]] = field(default_factory=Counter)
    _most: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._most = {rule.field: rule.count for rule in self.at_most}

    def take(self, rows: Rows) -> None:
        """Count ``rows`` without asking."""
        for values in self.values(rows):
            self.count(values)

    def take_allowed(self, rows: Rows, most: int) -> list[int]:
        """Take ``rows`` in their order, each if it is allowed, at most ``most``; returns their places."""
        places: list[int] = []
        for place, values in enumerate(self.values(rows)):
            if len(places) == most:
                break
            if self.allows(values):
                self.count(values)
                places.append(place)
        return places

    def copy(self) -> Limits:
        return Limits(self.at_most, self.attributes, self.taken.copy())

    def full(self) -> Iterator[tuple[str, Labelled]]:
        """Field and value of every limit that is reached."""
        return (entry for entry, count in self.taken.items() if count >= self._most[entry[0]])

    def count(self, values: Values) -> None:
        """Count an arm of these values."""
        self.taken.update(values)

    def allows(self, values: Values) -> bool:
        """Whether an arm of these values may be taken next."""
        return all(self.taken[entry] < self._most[entry[0]] for entry in values)

    def values(self, rows: Rows) -> Sequence[Values]:
        """(field, value) of each of ``rows``."""
        columns = [(rule.field, self.attributes.values_of(rule.field, rows)) for rule in self.at_most]
        return [
            [(name, value) for name, column in columns for value in column[place]]
            for place in range(len(rows))
        ]


@dataclass(frozen=True, slots=True)
class LimitedSolver:
    """The best arms of ``solver`` that the limits allow; it is asked for more while too few are."""

    view: LearnerView
    solver: MipsSolver
    limits: Limits

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        ask = k
        while True:
            found = self.solver.search(query, ask, exclude)
            places = self.limits.copy().take_allowed(found.rows, k)
            if len(places) == k or len(found.rows) < ask or ask >= self.view.size:
                return TopK(found.rows[places], found.scores[places], found.exact)
            ask = min(MORE * ask, self.view.size)


def barred_by(limits: Limits, view: LearnerView) -> NDArray[np.bool_]:
    """True for rows that the limits allow no longer. Shapes: (K,). Cost: K for each limit that is reached."""
    arms = view.view
    barred = np.zeros(arms.rows, dtype=np.bool_)
    for name, (_, value) in limits.full():
        barred |= eligible_rows(equals(name, value), arms, limits.attributes).mask
    return barred


def allowed_after(limits: Limits, view: LearnerView, rows: Rows) -> Callable[[int | None], NDArray[np.bool_]]:
    """A function that counts the row at the place that was drawn last, and tells which ``rows`` may be next.

    For ``softmax.choose_within``. Shapes: rows (n,) -> (n,). Cost of a call: that of ``barred_by``.
    """

    def allowed(place: int | None) -> NDArray[np.bool_]:
        if place is not None:
            limits.take(rows[place : place + 1])
        return ~barred_by(limits, view)[rows]

    return allowed
