"""A store of quotas by a clock of the test's own, for processes that neither fail nor ask late."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.quotas.ledger import QuotaLedger
from app.storage.types import QuotaTerms, Share, ShareAsked


@dataclass
class OwnClock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class StoreByClock:
    """``QuotaStore.share`` as the script does it. ``terms``: of each quota, which have windows."""

    clock: OwnClock
    terms: Mapping[str, QuotaTerms]
    shares: dict[tuple[str, int, str], tuple[int, int]] = field(default_factory=dict)

    async def share(
        self, bandit_uid: str, process: str, number: int, asked: Sequence[ShareAsked]
    ) -> tuple[int, Sequence[Share]]:
        now = round(1_000 * self.clock())
        return now, [self._share(process, each, now) for each in asked]

    def _share(self, process: str, ask: ShareAsked, now: int) -> Share:
        terms = self.terms[ask.id]
        start, most = now // terms.per_ms * terms.per_ms, terms.most
        own = ask.id, start, process
        share, _ = self.shares.get(own, (0, 0))
        spent = ask.spent if ask.window_ms == start else 0
        of_window = self._of_window(own)
        free = most - sum(held for held, _ in of_window) + share - spent
        fair = math.ceil(free / (2 * max(len(of_window), 1)))
        held = min(ask.wanted, max(ask.needed, fair), free)
        self.shares[own] = spent + max(held, min(share - spent, ask.wanted)), spent
        granted, total = (sum(each[place] for each in self._of_window(own)) for place in (0, 1))
        until, mine = start + terms.per_ms, self.shares[own][0]
        return Share(True, True, start, until, mine, granted, total, 0, most, fair)

    def _of_window(self, own: tuple[str, int, str]) -> list[tuple[int, int]]:
        return [held for key, held in self.shares.items() if key[:2] == own[:2]]


class OneQuota:
    """In place of ``QuotaMembers``: every row counts for the one quota."""

    def __init__(self, ledger: QuotaLedger) -> None:
        ledger.members = self  # type: ignore[assignment]

    def quotas_of(self, _: object, rows: Sequence[int]) -> list[list[int]]:
        return [[0] for _ in rows]
