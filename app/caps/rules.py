"""What a quota says, as it is stored and answered, and the share of it that a process has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from app.filters.filter import Filter, parse
from app.platform.errors import Invalid
from app.records.records import pack, split_uid
from app.storage.types import QuotaTerms, Share, ShareAsked

MAX_MOST = 10**12
MAX_PER_S = 3_650 * 86_400
MIN_PER_S = 0.1  # a shorter window is over before the store has answered

QuotaCounts = Literal["shown", "rewarded"]
QuotaPace = Literal["none", "even"]


class QuotaRule(msgspec.Struct, frozen=True):
    """At most ``most`` times in a window, arms that ``filter`` lets in, or one ``arm``, are counted.

    Windows are multiples of ``per_s`` since ``from_ms``, else since 1970; without it there is one. The quota
    holds from ``from_ms`` until ``to_ms``. ``signal``: the one whose rewards are counted; None: all.
    """

    most: int
    filter: dict[str, Any] | None = None
    arm: str | None = None
    per_s: float | None = None
    counts: QuotaCounts = "shown"
    pace: QuotaPace = "none"
    from_ms: int | None = None
    to_ms: int | None = None
    signal: str | None = None

    def checked(self) -> QuotaRule:
        """Itself. Raises Invalid."""
        if (self.filter is None) == (self.arm is None):
            raise Invalid("a quota needs either a filter or an arm", path=("arm",))
        if self.filter is not None:
            parse(self.filter)
        if self.from_ms is not None and self.to_ms is not None and self.from_ms >= self.to_ms:
            raise Invalid("to must be after from", path=("to",))
        is_bounded = self.from_ms is not None and self.to_ms is not None
        if self.pace == "even" and self.per_s is None and not is_bounded:
            raise Invalid("pace needs a window: per_s, or from and to", path=("pace",))
        if self.pace == "even" and self.counts == "rewarded":
            raise Invalid("pace needs counts: shown", path=("pace",))
        if self.signal is not None and self.counts != "rewarded":
            raise Invalid('signal needs "counts": "rewarded"', path=("signal",))
        return self

    @property
    def identity(self) -> tuple[object, ...]:
        """What cannot be changed without counting from the start."""
        return self.filter, self.arm, self.per_s, self.counts, self.from_ms, self.signal

    def counts_reward_of(self, signal: str | None) -> bool:
        return self.counts == "rewarded" and self.signal in (None, signal)

    @property
    def parsed(self) -> Filter | None:
        return None if self.filter is None else parse(self.filter)

    def terms(self, uid: str) -> QuotaTerms:
        per_ms = 0 if self.per_s is None else max(1, round(1_000 * self.per_s))
        return QuotaTerms(uid, self.most, per_ms, self.from_ms or 0, self.to_ms or 0)


class BanditQuota(msgspec.Struct, frozen=True):
    """A quota of a bandit. ``uid``: of this incarnation."""

    id: str
    uid: str
    rule: QuotaRule

    @classmethod
    def of(cls, quota_id: str, data: bytes) -> BanditQuota:
        uid, rule = split_uid(data, QuotaRule)
        return cls(quota_id, uid, rule)

    @property
    def record(self) -> bytes:
        return self.uid.encode() + pack(self.rule)


NEVER = float("inf")
UNBOUNDED = 2**31 - 1
FOREVER_MS = 2**52
IDLE, LARGE = 10, 16  # a half goes back after so many idle rounds, or of so many times what a round uses


@dataclass(slots=True, eq=False)
class QuotaShare:
    """One quota as this process knows it. Times are monotonic seconds.

    ``size``: how much to hold; ``idle``: rounds since it was spent of; ``looked``: what was spent by the last
    round. ``holds``: whether this is a window of it; ``limits``: whether it bounds now what is shown.
    ``enough``: while no more than this is spent, nothing is lacking and nothing runs low.
    ``paced``: its place among those with an even pace, -1 of another. As last heard of the window:
    ``free``: what no process holds; ``fair``: what this one may hold at most, unless it needs it at once;
    ``deferrable``: what it may spend of for deferred decisions. They are ``UNBOUNDED`` where nothing was
    heard of the window.
    """

    quota: BanditQuota
    number: int
    # What every choice reads and writes stands together: in the same line of the processor's cache.
    spent: int = 0
    enough: int = -1
    window: int = -1
    holds: bool = True
    limits: bool = True
    ends_ms: int | None = None
    until: float = NEVER
    began: float = 0.0
    share: int = 0
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

    def __post_init__(self) -> None:
        self.hold(True)

    @property
    def left(self) -> int:
        return self.share - self.spent

    def hold(self, holds: bool) -> None:
        # every choice asks ``limits`` of each quota of its arms
        self.holds, self.limits = holds, holds and self.quota.rule.counts == "shown"

    def note_enough(self) -> None:
        """To be called whenever ``share``, ``size``, ``limits`` or ``holds`` has changed."""
        if not self.holds:
            self.enough = -1  # nothing is spent of it now
        else:
            self.enough = self.share - self.size // 2 - 1 if self.limits else UNBOUNDED

    def most_of(self, deferred: bool) -> int:
        """How much a choice may take of it as far as is known."""
        if not self.limits:
            return UNBOUNDED
        left = self.left if self.used_up else self.left + self.free
        return min(left, self.deferrable) if deferred else left

    def refresh(self, sent: ShareAsked, share: Share, moment: float, now_ms: int) -> None:
        """Take what the store answered. ``moment``: when it was asked; ``now_ms``: its time then."""
        if share.start_ms != self.window:
            self.begin_window(share.start_ms)
        # Not known: the quota was deleted, and this process has not heard of it yet.
        self.hold(share.known and share.holds)
        self.ends_ms = share.until_ms if share.until_ms < FOREVER_MS else None
        self.until = moment + (share.until_ms - now_ms) / 1_000 if share.known else NEVER
        self.began = moment + (share.start_ms - now_ms) / 1_000
        own = sent.spent if sent.window_ms == share.start_ms else 0
        self.share, self.granted, self.rewarded = share.mine, share.granted, share.rewarded
        # What the store counts has the part that this process reported; the rest was spent by others.
        self.others, self.reported = share.spent - own, own
        self.free, self.fair = max(share.most - share.granted, 0), share.fair
        self.deferrable = share.deferrable
        # It never grows beyond its part of what is left: else the last of a quota would lie with a process
        # that does not need it. Only a choice that waits asks for more.
        self.size = min(self.size, share.fair) if share.holds else 0
        counted = share.rewarded if self.quota.rule.counts == "rewarded" else share.granted
        # By what is granted, not by what is shown: what others hold may still be shown there, but not here.
        self.used_up = self.holds and counted >= share.most

    @property
    def is_out(self) -> bool:
        """Whether its arms are not eligible: it is used up, and nothing of the share is left."""
        # Where rewards are counted the share limits nothing, so none may be left to spend.
        return self.used_up and self.holds and (self.quota.rule.counts == "rewarded" or self.left <= 0)

    def shrink(self) -> None:
        """A round is over: hold less if little was spent in it."""
        used, self.looked = self.spent - self.looked, self.spent
        self.idle = 0 if used else self.idle + 1
        if self.idle >= IDLE or used < self.size // LARGE:
            self.size //= 2

    def end_window(self) -> None:
        """Its window is over, or will be soon: nothing more is spent in it. Of the next nothing is known."""
        self.until, self.share, self.used_up = NEVER, 0, False
        self.hold(True)
        self.free = self.fair = self.deferrable = UNBOUNDED

    def begin_window(self, start_ms: int) -> None:
        """Another window has begun."""
        self.window, self.spent, self.reported, self.looked = start_ms, 0, 0, 0


Taken = Sequence[tuple[QuotaShare, int, int]]
"""How much was spent of each quota, and in which window."""
