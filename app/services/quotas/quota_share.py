"""What one process knows of one quota, and its share of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.services.quotas.quota_rules import BanditQuota

NEVER = float("inf")
UNBOUNDED = 2**31 - 1
IDLE, LARGE = 10, 16  # a half goes back after so many idle rounds, or of so many times what a round uses


@dataclass(slots=True, eq=False)
class QuotaShare:
    """One quota as this process knows it. Times are monotonic seconds.

    ``size``: how much to hold; ``idle``: rounds since it was spent of; ``looked``: what was spent by the last
    round. ``paced``: its place among those with an even pace, -1 of another. As last heard of the window:
    ``free``: what no process holds; ``fair``: what this one may hold at most, unless it needs it at once;
    ``deferrable``: what it may spend of for deferred decisions. They are ``UNBOUNDED`` where nothing was
    heard of the window.
    """

    quota: BanditQuota
    number: int
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
    looked: int = 0
    paced: int = -1
    free: int = UNBOUNDED
    fair: int = UNBOUNDED
    deferrable: int = UNBOUNDED

    @property
    def left(self) -> int:
        return self.share - self.spent

    @property
    def limits(self) -> bool:
        """Whether it limits how much is shown now."""
        return self.holds and self.quota.rule.counts == "shown"

    def most_of(self, deferred: bool) -> int:
        """How much a choice may take of it as far as is known."""
        if not self.limits:
            return UNBOUNDED
        left = self.left if self.used_up else self.left + self.free
        return min(left, self.deferrable) if deferred else left

    def shrink(self) -> None:
        """A round is over: hold less if little was spent in it."""
        used, self.looked = self.spent - self.looked, self.spent
        self.idle = 0 if used else self.idle + 1
        if self.idle >= IDLE or used < self.size // LARGE:
            self.size //= 2

    def end_window(self) -> None:
        """Its window is over, or will be soon: nothing more is spent in it. Of the next nothing is known."""
        self.until, self.share, self.used_up, self.holds = NEVER, 0, False, True
        self.free = self.fair = self.deferrable = UNBOUNDED

    def begin_window(self, start_ms: int) -> None:
        """Another window has begun."""
        self.window, self.spent, self.reported, self.looked = start_ms, 0, 0, 0


Taken = Sequence[tuple[QuotaShare, int, int]]
"""How much was spent of each quota, and in which window."""
