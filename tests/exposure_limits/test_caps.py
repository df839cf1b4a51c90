"""What a process remembers of the exposures of a key, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from app.bandits.settings import RepeatsRule
from app.exposure_limits.caps import Exposure, FrequencyCapKey, FrequencyCaps
from app.exposure_limits.exposures import field_value, left_of_values, over_cap
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.storage.types import Exposures, LearnerId
from store_by_clock import OwnClock

pytestmark = pytest.mark.anyio

ANN = LearnerId("b", "ann")
ONCE = RepeatsRule(most=1, within_s=5.0)


@dataclass
class OneKey:
    """The store of one key that was shown ``shown``; ``most``: as it was asked."""

    now_ms: int = 0
    shown: list[tuple[str, int]] = field(default_factory=list)
    is_away: bool = False
    remembers: bool = True
    most: list[int] = field(default_factory=list)

    async def take(
        self, key: LearnerId, shown: Sequence[tuple[str, str]], *, within_ms: int, most: int, most_kept: int
    ) -> Exposures:
        self.most.append(most)
        counted = [name for name, _ in self.shown]
        if most and any(counted.count(arm) >= most for _, arm in shown):
            return Exposures(allowed=False, remembered=True, now_ms=self.now_ms, shown=list(self.shown))
        self.shown += [(arm, self.now_ms) for _, arm in shown if self.remembers]
        return Exposures(True, self.remembers, self.now_ms, list(self.shown))

    async def drop(self, key: LearnerId, shown: Sequence[tuple[str, str]]) -> None:
        if self.is_away:
            raise Unavailable("the store is away")
        gone = [arm for _, arm in shown]
        self.shown = [item for item in self.shown if item[0] not in gone]


def caps_of(store: OneKey, metrics: Metrics | None = None) -> tuple[FrequencyCaps, OwnClock]:
    clock = OwnClock(100.0)
    return FrequencyCaps(store, metrics or Metrics(), clock=clock), clock  # type: ignore[arg-type]


async def test_an_exposure_counts_from_when_it_was_shown_not_from_when_it_was_heard():
    """Heard of .4 s before it no longer counts."""
    caps, clock = caps_of(OneKey(9_600, [("a0", 5_000)]))
    subject = FrequencyCapKey(ONCE, ANN)
    assert await caps.counts(subject, dry_run=True) == {"a0": 1}
    for seconds, counts in ((0.3, {"a0": 1}), (0.2, {})):
        clock.seconds += seconds
        assert await caps.counts(subject, dry_run=False) == counts


async def test_what_is_refused_is_known_at_once_and_what_is_taken_back_is_not():
    """Also what another process showed; and while the store is away what is taken back still counts."""
    store = OneKey(shown=[("a0", 0)])
    caps, _ = caps_of(store)
    subject = FrequencyCapKey(ONCE, ANN)
    assert not await caps.record(subject, [("d", "a0")])
    assert await caps.counts(subject, dry_run=False) == {"a0": 1}
    assert await caps.record(subject, [("d", "a1")])
    store.is_away = True
    await caps.take_back(subject, [("d", "a1")])
    assert await caps.counts(subject, dry_run=False) == {"a0": 1, "a1": 1}
    store.is_away = False
    await caps.take_back(subject, [("d", "a1")])
    assert await caps.counts(subject, dry_run=False) == {}
    assert await caps.counts(subject, dry_run=True) == {"a0": 1}


async def test_a_rule_of_rewards_reads_before_each_choice_and_refuses_none():
    store = OneKey()
    caps, _ = caps_of(store)
    subject = FrequencyCapKey(RepeatsRule(most=1, within_s=5.0, counts="rewarded"), ANN)
    assert await caps.record(subject, [("d", "a0")])
    store.shown.append(("a0", 0))
    assert await caps.counts(subject, dry_run=False) == {"a0": 2}
    assert set(store.most) == {0}


async def test_what_is_not_remembered_is_counted_by_its_kind():
    metrics = Metrics()
    caps, _ = caps_of(OneKey(remembers=False), metrics)
    for counts, times in (("shown", 1), ("rewarded", 2)):
        for _ in range(times):
            rule = RepeatsRule(most=1, within_s=5.0, counts=counts)  # type: ignore[arg-type]
            assert await caps.record(FrequencyCapKey(rule, ANN), [("d", "a0")])
    # private: of the metrics library, which has no reader
    unlimited = {labels: child._value.get() for labels, child in metrics.unlimited._metrics.items()}
    assert unlimited == {("shown",): 1.0, ("rewarded",): 2.0}


async def test_a_history_says_when_the_oldest_show_counts_no_longer():
    """Of what is counted by this rule; what was shown last comes first."""
    shown = [("a0", 1_000), ("a1", 2_000), ("a0", 3_000), ('["series",7]', 3_500)]
    caps, _ = caps_of(OneKey(3_600, shown))
    bandit = SimpleNamespace(uid="b")
    history = await caps.history(bandit, RepeatsRule(most=3, within_s=5.0), "ann")  # type: ignore[arg-type]
    assert history == [Exposure("a0", 2, 3_000, 6_000), Exposure("a1", 1, 2_000, 7_000)]


def test_what_was_counted_by_another_rule_bars_nothing():
    """The rule may be changed while what keys were shown is kept."""
    counts = {"a0": 3, '["series",7]': 2, '["series","7"]': 1, '["author","x"]': 5}
    by_arm, by_series = RepeatsRule(2, 5.0), RepeatsRule(2, 5.0, by="series")
    assert over_cap(by_arm, counts) == ["a0"]
    assert over_cap(by_series, counts) == ['["series",7]']
    assert left_of_values(by_series, counts) == [(7, 0), ("7", 1)]
    assert [field_value(counted) for counted in counts] == [
        None,
        ("series", 7),
        ("series", "7"),
        ("author", "x"),
    ]
