"""How much space the bounds leave to each partition.

A bound is for all partitions together, and a script sees one. So each process looks every second at what all
partitions hold (``app.replication.health``), and tells a script what the others leave to its partition.
Within its partition the script is exact, and a process knows what it wrote itself. What other processes wrote
to other partitions since the last look is not known: for that a part of every bound is kept back.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.platform.errors import QuotaReached, StoreFull
from app.storage.types.registry import KINDS, SIXTEENTHS, Kind

UNBOUNDED = 1 << 50


class SpaceBudget:
    """What this process lets each partition hold. ``bounds``: in bytes; a kind that is missing has none."""

    def __init__(self, bounds: Mapping[Kind, int]) -> None:
        self.bounds: Mapping[Kind, int] = {kind: bounds.get(kind, UNBOUNDED) for kind in KINDS}
        self._held: dict[Kind, list[int]] = {}
        self._total: dict[Kind, int] = dict.fromkeys(KINDS, 0)

    def seen(self, held: Mapping[Kind, list[int]]) -> None:
        """What each partition holds of each kind."""
        self._held = dict(held)
        self._total = {kind: sum(each) for kind, each in held.items()}

    def taken(self, kind: Kind, partition: int, held: int) -> None:
        """What the partition holds after a write. Raises StoreFull when it says that there was no space."""
        if held <= 0:
            raise full(kind)
        # Before the first look nothing is known of the others, and what this write adds is in that look.
        if self._held:
            self._total[kind] += held - self._held[kind][partition]
            self._held[kind][partition] = held

    @property
    def total(self) -> Mapping[Kind, int]:
        """What all partitions held at the last look, and what this process added."""
        return dict(self._total)

    def of(self, kind: Kind, partition: int, sixteenths: int = SIXTEENTHS) -> int:
        """The bytes that the partition may hold; none if that is negative. ``sixteenths``: of the bound."""
        others = self._total[kind] - (self._held[kind][partition] if self._held else 0)
        return self._most(kind, sixteenths) - others

    def left(self, kind: Kind) -> int:
        """The bytes that all partitions together may still take, by what is known here."""
        return self._most(kind, SIXTEENTHS) - self._total[kind]

    def _most(self, kind: Kind, sixteenths: int) -> int:
        bound = self.bounds[kind]
        # In integers and rounded down: no process allows a byte more than another.
        return bound - bound * (16 - sixteenths) // 16


def campaigns_full() -> QuotaReached:
    """The refusal of what makes a campaign larger, or of a new one. Nothing was changed."""
    return QuotaReached("campaigns take as much as they may (SHORTLIST_MAX_CAMPAIGNS_MB): delete some")


def moves_full() -> QuotaReached:
    """The refusal of a move with a map, which stays as long as its bandit. Nothing was changed."""
    return QuotaReached(
        "maps of moves take as much as they may (SHORTLIST_MAX_MOVES_MB): delete bandits that were moved, "
        'or move with "carry": "none"'
    )


def full(kind: Kind) -> StoreFull:
    """The refusal of what has no space. Nothing was changed, and what is held expires."""
    setting = f"SHORTLIST_MAX_{kind.upper()}_MB"
    return StoreFull(f"the store holds as many {KINDS[kind]} as it may ({setting}): some expire with time")
