"""What a process knows of the quotas of one bandit: the rules, the arms of each, and which are closed.

A quota is closed until a time, by the clock of the store: it is used up, or ahead of the line of an even
pace. The store numbers all changes of that. A process hears of them once a second, and with every answer, so
it knows everything up to the last change that it heard.

The time of the store is counted on, by a clock that never jumps, from when its answer was read: so it is
never ahead, and no choice comes before a quota is open again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from app.exposure_limits.closed_arms import ClosedArms, QuotaMembers
from app.exposure_limits.rules import BanditQuota
from app.platform.deadlines import yield_to_others
from app.storage.exposure_limits import change_order
from app.storage.types import QuotaChanges, QuotasNow

FEW = 100  # what is left of quotas that a list might use up
NEVER = 1 << 53


class KnownQuotas:
    """See the module. For the event loop. ``number``: of the last change. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.by_id: dict[str, BanditQuota] = {}
        self.members = QuotaMembers()
        self.number = ""
        self._heard = 0, 0.0  # the time of the store in ms, and when it was heard
        self._closed: dict[str, int] = {}  # until when
        self._opens_ms = NEVER  # the first of them, or before
        self._left: dict[str, tuple[int, int]] = {}  # how many of those with few, and until when that holds
        self._now: ClosedArms | None = None

    @property
    def now_ms(self) -> int:
        """About the time of the store."""
        heard_ms, heard_at = self._heard
        return heard_ms + int(1_000 * (self._clock() - heard_at))

    async def replace(self, everything: QuotasNow) -> None:
        """Know these quotas alone."""
        for name, record in everything.records.items():
            await yield_to_others()
            self._put(name, record)
        # Others may have been heard of meanwhile. From here on nobody comes between.
        for name in self.by_id.keys() | everything.records.keys():
            self._put(name, everything.records.get(name, b""))
        self.number, self._closed, self._opens_ms = everything.number, {}, NEVER
        self._heard = everything.now_ms, self._clock()
        for name, until_ms in everything.closed.items():
            self._close(name, until_ms)

    def hear(self, heard: QuotaChanges, after: str) -> None:
        """Know of what has changed since ``after``; of changes that are missing the next poll hears."""
        self._heard = heard.now_ms, self._clock()
        if heard.changes is None and after == self.number:
            self.number = ""
        for change in heard.changes or ():
            # Answers of questions that were asked side by side tell the same changes.
            if self.number and change_order(change.number) > change_order(self.number):
                self.number = change.number
                if change.record is not None:
                    self._put(change.quota, change.record)
                self._close(change.quota, change.until_ms)

    def _put(self, name: str, record: bytes) -> None:
        """``record`` b"": there is none of this name any more."""
        before = self.by_id.get(name)
        if before is not None and before.record == record:
            return
        if before is not None:
            self.members.remove(self.by_id.pop(name))
        self._left.pop(name, None)
        self._now = None
        if record:
            quota = self.by_id[name] = BanditQuota.of(name, record)
            self.members.add(quota)
            self.note_left(quota, quota.rule.most, NEVER)

    def _close(self, name: str, until_ms: int) -> None:
        self._closed.pop(name, None)
        self._now = None
        if until_ms > 0 and name in self.by_id:
            self._closed[name] = until_ms
            self._opens_ms = min(self._opens_ms, until_ms)

    def closed(self) -> ClosedArms:
        """The quotas that are closed now. Cost: nothing but after a change, or when one opens."""
        now_ms = self.now_ms
        if self._opens_ms <= now_ms:
            self._closed = {name: until_ms for name, until_ms in self._closed.items() if until_ms > now_ms}
            self._opens_ms, self._now = min(self._closed.values(), default=NEVER), None
        if self._now is None:
            self._now = ClosedArms(
                self.members, self.number, now_ms, {name: self.by_id[name] for name in self._closed}
            )
        return self._now

    def few(self, places: int) -> Mapping[BanditQuota, int]:
        """How many may be shown, as last heard, of open quotas of which a list may take more."""
        now_ms, few = self.now_ms, dict[BanditQuota, int]()
        for name, (heard, until_ms) in [*self._left.items()] if places > 1 else ():
            quota, left = self.by_id[name], heard
            if until_ms <= now_ms:  # a window has begun
                left = quota.rule.most
                self.note_left(quota, left, NEVER)
            if left < places and name not in self._closed and quota.value is not None:
                few[quota] = left
        return few

    def note_left(self, quota: BanditQuota, left: int, until_ms: int) -> None:
        self._left.pop(quota.id, None)
        if quota.rule.counts == "shown" and left < FEW:
            self._left[quota.id] = left, until_ms
