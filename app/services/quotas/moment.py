"""The quotas of a bandit as a choice sees them: whose arms are out, and of which ones few are left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.indexes.snapshot import Snapshot
from app.indexes.without_rows import without_rows
from app.services.formats.left_out import NOT_KEPT, today
from app.services.quotas.left_out_blocks import LeftOutBlocks
from app.services.quotas.membership import Membership
from app.services.quotas.quota_share import QuotaShare
from shortlist.types import Rows

T = TypeVar("T")
MADE_KEPT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Few:
    """How much is left of some quotas: of each by its number."""

    members: Membership
    left: Mapping[int, int]

    def pairs(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32], Rows]:
        """Positions in ``rows`` and codes of their quotas (v,), and how much is left of each code.

        ``rows``: of a snapshot that the members follow.
        """
        places, codes = self.members.pairs(rows, [*self.left])
        return places, codes, np.array([*self.left.values()])


@dataclass(eq=False)
class Moment:
    """The quotas of a bandit at one moment.

    ``out``: of each, and False at last. ``scarce``: the numbers of those of which fewer than k are left, and
    how much that is.
    """

    blocks: LeftOutBlocks
    scarce: Callable[[int], Mapping[int, int]]
    lives: Sequence[QuotaShare]
    members: Membership
    out: NDArray[np.bool_]
    _made: dict[Snapshot, Snapshot] = field(default_factory=dict)
    _left_out: tuple[int, str] = -1, ""

    def left_out(self, *, ttl_ms: int) -> str:
        """The arms that are out, as a row of the log names them.

        What that needs is stored soon, for ``ttl_ms``. Not known where quotas came or went meanwhile.
        """
        if self.lives is not self.blocks.lives:
            return NOT_KEPT
        day = today()
        if self._left_out[0] != day:
            self._left_out = day, self.blocks.named(self.out, day=day, ttl_ms=ttl_ms)
        return self._left_out[1]

    def eligible(self, base: Snapshot) -> Snapshot:
        """``base`` without the arms of quotas that are out. Made once; then it costs nothing."""
        if not self.out.any():
            return base
        made = self._made.get(base)
        if made is None:
            if len(self._made) >= MADE_KEPT:
                self._made.clear()
            self.members.follow(base)
            made = self._made[base] = without_rows(base, self.members.are_out(self.out, base.table.rows))
        return made

    def standing(self, pins: Sequence[tuple[T, int]], whole: Snapshot) -> list[T]:
        """Those pins that quotas leave, the first ones first. Each has the row of its arm, -1: it is gone."""
        members, lives = self.members, self.lives
        members.follow(whole)
        standing, taken = list[T](), dict[int, int]()
        for pin, row in pins:
            own = [n for n in members.of(row) if lives[n].used_up] if row >= 0 else []
            if not any(self.out[n] or lives[n].left <= taken.get(n, 0) for n in own):
                taken |= {n: taken.get(n, 0) + 1 for n in own}
                standing.append(pin)
        return standing

    def few(self, k: int) -> Few | None:
        """The quotas of which fewer than k are left."""
        scarce = {} if k == 1 else self.scarce(k)
        return Few(self.members, scarce) if scarce else None
