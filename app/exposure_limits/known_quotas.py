"""One process's knowledge of the quotas of one bandit: the rules, the arms of each, and the closed ones.

A quota is closed until a time, by the clock of the store: it is used up, or ahead of the line of an even
pace. The store numbers all such changes. A process hears of them once a second, and with every answer, so its
knowledge is complete up to the last heard change.

The time of the store is counted on, by a steady clock, from the moment its answer was read: so the time is
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
        self._store_time = 0, 0.0  # the time of the store in ms, and when it was heard
        self._closed: dict[str, int] = {}  # until when
        self._opens_ms = NEVER  # the first of them, or before
        self._left: dict[str, tuple[int, int]] = {}  # how many of those with few, and until when that holds
        self._closed_arms: ClosedArms | None = None

    @property
    def now_ms(self) -> int:
        """About the time of the store."""
        heard_ms, heard_at = self._store_time
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
        self._store_time = everything.now_ms, self._clock()
        for name, until_ms in everything.closed.items():
            self._close(name, until_ms)

    def hear(self, changes: QuotaChanges, after: str) -> None:
        """Take over the changes since ``after``; missing changes come with the next poll."""
        self._store_time = changes.now_ms, self._clock()
        if changes.changes is None and after == self.number:
            self.number = ""
        for change in changes.changes or ():
            # Answers to simultaneous questions tell the same changes.
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
        self._closed_arms = None
        if record:
            quota = self.by_id[name] = BanditQuota.of(name, record)
            self.members.add(quota)
            self.note_left(quota, quota.rule.most, NEVER)

    def _close(self, name: str, until_ms: int) -> None:
        self._closed.pop(name, None)
        self._closed_arms = None
        if until_ms > 0 and name in self.by_id:
            self._closed[name] = until_ms
            self._opens_ms = min(self._opens_ms, until_ms)

    def closed(self) -> ClosedArms:
        """The quotas closed now. Cost: nothing but after a change, or when one opens."""
        now_ms = self.now_ms
        if self._opens_ms <= now_ms:
            self._closed = {name: until_ms for name, until_ms in self._closed.items() if until_ms > now_ms}
            self._opens_ms, self._closed_arms = min(self._closed.values(), default=NEVER), None
        if self._closed_arms is None:
            self._closed_arms = ClosedArms(
                self.members, self.number, now_ms, {name: self.by_id[name] for name in self._closed}
            )
        return self._closed_arms

    def nearly_closed(self, places: int) -> Mapping[BanditQuota, int]:
        """The exposures left, as last heard, of open quotas with fewer left than a list may take."""
        now_ms, nearly_closed = self.now_ms, dict[BanditQuota, int]()
        for name, (last_left, until_ms) in [*self._left.items()] if places > 1 else ():
            quota, left = self.by_id[name], last_left
            if until_ms <= now_ms:  # a window has begun
                left = quota.rule.most
                self.note_left(quota, left, NEVER)
            if left < places and name not in self._closed and quota.value is not None:
                nearly_closed[quota] = left
        return nearly_closed

    def note_left(self, quota: BanditQuota, left: int, until_ms: int) -> None:
        self._left.pop(quota.id, None)
        if quota.rule.counts == "shown" and left < FEW:
            self._left[quota.id] = left, until_ms
