"""Reports: what counts for which group, bounds, buckets, and rewards counted as learners count them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence

import msgspec
import numpy as np
import pytest

from app.bandits.settings import BanditRecord, RewardRule, SignalRule
from app.decision_log.rows import LoggedArm, Row
from app.measuring import report as reports
from app.measuring.outcomes import Terms, terms_of, value_of
from app.measuring.report import ReportFold, Reports
from app.measuring.report_answer import Report, Unit
from app.platform.errors import Invalid
from app.platform.metrics import Metrics
from headless_service import HeadlessService, bandit_record
from logged_rows import LogInMemory, reward_of, row
from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation.asymptotic_confidence_sequence import Unbounded
from shortlist_evaluation.seen_rewards import SeenRewards
from shortlist_evaluation.sources import HeldSource

COINS = Terms(0.0, 0.0, 1.0)
FREE = Terms(0.0)


def report_of(
    rows: Sequence[Row], terms: Terms = COINS, bucket_ms: int | None = None, unit: Unit = "decision"
) -> Report:
    fold = ReportFold(bucket_ms, unit)
    fold.add(rows, {1: terms})
    return fold.report()


def coins(rng: np.random.Generator, count: int, p: float, group: str | None = None) -> list[Row]:
    return [row(*([1.0] if rng.random() < p else []), group=group) for _ in range(count)]


@pytest.mark.parametrize(
    ("logged", "terms", "value", "rewarded"),
    [
        (row(), COINS, 0.0, False),
        (row(), Terms(-0.5), -0.5, False),
        (row(2.0), Terms(-0.5), 2.0, True),
        (row(2.0, arms="abc"), Terms(-0.5), 1.0, True),
        (row(rewards=[reward_of(0.25, default=True)]), FREE, 0.25, False),
        (row(rewards=[reward_of(0.25, default=True), reward_of(1.0)]), FREE, 1.0, True),
        (row(rewards=[reward_of(1.0), reward_of(2.0), reward_of(0.5)]), FREE, 3.5, True),
        (row(arms="ab", rewards=[reward_of(-1.0, "a", default=True), reward_of(3.0, "b")]), FREE, 2.0, True),
    ],
)
def test_a_decision_is_worth_the_rewards_of_its_arms(logged: Row, terms: Terms, value: float, rewarded: bool):
    assert value_of(logged, terms) == (value, rewarded)


def test_a_signal_of_weight_0_is_no_reward():
    terms = Terms(0.5, weights={"click": 0.0, "buy": 2.0}, defaults={"click": 0.0, "buy": 0.25})
    click, buy = (msgspec.structs.replace(reward_of(1.0), signal=name) for name in ("click", "buy"))
    assert value_of(row(rewards=[click]), terms) == (0.5, False)
    assert value_of(row(rewards=[click, buy]), terms) == (2.0, True)


def test_the_bounds_hold_what_an_arm_without_a_reward_counts_as():
    def terms_of_rule(rule: RewardRule) -> Terms:
        return terms_of(BanditRecord("c", "sub_ts", reward=rule))

    assert terms_of_rule(RewardRule(1.0, 5.0)) == Terms(0.0, 0.0, 5.0)
    assert terms_of_rule(RewardRule(-1.0, 1.0, wait_s=9.0, default=-1.0)) == Terms(-1.0, -1.0, 1.0)
    for rule in (RewardRule(), RewardRule(min=0.0), RewardRule(max=1.0), RewardRule(0.0, 1.0, "sum")):
        assert terms_of_rule(rule).low is None


def test_rewards_without_bounds_have_asymptotic_intervals_and_none_at_first():
    values = np.random.default_rng(2).normal(size=400)
    rows = [row(value, group="policy" if place % 2 else "holdout") for place, value in enumerate(values)]
    found, early = report_of(rows, FREE), report_of(rows[:50], FREE)
    groups = [asymptotic.add(Unbounded(), values[start::2]) for start in (1, 0)]
    assert found.interval_kind == early.interval_kind == "asymptotic"
    assert [shown.interval for shown in early.groups] == [None, None]
    assert early.warnings == [f"{name}: no interval below 100 decisions" for name in ("policy", "holdout")]
    rare = report_of([row(float(place < 9)) for place in range(900)], FREE)
    assert rare.groups[0].interval is None
    (words,) = rare.warnings
    assert words.startswith(
        "policy: no interval while few decisions are rewarded, or a few much more than others;"
    )
    assert words.endswith(
        "takes 1,500 decisions at least; rewards with min and max, not added up, have one at once"
    )
    assert early.lift.interval is None
    assert early.lift.value is not None
    for shown, group in zip(found.groups, groups, strict=True):
        assert shown.interval == pytest.approx(group.interval())
    assert found.lift.interval == pytest.approx(asymptotic.difference(*groups))


def test_where_no_decision_has_a_group_all_are_the_policys():
    rows = coins(np.random.default_rng(4), 50, 0.5)
    found = report_of(rows, bucket_ms=1_000)
    assert [shown.decisions for shown in found.groups] == [50, 0]
    assert found.ungrouped == 0
    assert found.groups[1].interval is None
    assert (found.lift.value, found.lift.interval) == (None, None)
    assert found.buckets[0].groups[0].decisions == 50


def test_buckets_begin_at_multiples_and_empty_ones_are_shown():
    rows = [row(1.0, time=time, group="policy") for time in (10_999, 11_000, 13_500)]
    buckets = report_of(rows, bucket_ms=1_000).buckets
    assert [(bucket.from_ms, bucket.groups[0].decisions) for bucket in buckets] == [
        (10_000, 1), (11_000, 1), (12_000, 0), (13_000, 1),
    ]  # fmt: skip
    assert buckets[2].groups[0].mean_reward is None
    last = 10_000 + 1_000 * reports.MAX_BUCKETS
    assert len(report_of([rows[0], row(time=last - 1)], bucket_ms=1_000).buckets) == 1
    with pytest.raises(Invalid, match="buckets"):
        report_of([rows[0], row(time=last)], bucket_ms=1_000)


@pytest.mark.anyio
async def test_the_sum_and_its_signals_share_the_chance_to_fail(service: HeadlessService):
    """Of two signals each of three intervals fails with a third of 5 %."""
    signals = {"click": SignalRule(1.0, min=0.0, max=1.0), "hide": SignalRule(-2.0, min=0.0, max=1.0)}
    bandit = await service.bandit(scope="global", signals=signals)
    rng = np.random.default_rng(5)
    rows = [
        row(
            rewards=[
                msgspec.structs.replace(reward_of(float(rng.random() < 0.5)), signal=name) for name in signals
            ]
        )
        for _ in range(400)
    ]
    found = await Reports(service.parts.bandits, LogInMemory(rows), Metrics()).report(
        bandit, from_ms=None, to_ms=None, bucket_ms=None
    )
    weighed = [(found, None), *((each, {each.signal: 1.0}) for each in found.signals)]
    assert len(weighed) == 3
    for each, weights in weighed:
        fold = ReportFold(None, "decision", level=1.0 - 0.05 / 3)
        fold.add(rows, {1: terms_of(bandit.record, weights)})
        assert each.groups[0].interval == pytest.approx(fold.report().groups[0].interval, rel=1e-9)


@pytest.mark.anyio
async def test_bounds_that_were_seen_hold_the_default_of_arms_without_a_reward(service: HeadlessService):
    bandit = await service.bandit(scope="global")

    async def pages() -> AsyncIterator[Sequence[Row]]:
        yield [row(0.75, arms="ab"), row(0.5)]

    seen = SeenRewards(bandit, HeldSource().versions)
    assert [len(rows) async for rows in seen.noted(pages())] == [2]
    assert seen.bounds == {None: (0.0, 0.75)}


def test_a_signal_that_came_takes_the_place_of_its_default_and_no_other():
    signals = {"click": SignalRule(2.0, default=0.25), "hide": SignalRule(-1.0, default=0.5)}
    terms = terms_of(bandit_record(scope="global", signals=signals))
    clicked = msgspec.structs.replace(reward_of(1.0), signal="click")
    assert value_of(row(arms="ab", rewards=[clicked]), terms) == (2.0 * 1.0 - 0.5, True)


@pytest.mark.parametrize("pinned", [False, True])
def test_lists_with_pinned_arms_say_nothing_of_places(pinned: bool):
    arms = [LoggedArm("a", 1, 0.5, 0.5, pinned), LoggedArm("b", 2, 0.5, 0.5, False)]
    values = np.random.default_rng(0).integers(0, 2, (200, 2)).astype(float).tolist()
    rows = [
        row(arms=arms, rewards=[reward_of(a, "a"), reward_of(b, "b")], group="holdout") for a, b in values
    ]
    assert [place.examination is None for place in report_of(rows).places] == [pinned, pinned]


def test_bounds_of_a_signal_with_a_negative_weight_are_turned():
    signals = {"click": SignalRule(min=0.0, max=1.0), "hide": SignalRule(min=-1.0, max=3.0)}
    record = bandit_record(scope="global", signals=signals)
    terms = terms_of(record, {"click": 1.0, "hide": -2.0})
    assert (terms.low, terms.high) == (-6.0, 3.0)


@pytest.mark.anyio
async def test_each_version_of_a_bandit_has_its_terms(service: HeadlessService):
    bandit = await service.bandit(scope="global", reward=RewardRule(0.0, 1.0))
    first = [row(1.0, time=1), row(time=2)]
    later = [row(2.0, time=3, bandit_version=2), row(time=4, bandit_version=9)]

    wider = msgspec.structs.replace(bandit.record, reward=RewardRule(0.0, 2.0, wait_s=5.0, default=1.0))
    bandit = await service.parts.bandits.change("b", lambda uid, version: wider)
    found = await Reports(service.parts.bandits, LogInMemory([*first, *later], page=1), Metrics()).report(
        bandit, from_ms=None, to_ms=None, bucket_ms=None
    )
    assert found.groups[0].mean_reward == (1.0 + 0.0 + 2.0 + 1.0) / 4
    assert found.interval_kind == "bounded"
    assert found.groups[0].interval == (0.0, 2.0)
    some = await Reports(service.parts.bandits, LogInMemory([*first, *later]), Metrics()).report(
        bandit, from_ms=2, to_ms=4, bucket_ms=None
    )
    assert some.groups[0].decisions == 2


def test_a_share_that_falls_while_rewards_rise_is_no_lift():
    rng, shares, rates = np.random.default_rng(3), {1: 1.0, 2: 0.8, 3: 0.2}, {1: 0.2, 2: 0.2, 3: 0.6}
    rows = [
        msgspec.structs.replace(each, bandit_version=version)
        for version, share in shares.items()
        for group, part in (("policy", 1.0 - share), ("holdout", share))
        for each in coins(rng, round(1_000 * part), rates[version], group)
    ]
    found = {}
    for name, known in (("within", shares), ("across", {})):
        fold = ReportFold()
        fold.add(rows, dict.fromkeys(shares, COINS), known)
        found[name] = fold.report()
    within, across = (each.lift.interval or (math.nan, math.nan) for each in found.values())
    assert within[0] < 0.0 < within[1]
    assert across[0] > 0.0
    assert [each.weight for each in found["within"].stages] == pytest.approx([0.0, 0.5, 0.5])
