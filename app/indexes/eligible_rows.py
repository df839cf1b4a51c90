"""The arms that a filter lets in, as rows of a table, and how they follow a catalogue that changes.

Rows, tombstones and entries of attributes are only ever appended. So what was found for an earlier view stays
true but for what was appended since, and only that is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import count as counting

import numpy as np
from numpy.typing import NDArray

from app.algorithms.types import Rows
from app.filters.attribute_view import AttributeView
from app.filters.filter import Filter
from app.indexes.table import ArmView

_NUMBERS = counting()


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Rows that a filter lets in that it did not before, and rows that it no longer lets in. Both ascend."""

    came: Rows
    went: Rows


@dataclass(frozen=True, eq=False)
class EligibleRows:
    """The living rows that a filter lets in, at one moment. It never changes.

    Shapes: mask (K,), True for those rows. ``count`` is their number. ``table``, ``generation``, ``entries``
    and ``dead`` say which view of the arms and of their attributes this is of. ``step`` is what changed since
    the one of number ``follows``, if it was made from that one.
    """

    table: int
    generation: int
    entries: int
    dead: int
    mask: NDArray[np.bool_]
    count: int
    follows: int = -1
    step: Change | None = None
    number: int = field(default_factory=lambda: next(_NUMBERS))

    @cached_property
    def rows(self) -> Rows:
        """The rows, ascending (count,)."""
        return np.flatnonzero(self.mask)

    def memory_bytes(self, *, listed: bool) -> int:
        """Memory of the arrays, also of those not made yet. ``listed``: its rows are asked for."""
        return self.mask.nbytes + (8 * self.count if listed else 0)

    def is_of(self, view: ArmView, attributes: AttributeView) -> bool:
        """Whether nothing has changed since."""
        seen = (self.table, self.generation, self.entries, self.dead, len(self.mask))
        return seen == (view.table, attributes.generation, attributes.entries, len(view.dead), view.rows)

    def since(self, before: EligibleRows) -> Change:
        """What changed since an earlier moment of the same table. Cost: K, or nothing if made from it."""
        if before is self:
            return _NOTHING
        if self.step is not None and self.follows == before.number:
            return self.step
        known = len(before.mask)
        differs = np.flatnonzero(self.mask[:known] != before.mask)
        later = np.flatnonzero(self.mask[known:]) + known
        is_in = self.mask[differs]
        return Change(np.concatenate((differs[is_in], later)), differs[~is_in])


def renumbered(before: EligibleRows, view: ArmView) -> EligibleRows | None:
    """The same rows by their numbers in this view, if its table took the place of theirs; some are gone.

    For ``since`` alone: nothing is known of what came since. Cost: K.
    """
    if view.renumbered is None or view.renumbered.table != before.table:
        return None
    rows = view.renumbered.places[before.rows]
    mask = np.zeros(view.rows, dtype=np.bool_)
    mask[rows[rows >= 0]] = True
    return EligibleRows(view.table, -1, 0, 0, mask, int(np.count_nonzero(mask)))


_NOTHING = Change(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def eligible_rows(
    wanted: Filter, view: ArmView, attributes: AttributeView, before: EligibleRows | None = None
) -> EligibleRows:
    """Find the living rows that ``wanted`` lets in. ``view`` and ``attributes`` are of one moment.

    ``before``: what was found for an earlier moment. Cost: ``work`` reads, and a copy of the mask.
    """
    if before is not None and before.is_of(view, attributes):
        return before
    before = _usable(before, view, attributes)
    if before is None and attributes.straight == view.rows == attributes.entries:
        return _of_all(attributes.evaluate(wanted), view, attributes)
    mask = np.empty(view.rows, dtype=np.bool_)
    entries = dead = known = 0
    if before is not None:
        entries, dead, known = before.entries, before.dead, len(before.mask)
        mask[:known] = before.mask
    if attributes.straight < view.rows:
        mask[known:] = wanted.matches((), {})  # of arms without any attribute
    if entries < attributes.entries:
        _write(mask, attributes, entries, attributes.evaluate(wanted, entries))
    if before is None:
        return _of_all(mask, view, attributes)
    mask[view.dead[dead:]] = False
    seen = view.table, attributes.generation, attributes.entries, len(view.dead)
    step = _step(before, mask, attributes.rows[entries:], view.dead[dead:])
    count = before.count + len(step.came) - len(step.went)
    return EligibleRows(*seen, mask, count, before.number, step)


def _of_all(mask: NDArray[np.bool_], view: ArmView, attributes: AttributeView) -> EligibleRows:
    """The living rows of those that ``mask`` (K,) lets in; the mask is theirs from now on."""
    mask[view.dead] = False
    seen = view.table, attributes.generation, attributes.entries, len(view.dead)
    return EligibleRows(*seen, mask, int(np.count_nonzero(mask)))


def work(wanted: Filter, view: ArmView, attributes: AttributeView, before: EligibleRows | None) -> int:
    """About how many values ``eligible_rows`` reads."""
    before = _usable(before, view, attributes)
    return attributes.work(wanted, before.entries if before is not None else 0)


def _write(
    mask: NDArray[np.bool_], attributes: AttributeView, first: int, answers: NDArray[np.bool_]
) -> None:
    """Write what was found for the entries from ``first`` on to their rows."""
    straight = min(attributes.straight, len(mask))
    if straight > first:
        mask[first:straight] = answers[: straight - first]
        answers, first = answers[straight - first :], straight
    if len(answers):
        rows = attributes.rows[first:]
        here = (rows >= 0) & (rows < len(mask))
        mask[rows[here]] = answers[here]  # of a row named twice the last counts


def _step(before: EligibleRows, mask: NDArray[np.bool_], described: NDArray[np.int32], died: Rows) -> Change:
    """What changed, when only rows that were described, that died and that are new can have changed."""
    known = len(before.mask)
    touched: Rows = np.concatenate((described, died))
    touched = touched[(touched >= 0) & (touched < known)]
    touched = touched[before.mask[touched] != mask[touched]]
    if len(touched) > 1:
        touched = np.unique(touched)  # a row may have been described and have died
    is_in = mask[touched]
    later = np.flatnonzero(mask[known:]) + known
    return Change(np.concatenate((touched[is_in], later)), touched[~is_in])


def _usable(before: EligibleRows | None, view: ArmView, attributes: AttributeView) -> EligibleRows | None:
    """``before``, if it is of an earlier moment of the same table and the same entries."""
    if before is None or (before.table, before.generation) != (view.table, attributes.generation):
        return None
    is_earlier = before.entries <= attributes.entries and before.dead <= len(view.dead)
    return before if is_earlier and len(before.mask) <= view.rows else None
