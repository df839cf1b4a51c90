"""The quotas of a bandit as a choice sees them, and how rows of the log name those used up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.caps.followed_membership import FollowedMembership
from app.caps.membership import Membership
from app.caps.rules import QuotaShare
from app.filtering.filtered_snapshot import without_rows
from app.indexes.snapshot import Snapshot
from app.records.left_out import BLOCK, MOST_BLOCKS, NOT_KEPT, Counted, block_name, packed, text_of, today
from app.storage.registry import WriteOnce
from shortlist.types import Rows

FEW_ROWS = 40  # are asked one by one for their quotas
REMEMBERED = 10_000  # rows whose quotas were asked for


class QuotasOfRows:
    """How much arms take of each quota, by its number."""

    def __init__(self) -> None:
        self._of_row: dict[int, dict[int, int]] = {}

    def clear(self) -> None:
        """Rows count for other quotas than before."""
        self._of_row.clear()

    def needed(self, members: Membership, rows: Sequence[int]) -> Mapping[int, int]:
        """How much these arms take of each quota; nothing those that are gone: -1."""
        if len(rows) == 1:
            return self._of_row.get(rows[0]) or self._quotas_of(members, rows[0])
        if len(rows) <= FEW_ROWS:
            return Counter(number for row in rows for number in self._quotas_of(members, row))
        return members.counted(rows)

    def _quotas_of(self, members: Membership, row: int) -> dict[int, int]:
        """The quotas of a row, and that it takes one of each."""
        # the arms that are shown are few of the catalogue
        found = self._of_row.get(row)
        if found is None:
            if len(self._of_row) >= REMEMBERED:
                self._of_row.clear()
            found = self._of_row[row] = dict.fromkeys(members.of(row), 1)
        return found


class QuotaBlockNames:
    """See the module. ``some``: is set when there is something to ``keep``. For the event loop.

    ``slots``: the quotas by their numbers. ``version``: how often they have changed.
    """

    def __init__(
        self, words: WriteOnce, bandit_uid: str, some: asyncio.Event, slots: Sequence[QuotaShare | None]
    ) -> None:
        self._words = words
        self._uid = bandit_uid
        self._some = some
        self._slots = slots
        self.version = 0
        self._blocks: dict[int, tuple[int, str]] = {}
        self._unkept: dict[str, tuple[bytes, int]] = {}

    def changed(self, number: int) -> None:
        """Another quota has this number now, or none."""
        self.version += 1
        self._blocks.pop(number // BLOCK, None)

    def named(self, out: NDArray[np.bool_], *, day: int, ttl_ms: int) -> str:
        """Which quotas are out, as a row of the log names them. Blocks that are new are stored soon."""
        numbers = np.flatnonzero(out)
        if len(np.unique(numbers // BLOCK)) > MOST_BLOCKS:
            return NOT_KEPT
        masks = dict[int, int]()
        for number in numbers.tolist():
            block, place = divmod(number, BLOCK)
            masks[block] = masks.get(block, 0) | 1 << place
        return text_of((self._block(block, day, ttl_ms), mask) for block, mask in masks.items())

    def _block(self, block: int, day: int, ttl_ms: int) -> str:
        """The name of a block of quotas for a day."""
        known = self._blocks.get(block)
        if known is not None and known[0] == day:
            return known[1]
        slots = self._slots[block * BLOCK : (block + 1) * BLOCK]
        rules = [None if live is None else live.quota.rule for live in slots]
        counted = [Counted(None, None) if rule is None else Counted(rule.filter, rule.arm) for rule in rules]
        name, data = packed(counted, day)
        self._blocks[block] = day, name
        self._unkept[name] = data, ttl_ms
        self._some.set()
        return name

    async def keep(self) -> None:
        """Store what rows of the log name. Raises Unavailable: it is tried again."""
        for name, (data, ttl_ms) in tuple(self._unkept.items()):
            await self._words.put(None, block_name(self._uid, name), data, ttl_ms=ttl_ms)
            self._unkept.pop(name, None)


T = TypeVar("T")
MADE_KEPT = 64
MOST_NAMED = 1_000  # arms that no quota bars, but that are not eligible


@dataclass(frozen=True, eq=False)
class RemainingQuotas:
    """How much is left of some quotas, of each by its number: a limit of one choice."""

    members: Membership
    left: Mapping[int, int]
    field: None = None  # an arm counts for quotas of any filter

    @cached_property
    def _codes(self) -> NDArray[np.int32]:
        codes = np.full(len(self.members.sizes), -1, dtype=np.int32)
        codes[[*self.left]] = np.arange(len(self.left))
        return codes

    def pairs(self, _: Snapshot, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32], Rows]:
        """Positions in ``rows`` and codes of their quotas (v,), and how much is left of each code."""
        places, numbers = self.members.quotas_among(rows, [*self.left])
        codes = self._codes[np.minimum(numbers, len(self._codes) - 1)]
        is_few = codes >= 0
        return places[is_few].astype(np.int32), codes[is_few], np.array([*self.left.values()])


@dataclass(eq=False)
class QuotaSnapshot:
    """The quotas of a bandit at one moment, which stays as it is.

    ``out``: of each number, and False at last.
    """

    blocks: QuotaBlockNames
    membership: FollowedMembership
    slots: Sequence[QuotaShare | None]
    out: NDArray[np.bool_]
    _made: dict[Snapshot, Snapshot] = field(default_factory=dict)
    _left_out: tuple[int, str] = -1, ""
    _hidden: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._version = self.blocks.version

    def left_out(self, *, ttl_ms: int) -> str:
        """The arms that are out, as a row of the log names them.

        What that needs is stored soon, for ``ttl_ms``. Not known where quotas came or went meanwhile.
        """
        if self._version != self.blocks.version:
            return NOT_KEPT
        day = today()
        if self._left_out[0] != day:
            self._left_out = day, self.blocks.named(self.out, day=day, ttl_ms=ttl_ms)
        return self._left_out[1]

    @cached_property
    def bars_nothing(self) -> bool:
        """Whether all arms are eligible that are known: while ``membership`` is current."""
        return not (self.out.any() or self.membership.members.beyond.any())

    @property
    def hidden(self) -> Sequence[str]:
        """Arms that were not eligible though no quota barred them: see ``FollowedMembership``."""
        return [*self._hidden]

    def known(self, base: Snapshot) -> Snapshot | None:
        """What ``eligible`` made before."""
        return self._made.get(base)

    async def eligible(self, base: Snapshot) -> Snapshot | None:
        """``base`` without the arms that are not eligible; None: it is out of date, and so are its rows.

        It is kept, as ``known``.
        """
        eligible = await self.membership.eligible(base, self.out)
        if eligible is None:
            return None
        if len(self._made) >= MADE_KEPT:
            self._made.clear()
        rows = base.table.rows
        made = self._made[base] = without_rows(base, ~eligible[:rows])
        hidden = self.membership.hidden[: MOST_NAMED + 1]
        self._hidden |= dict.fromkeys(base.table.ids[row] for row in hidden.tolist() if row < rows)
        return made

    async def standing(
        self, pins: Sequence[tuple[T, int]], whole: Snapshot, *, deferred: bool = False
    ) -> list[T] | None:
        """Those pins that quotas leave, the first ones first; None: ``whole`` is out of date.

        Each has the row of its arm, -1: it is gone.
        """
        if not await self.membership.settled(whole, np.array([row for _, row in pins], dtype=np.int64)):
            return None
        members, standing, taken = self.membership.members, list[T](), dict[int, int]()
        for pin, row in pins:
            own = {n: live for n in members.of(row) if (live := self.slots[n]) is not None and live.limits}
            is_left = all(
                live.most_of(deferred) > taken.get(n, 0) and not self.out[n] for n, live in own.items()
            )
            if is_left and not (row >= 0 and members.beyond.item(row)):
                taken |= {n: taken.get(n, 0) + 1 for n in own}
                standing.append(pin)
        return standing
