"""A store of quotas by a clock of the test's own, for processes that neither fail nor ask late."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.caps.shares import QuotaLedger
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

    async def release(self, *_: object, **__: object) -> int:
        return 0


class OneQuota:
    """A ``FollowedMembership`` where every row counts for the one quota."""

    sizes = np.full(1, 2**30, dtype=np.int32)
    beyond = np.zeros(1_000, dtype=np.bool_)

    def __init__(self, shares: QuotaLedger) -> None:
        shares.membership = self  # type: ignore[assignment]

    @property
    def members(self) -> OneQuota:
        return self

    def is_current(self, _: object) -> bool:
        return True

    async def ready(self, _: object) -> bool:
        return True

    async def settled(self, *_: object) -> bool:
        return True

    def of(self, _: int) -> list[int]:
        return [0]

    def counted(self, rows: Sequence[int]) -> dict[int, int]:
        return dict(Counter(number for row in rows for number in self.of(row)))
