"""What a quota says, as it is stored and answered, and the share of it that a process has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

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


class QuotaArrays:
    """What choices read of all quotas at once, by their numbers, and write: ``spent``.

    ``used_up``, ``held_back``: whether arms of a quota are not eligible now; ``share``: of this process, and
    ``deferrable``: of deferred decisions, both where a quota limits. ``enough``: while no more than this is
    spent, nothing is lacking and nothing runs low. ``windows``: how many have begun, of all quotas.
    """

    def __init__(self) -> None:
        # One place is beyond all numbers: an array of none would need a case of its own.
        self.used_up = np.zeros(1, dtype=np.bool_)
        self.held_back = np.zeros(1, dtype=np.bool_)
        self.share = np.full(1, UNBOUNDED, dtype=np.int64)
        self.deferrable = np.full(1, UNBOUNDED, dtype=np.int64)
        # Choices read and write a few of these, one by one: in an array that takes three times as long.
        self.spent = np.zeros(1, dtype=np.int64).data
        self.enough = [UNBOUNDED]
        self.windows = 0

    @property
    def out(self) -> NDArray[np.bool_]:
        return self.used_up | self.held_back

    @property
    def left(self) -> NDArray[np.int64]:
        return self.share - np.asarray(self.spent, dtype=np.int64)

    def grow(self, number: int) -> None:
        """Have a place for this number."""
        # Half as much again, so that the arrays are copied O(log n) times while quotas are added one by one.
        more = max(number + 2, 3 * number // 2) - len(self.share)
        self.used_up = np.pad(self.used_up, (0, more))
        self.held_back = np.pad(self.held_back, (0, more))
        self.share = np.pad(self.share, (0, more), constant_values=UNBOUNDED)
        self.deferrable = np.pad(self.deferrable, (0, more), constant_values=UNBOUNDED)
        self.spent = np.pad(self.spent, (0, more)).data
        self.enough += [UNBOUNDED] * more

    def clear(self, number: int) -> None:
        """No quota has this number now. ``held_back`` is of the pace."""
        self.used_up[number] = False
        self.share[number] = self.deferrable[number] = self.enough[number] = UNBOUNDED

    def short(self, left: NDArray[np.int64], wanted: NDArray[np.int32]) -> NDArray[np.int64]:
        """Numbers of the quotas that are not out, of which less is ``left`` than is ``wanted`` (n,)."""
        count = min(len(left), len(wanted))
        # Arms of these are not eligible at all, so no list can take any of them.
        return np.flatnonzero((left[:count] < wanted[:count]) & ~self.out[:count])

    def note(self, live: QuotaShare) -> bool:
        """Take a quota as it is now; whether its arms became eligible by that, or no longer are."""
        number, is_out = live.number, live.is_out
        has_changed = bool(is_out != self.used_up[number])
        self.used_up[number] = is_out
        self.share[number] = live.share if live.limits else UNBOUNDED
        self.deferrable[number] = live.deferrable if live.limits else UNBOUNDED
        enough = live.share - live.size // 2 - 1 if live.limits else UNBOUNDED
        self.enough[number] = enough if live.holds else -1  # nothing is spent of it now
        return has_changed


@dataclass(slots=True, eq=False)
class QuotaShare:
    """One quota as this process knows it. Times are monotonic seconds.

    ``size``: how much to hold; ``idle``: rounds since it was spent of; ``looked``: what was spent by the last
    round. ``holds``: whether this is a window of it; ``limits``: whether it bounds now what is shown.
    ``ordinal``: of its window among those of all quotas, in the order in which they began.
    ``paced``: its place among those with an even pace, -1 of another. As last heard of the window:
    ``free``: what no process holds; ``fair``: what this one may hold at most, unless it needs it at once;
    ``deferrable``: what it may spend of for deferred decisions. They are ``UNBOUNDED`` where nothing was
    heard of the window.
    """

    quota: BanditQuota
    number: int
    arrays: QuotaArrays
    window: int = -1
    ordinal: int = 0
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
        self.begin_window(-1)

    @property
    def spent(self) -> int:
        """Not of a quota that was deleted: another one may have its number."""
        return self.arrays.spent[self.number]

    @property
    def left(self) -> int:
        return self.share - self.spent

    def hold(self, holds: bool) -> None:
        self.holds, self.limits = holds, holds and self.quota.rule.counts == "shown"

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
        self.window, self.reported, self.looked = start_ms, 0, 0
        self.arrays.windows += 1
        self.arrays.spent[self.number], self.ordinal = 0, self.arrays.windows


class Taken(msgspec.Struct, frozen=True):
    """How much was spent of each quota, by its number, when ``windows`` had begun."""

    counts: Mapping[int, int]
    windows: int
