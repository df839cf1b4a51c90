"""Exposures of each key: kept in the store, counted there, and remembered by this process.

The store keeps the last ``MAX_EXPOSURES`` of each key (``exposures`` defines them). A process chooses by its
last reading of a key; then one script writes the exposures of the choice, unless some would exceed the cap.
In that case the choice is made again, by the answer of the script. So the cap is never exceeded, and costs
one round trip for a choice. A rule that counts rewards reads the history before the choice instead.

If the store has no room for more, a choice goes on, is not remembered, and is counted
(``Metrics.unlimited``): a refusal would let anybody lock visitors out by inventing keys.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.bandits.bandit import Bandit
from app.bandits.settings import RepeatsRule
from app.exposure_limits.exposures import exposures_of, is_of
from app.platform.cache import BoundedCache
from app.platform.deadlines import yield_to_others
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.storage.exposure_limits import FrequencyCapStore
from app.storage.types import Exposures, LearnerId

MAX_EXPOSURES = 1_000  # of each key, in the store
CACHE_BYTES = 16 << 20
EXPOSURE_BYTES = 120


class FrequencyCapKey(NamedTuple):
    """A cap, and its key or visitor."""

    rule: RepeatsRule
    key: LearnerId

    @classmethod
    def of(cls, bandit: Bandit, learner: LearnerId, visitor: str | None) -> FrequencyCapKey | None:
        """The key or visitor of a bandit's cap; None: none."""
        rule = bandit.record.repeats
        # All visitors of a global bandit share one learner: without a visitor nobody knows the person.
        if rule is None or (bandit.record.scope == "global" and visitor is None):
            return None
        return cls(rule, learner if visitor is None else LearnerId(bandit.uid, visitor))


@dataclass(frozen=True, slots=True)
class Exposure:
    """An arm, or a stored value, shown to a key ``count`` times, last at ``last_ms``; from ``until_ms`` on
    the first exposure does not count any more.
    """

    counted: str
    count: int
    last_ms: int
    until_ms: int


class FrequencyCaps:
    """See the module. For the event loop. ``clock``: monotonic seconds."""

    def __init__(
        self, store: FrequencyCapStore, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._unlimited = metrics.unlimited
        self._clock = clock
        # Exposures, and until when each counts, by ``clock``.
        self._remembered: BoundedCache[LearnerId, Sequence[tuple[str, float]]] = BoundedCache(CACHE_BYTES)

    async def counts(self, subject: FrequencyCapKey, *, dry_run: bool) -> Mapping[str, int]:
        """The number of exposures of each arm or value, as far as this process knows. Raises Unavailable."""
        if dry_run or subject.rule.counts == "rewarded":
            # With nothing to write: the same script reads, so both have one form of the answer.
            await self._take(subject, [])
            await yield_to_others()  # one read of the store may bring what many choices waited for
        clock_s = self._clock()
        # By this process's clock: its knowledge is only a first guess, and the script decides by the store's
        # clock.
        return Counter(
            counted for counted, until in self._remembered.get(subject.key) or () if until > clock_s
        )

    async def record(self, subject: FrequencyCapKey, shown: Sequence[tuple[str, str]]) -> bool:
        """Write exposures, each name once; False: they would exceed the cap, and nothing is written.

        Raises Unavailable: whether they count is unknown.
        """
        outcome = await self._take(subject, shown)
        if not outcome.remembered:
            self._unlimited.labels(subject.rule.counts).inc()
        return outcome.allowed

    async def take_back(self, subject: FrequencyCapKey, shown: Sequence[tuple[str, str]]) -> None:
        """Drop exposures which did not happen. While the store is away they cannot be dropped, and count."""
        with contextlib.suppress(Unavailable):
            await self._store.drop(subject.key, shown)
            self._remembered.drop(subject.key)

    async def record_reward(
        self,
        bandit: Bandit,
        learner: LearnerId,
        visitor: str | None,
        *,
        decision: str,
        arms: Sequence[str],
        arm: str,
    ) -> None:
        """Note a reward of an arm of a decision with these arms, where the bandit counts rewards.

        Raises Unavailable: whether the reward counts is unknown.
        """
        subject = FrequencyCapKey.of(bandit, learner, visitor)
        if subject is not None and subject.rule.counts == "rewarded":
            all_arms = bandit.catalogue.index.snapshot()
            await self.record(
                subject, exposures_of(subject.rule, all_arms, decision, [arm], [arms.index(arm)])
            )

    async def history(self, bandit: Bandit, rule: RepeatsRule, name: str) -> list[Exposure]:
        """The exposures counted by the cap of a key or visitor now, the last first, as the store has them.

        Raises Unavailable.
        """
        times = defaultdict[str, list[int]](list)
        exposures = await self._take(FrequencyCapKey(rule, LearnerId(bandit.uid, name)), [])
        for counted, at_ms in exposures.shown:
            if is_of(rule, counted):
                times[counted].append(at_ms)
        history = [
            Exposure(counted, len(at_ms), max(at_ms), min(at_ms) + rule.within_ms)
            for counted, at_ms in times.items()
        ]
        return sorted(history, key=lambda exposure: -exposure.last_ms)

    def forget(self, learner: LearnerId) -> None:
        """Forget what this learner was shown."""
        self._remembered.drop(learner)

    def forget_all(self) -> None:
        self._remembered.clear()

    async def _take(self, subject: FrequencyCapKey, shown: Sequence[tuple[str, str]]) -> Exposures:
        rule = subject.rule
        most = rule.most if rule.counts == "shown" else 0
        exposures = await self._store.take(
            subject.key, shown, within_ms=rule.within_ms, most=most, most_kept=MAX_EXPOSURES
        )
        clock_s = self._clock()
        remembered = [
            (counted, clock_s + (at_ms + rule.within_ms - exposures.now_ms) / 1_000)
            for counted, at_ms in exposures.shown
        ]
        size = EXPOSURE_BYTES * (1 + len(remembered)) + sum(len(counted) for counted, _ in remembered)
        self._remembered.put(subject.key, remembered, size)
        return exposures
