"""What one process knows of one quota, and its share of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.services.quotas.quota_rules import BanditQuota

NEVER = float("inf")


@dataclass(slots=True, eq=False)
class QuotaShare:
    """One quota as this process knows it. Times are monotonic seconds.

    ``size``: how much to hold; ``idle``: rounds since it was spent of. ``paced``: its place among those with
    an even pace, -1 of another.
    """

    quota: BanditQuota
    number: int = 0
    holds: bool = True
    window: int = -1
    ends_ms: int | None = None
    until: float = NEVER
    began: float = 0.0
    share: int = 0
    spent: int = 0
    reported: int = 0
    others: int = 0
    granted: int = 0
    rewarded: int = 0
    used_up: bool = False
    size: int = 0
    idle: int = 0
    paced: int = -1

    @property
    def left(self) -> int:
        return self.share - self.spent

    def end_window(self) -> None:
        """Its window is over, or will be soon: nothing more is spent in it. Of the next nothing is known."""
        self.until, self.share, self.used_up, self.holds = NEVER, 0, False, True

    def begin_window(self, start_ms: int) -> None:
        """Another window has begun."""
        self.window, self.spent, self.reported = start_ms, 0, 0


Taken = Sequence[tuple[QuotaShare, int, int]]
"""How much was spent of each quota, and in which window."""
