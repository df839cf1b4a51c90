"""A store of quotas by a clock of the test's own, which counts as ``count_quotas.lua`` does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.exposure_limits.bandit_quotas import BanditQuotas
from app.exposure_limits.known_quotas import KnownQuotas
from app.exposure_limits.rules import BanditQuota, QuotaRule
from app.storage.types import (
    QuotaAnswer,
    QuotaChange,
    QuotaChanges,
    QuotaCount,
    QuotaEvent,
    QuotasNow,
    QuotaWindow,
)

SLICE_MS = 100


@dataclass
class OwnClock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class StoreByClock:
    """Of quotas that count what is shown, and have windows. ``rules``: by their ids."""

    clock: OwnClock
    rules: Mapping[str, QuotaRule]
    shown: dict[tuple[str, int], int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    log: list[QuotaChange] = field(default_factory=list)
    asked: int = 0

    @property
    def now_ms(self) -> int:
        return round(1_000 * self.clock())

    def _window(self, name: str) -> tuple[int, int]:
        per_ms = round(1_000 * (self.rules[name].per_s or 0.0))
        start = self.now_ms // per_ms * per_ms
        return start, start + per_ms

    def _closed_until(self, name: str) -> int:
        (start, end), rule = self._window(name), self.rules[name]
        shown = self.shown.get((name, start), 0)
        if shown >= rule.most:
            return end
        slice_end = (self.now_ms // SLICE_MS + 1) * SLICE_MS
        if rule.pace == "none" or shown < rule.most * (min(slice_end, end) - start) / (end - start):
            return 0
        return max(slice_end, math.floor((start + shown * (end - start) / rule.most) / SLICE_MS) * SLICE_MS)

    async def count(
        self, bandit_uid: str, events: Sequence[tuple[QuotaEvent, Sequence[QuotaCount]]], *, after: str
    ) -> QuotaAnswer:
        self.asked += 1
        counts = [each for _, counts in events for each in counts]  # all events, or none
        windows = {each.quota: self._window(each.quota) for each in counts}
        shown = {name: self.shown.get((name, window[0]), 0) for name, window in windows.items()}
        is_counted = not any(
            self._closed_until(each.quota) > 0 or shown[each.quota] + each.times > self.rules[each.quota].most
            for each in counts
        )
        for each in counts:
            if is_counted:
                shown[each.quota] += each.times
                self.shown[each.quota, windows[each.quota][0]] = shown[each.quota]
            until_ms, was_ms = self._closed_until(each.quota), self.closed.get(each.quota, 0)
            if until_ms > 0 and until_ms != was_ms:
                self.closed[each.quota] = until_ms
                self.log.append(QuotaChange(f"{len(self.log) + 2}-0", each.quota, until_ms, was_ms))
        answered = {
            (each.quota, each.uid): QuotaWindow(*windows[each.quota], shown[each.quota], 0) for each in counts
        }
        return QuotaAnswer(
            [is_counted] * len(events), QuotaChanges(self.now_ms, self._since(after)), answered
        )

    async def changes(self, bandit_uid: str, after: str) -> QuotaChanges | QuotasNow:
        if after:
            return QuotaChanges(self.now_ms, self._since(after))
        records = {
            name: BanditQuota.of_rule(name, f"{name:>16}", rule).record for name, rule in self.rules.items()
        }
        return QuotasNow(self.now_ms, f"{len(self.log) + 1}-0", records, dict(self.closed))

    def _since(self, after: str) -> Sequence[QuotaChange]:
        return self.log[int(after.removesuffix("-0")) - 1 :]


class QuotaOfRow:
    """In place of ``QuotaMembers``: every row counts for the quota with the name of its number."""

    def __init__(self) -> None:
        self.quotas: dict[str, BanditQuota] = {}

    def add(self, quota: BanditQuota) -> None:
        self.quotas[quota.id] = quota

    def remove(self, quota: BanditQuota) -> None:
        del self.quotas[quota.id]

    def quotas_of(self, _: object, rows: Sequence[int]) -> list[list[BanditQuota]]:
        return [[self.quotas[f"{row}"]] for row in rows]


async def process_of(store: StoreByClock, members: Any = None) -> BanditQuotas:
    """A process that has just started. ``members``: None: each row counts for one quota."""
    known = KnownQuotas(store.clock)
    known.members = members or QuotaOfRow()
    process = BanditQuotas(store, "b", known)  # type: ignore[arg-type]
    await process.poll()
    return process
