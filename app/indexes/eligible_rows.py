"""The arms that a filter lets in, as rows of a table, and how they follow a catalogue that changes.

Rows, tombstones and entries of attributes are only ever appended. So what was found for an earlier view stays
true but for what was appended since, and only that is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.algorithms.types import Rows
from app.filters.attributes import AttributeView
from app.filters.filter import Filter
from app.indexes.table import ArmView


@dataclass(frozen=True, eq=False)
class EligibleRows:
    """The living rows that a filter lets in, at one moment. It never changes.

    Shapes: mask (K,), True for those rows. ``count`` is their number. ``table``, ``generation``, ``entries``
    and ``dead`` say which view of the arms and of their attributes this is of.
    """

    table: int
    generation: int
    entries: int
    dead: int
    mask: NDArray[np.bool_]
    count: int

    @cached_property
    def rows(self) -> Rows:
        """The rows, ascending (count,)."""
        return np.flatnonzero(self.mask)

    @cached_property
    def barred(self) -> NDArray[np.bool_]:
        """True for rows that are not let in or not alive (K,)."""
        return ~self.mask

    @property
    def memory_bytes(self) -> int:
        """Memory of all arrays, also of those that are not made yet."""
        return 2 * self.mask.nbytes + 8 * self.count

    def is_of(self, view: ArmView, attributes: AttributeView) -> bool:
        """Whether nothing has changed since."""
        seen = (self.table, self.generation, self.entries, self.dead, len(self.mask))
        return seen == (view.table, attributes.generation, attributes.entries, len(view.dead), view.rows)


def eligible_rows(
    wanted: Filter, view: ArmView, attributes: AttributeView, before: EligibleRows | None = None
) -> EligibleRows:
    """Find the living rows that ``wanted`` lets in. ``view`` and ``attributes`` are of one moment.

    ``before``: what was found for an earlier moment. Cost: ``work`` reads, and a copy of the mask.
    """
    if before is not None and before.is_of(view, attributes):
        return before
    before = _usable(before, view, attributes)
    mask = np.empty(view.rows, dtype=np.bool_)
    entries = dead = known = 0
    if before is not None:
        entries, dead, known = before.entries, before.dead, len(before.mask)
        mask[:known] = before.mask
    mask[known:] = wanted.matches((), {})  # of arms without any attribute
    if entries < attributes.entries:
        rows = attributes.rows[entries:]
        here = (rows >= 0) & (rows < view.rows)
        mask[rows[here]] = attributes.evaluate(wanted, entries)[here]  # of a row named twice the last counts
    mask[view.dead[dead:]] = False
    count = int(np.count_nonzero(mask))
    return EligibleRows(view.table, attributes.generation, attributes.entries, len(view.dead), mask, count)


def work(wanted: Filter, view: ArmView, attributes: AttributeView, before: EligibleRows | None) -> int:
    """About how many values ``eligible_rows`` reads."""
    before = _usable(before, view, attributes)
    return attributes.work(wanted, before.entries if before is not None else 0)


def _usable(before: EligibleRows | None, view: ArmView, attributes: AttributeView) -> EligibleRows | None:
    """``before``, if it is of an earlier moment of the same table and the same entries."""
    if before is None or (before.table, before.generation) != (view.table, attributes.generation):
        return None
    is_earlier = before.entries <= attributes.entries and before.dead <= len(view.dead)
    return before if is_earlier and len(before.mask) <= view.rows else None
