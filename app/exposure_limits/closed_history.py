"""The quotas closed at the time of a choice, by the row of its decision.

A row names the last change known to its process, and its time. The store keeps changes as long as rows, and
at most so many; each has the state before. So from the quotas closed now the changes are followed back, or on
again, to the change named by the next row.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.exposure_limits.rules import BanditQuota, QuotaRule
from app.platform.deadlines import yield_to_others
from app.storage.exposure_limits import QuotaStore, change_order
from app.storage.types import QuotasNow

MOST_NAMED = 1_000  # quotas that were closed: where there are more it is not known which


class ClosedHistory:
    """See the module. At any time the history stands at one change. For one reader after the other."""

    def __init__(self, store: QuotaStore, bandit_uid: str) -> None:
        self._store = store
        self._uid = bandit_uid
        self._number = ""
        self._until: dict[str, int] = {}
        self._records: dict[str, bytes] = {}
        self._rules: dict[tuple[str, bytes], QuotaRule] = {}

    async def closed(self, number: str, at_ms: int) -> Sequence[QuotaRule] | None:
        """The quotas closed after this change, at this time; None: no longer known.

        Cost: a round trip for each thousand changes since the one asked for before. Raises
        Unavailable.
        """
        if not number or not await self._go_to(number):
            return None
        closed = [name for name, until_ms in self._until.items() if until_ms > at_ms]
        named = [(name, record) for name in closed if (record := self._records.get(name))]
        return None if len(named) > MOST_NAMED else [self._rule(*quota) for quota in named]

    def _rule(self, name: str, record: bytes) -> QuotaRule:
        if (name, record) not in self._rules:
            self._rules[name, record] = BanditQuota.of(name, record).rule
        return self._rules[name, record]

    async def _go_to(self, number: str) -> bool:
        """Go to this change; False: the change is not kept any more."""
        if not self._number:
            present = await self._store.changes(self._uid, "")
            assert isinstance(present, QuotasNow), "nothing was known"  # noqa: S101
            self._number, self._until, self._records = (
                present.number,
                dict(present.closed),
                dict(present.records),
            )
        if not await self._store.changes_between(self._uid, number, number):
            return False
        goes_on = change_order(number) > change_order(self._number)
        while self._number != number:
            changes = await self._store.changes_between(self._uid, self._number, number)
            if len(changes) < 2 or changes[0].number != self._number:  # some are gone by now
                self._number = ""
                return False
            # Back from a change its own effect is undone; forward the effect of the next one is done.
            for change in changes[1:] if goes_on else changes:
                await yield_to_others()
                if change.number == number and not goes_on:
                    break
                self._until[change.quota] = change.until_ms if goes_on else change.was_ms
                if change.record is not None:
                    self._records[change.quota] = change.record if goes_on else change.before or b""
            self._number = changes[-1].number
        return True
