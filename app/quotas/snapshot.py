"""The quotas of a bandit as a choice sees them, and how rows of the log name those used up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.filtering.filtered_snapshot import without_rows
from app.indexes.snapshot import Snapshot
from app.quotas.members import QuotaMembers
from app.quotas.share import QuotaShare
from app.records.left_out import BLOCK, MOST_BLOCKS, NOT_KEPT, Counted, block_name, packed, text_of, today
from app.storage.registry import WriteOnce

SNAPSHOTS_KEPT = 64

T = TypeVar("T")


class QuotaBlockNames:
    """See the module. ``unstored``: is set when there is something to ``keep``. For the event loop.

    ``slots``: the quotas by their numbers. ``version``: how often they have changed.
    """

    def __init__(
        self, words: WriteOnce, bandit_uid: str, unstored: asyncio.Event, slots: Sequence[QuotaShare | None]
    ) -> None:
        self._words = words
        self._uid = bandit_uid
        self._unstored = unstored
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
            block, bit = divmod(number, BLOCK)
            masks[block] = masks.get(block, 0) | 1 << bit
        return text_of((self._block(block, day, ttl_ms), mask) for block, mask in masks.items())

    def _block(self, block: int, day: int, ttl_ms: int) -> str:
        """The name of a block of quotas for a day."""
        named = self._blocks.get(block)
        if named is not None and named[0] == day:
            return named[1]
        slots = self._slots[block * BLOCK : (block + 1) * BLOCK]
        rules = [None if share is None else share.quota.rule for share in slots]
        counted = [Counted(None, None) if rule is None else Counted(rule.filter, rule.arm) for rule in rules]
        name, data = packed(counted, day)
        self._blocks[block] = day, name
        self._unkept[name] = data, ttl_ms
        self._unstored.set()
        return name

    async def keep(self) -> None:
        """Store what rows of the log name. Raises Unavailable: it is tried again."""
        for name, (data, ttl_ms) in tuple(self._unkept.items()):
            await self._words.put(None, block_name(self._uid, name), data, ttl_ms=ttl_ms)
            self._unkept.pop(name, None)


@dataclass(eq=False)
class QuotaSnapshot:
    """The quotas of a bandit at one moment, which stays as it is.

    ``out``: of each number, and False at last. ``bars_nothing``: whether all arms are eligible.
    """

    blocks: QuotaBlockNames
    members: QuotaMembers
    slots: Sequence[QuotaShare | None]
    out: NDArray[np.bool_]
    bars_nothing: bool = field(init=False)
    _eligible: dict[Snapshot, Snapshot] = field(default_factory=dict)
    _left_out: tuple[int, str] = -1, ""

    def __post_init__(self) -> None:
        self._version = self.blocks.version
        self.bars_nothing = not self.out.any()  # every choice asks

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

    async def eligible(self, base: Snapshot) -> Snapshot:
        """``base`` without the arms that are not eligible.

        Cost: see ``QuotaMembers.counting``, once. Raises Unavailable: too many long computations at once.
        """
        if (before := self._eligible.get(base)) is not None:
            return before
        barred = await self.members.counting(base, np.flatnonzero(self.out).tolist())
        if len(self._eligible) >= SNAPSHOTS_KEPT:
            self._eligible.clear()
        eligible = self._eligible[base] = without_rows(base, barred)
        return eligible

    def eligible_pins(self, pins: Sequence[tuple[T, int]], whole: Snapshot) -> list[T]:
        """Those pins that quotas leave, the first ones first. Each has the row of its arm, -1: it is gone."""
        eligible, pinned = list[T](), Counter[int]()
        for (pin, _), numbers in zip(
            pins, self.members.quotas_of(whole, [row for _, row in pins]), strict=True
        ):
            shares = [
                share for number in numbers if (share := self.slots[number]) is not None and share.limits
            ]
            if all(share.most_left > pinned[share.number] and not self.out[share.number] for share in shares):
                pinned.update(share.number for share in shares)
                eligible.append(pin)
        return eligible
