"""Reports: what counts for which group, bounds, buckets, and rewards counted as learners count them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import msgspec
import numpy as np
import pytest

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord, RewardRule, SignalRule
from app.decision_log.rows import LoggedArm, Row
from app.measuring import report as reports
from app.measuring.outcomes import SeenRewards, Terms, terms_of, value_of
from app.measuring.report import Report, ReportFold, Reports, Unit
from app.platform.errors import Invalid, Unavailable
from app.platform.metrics import Metrics
from headless_service import HeadlessService, bandit_record
from logged_rows import LogInMemory, reward_of, row
from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation import clustered_t_sequence as sequence
from shortlist.evaluation import confidence_sequence as bounded
from shortlist.evaluation.asymptotic_confidence_sequence import Unbounded
from shortlist.evaluation.clustered_t_sequence import Looks, Summary
from waiting import wait_until

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


@pytest.mark.rest
def test_groups_have_their_means_and_the_sequences_of_their_values():
    rng = np.random.default_rng(1)
    policy, holdout = coins(rng, 900, 0.5, "policy"), coins(rng, 100, 0.2, "holdout")
    found = report_of([*policy, *holdout])
    groups = [
        bounded.add(bounded.start(0, 1), np.array([float(len(each.rewards)) for each in rows]))
        for rows in (policy, holdout)
    ]
    for shown, group in zip(found.groups, groups, strict=True):
        assert (shown.decisions, shown.rewarded) == (group.count, group.total)
        assert shown.mean_reward == pytest.approx(group.mean)
        assert shown.interval == pytest.approx(group.interval())
    assert [shown.group for shown in found.groups] == ["policy", "holdout"]
    assert found.lift.value == pytest.approx(groups[0].mean - groups[1].mean)
    assert found.lift.interval == pytest.approx(bounded.difference(*groups))
    assert (found.interval_kind, found.ungrouped, found.buckets) == ("bounded", 0, [])
    assert (found.unit, found.interval_decisions, found.warnings) == ("decision", 1_000, [])


@pytest.mark.rest
@pytest.mark.parametrize(("policy", "worse"), [(0.1, True), (0.5, False), (0.9, False)])
def test_a_policy_that_is_worse_for_certain_is_named(policy: float, worse: bool):
    rng = np.random.default_rng(4)
    rows = coins(rng, 1_000, policy, "policy") + coins(rng, 1_000, 0.5, "holdout")
    assert report_of(rows).warnings == [reports.POLICY_WORSE_THAN_HOLDOUT] * worse


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


@pytest.mark.parametrize("cut", [1, 7, 1_000])
def test_pages_do_not_matter_also_where_decisions_grow(cut: int):
    rng = np.random.default_rng(3)
    rows = [
        row(*rng.integers(0, 2, count).astype(float).tolist(), arms="abcd"[:count], group=group)
        for count in (1, 2, 1, 4)
        for group in ("policy", "holdout", None)
        for _ in range(30)
    ]
    fold = ReportFold(500)
    for start in range(0, len(rows), cut):
        fold.add(rows[start : start + cut], {1: COINS})
    found, whole = fold.report(), report_of(rows, bucket_ms=500)
    for shown, expected in zip(found.groups, whole.groups, strict=True):
        assert (shown.decisions, shown.mean_reward) == (expected.decisions, expected.mean_reward)
        assert shown.interval == pytest.approx(expected.interval)
    assert found.buckets == whole.buckets
    assert found.ungrouped == 120
    low, high = found.groups[0].interval or (math.nan, math.nan)
    assert 0.0 <= low < (found.groups[0].mean_reward or math.nan) < high <= 4.0


@pytest.mark.rest
def test_a_list_has_the_bounds_of_all_its_arms():
    rows = [row(1.0, 1.0, 1.0, arms="abc", group="policy") for _ in range(500)]
    found = report_of(rows).groups[0]
    assert found.mean_reward == 3.0
    assert found.interval is not None
    assert 2.5 < found.interval[0] < found.interval[1] == 3.0


@pytest.mark.rest
def test_a_value_beyond_the_bounds_has_none():
    """Bounds that were narrowed later do not hold for what came before."""
    rows = [row(3.0, group="policy"), *(row(0.5, group="policy") for _ in range(200))]
    assert report_of(rows).interval_kind == "asymptotic"
    third = 1.0 / 3.0
    rounded = row(third + third, third, 0.1 + 0.2, arms="abc", group="policy")
    assert report_of([rounded], Terms(0.0, 0.0, 0.3)).interval_kind == "asymptotic"
    assert report_of([row(0.1 + 0.2, group="policy")], Terms(0.0, 0.0, 0.3)).interval_kind == "bounded"


def test_where_no_decision_has_a_group_all_are_the_policys():
    rows = coins(np.random.default_rng(4), 50, 0.5)
    found = report_of(rows, bucket_ms=1_000)
    assert [shown.decisions for shown in found.groups] == [50, 0]
    assert found.ungrouped == 0
    assert found.groups[1].interval is None
    assert (found.lift.value, found.lift.interval) == (None, None)
    assert found.buckets[0].groups[0].decisions == 50


@pytest.mark.rest
def test_only_decisions_of_the_same_time_are_compared():
    """Those of the time before the holdout, and baselines, are counted apart."""
    rng = np.random.default_rng(5)
    before, policy, holdout = (coins(rng, 40, 0.5, group) for group in (None, "policy", "holdout"))
    found = report_of([*before, *policy, *holdout], bucket_ms=1_000)
    assert [shown.decisions for shown in found.groups] == [40, 40]
    assert found.ungrouped == 40
    assert sum(shown.decisions for shown in found.buckets[0].groups) == 80


@pytest.mark.rest
def test_nothing_is_null_not_zero():
    found = report_of([], bucket_ms=1_000)
    for shown in found.groups:
        assert (shown.decisions, shown.rewarded, shown.mean_reward, shown.interval) == (0, 0, None, None)
    assert (found.lift.value, found.lift.interval, found.buckets) == (None, None, [])


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


def visits(rng: np.random.Generator, keys: int, decisions: int, group: str | None = None) -> list[Row]:
    """Decisions of users who click more or less often; four in ten are in the holdout unless ``group``."""
    rates, held = rng.beta(2, 8, keys), rng.random(keys) < 0.4
    return [
        row(
            *([1.0] if rng.random() < rates[key] else []),
            key=f"user-{key}",
            group=group or ("holdout" if held[key] else "policy"),
        )
        for key in rng.integers(0, keys, decisions)
    ]


def by_key(rows: Sequence[Row], group: str) -> Summary:
    """Counted one by one."""
    counts, sums = Counter[str | None](), Counter[str | None]()
    for each in rows:
        if each.group == group:
            counts[each.key] += 1
            sums[each.key] += len(each.rewards)
    return sequence.summary(
        *(np.array([count[key] for key in counts], dtype=float) for count in (counts, sums))
    )


@pytest.mark.rest
def test_keys_are_the_unit_of_a_bandit_with_a_learner_per_key():
    rows = visits(np.random.default_rng(6), 200, 5_000)
    looks = {name: Looks() for name in ("policy", "holdout", "lift")}
    for power in range(13):
        groups = [by_key(rows[: 2**power], name) for name in ("policy", "holdout")]
        looks = {
            "policy": sequence.look(looks["policy"], groups[0]),
            "holdout": sequence.look(looks["holdout"], groups[1]),
            "lift": sequence.look(looks["lift"], *groups),
        }
    found = report_of(rows, unit="key")
    assert (found.unit, found.interval_kind, found.interval_decisions) == ("key", "asymptotic", 4_096)
    for name, interval in zip(
        looks, (*(each.interval for each in found.groups), found.lift.interval), strict=True
    ):
        assert looks[name].given > 3
        assert interval == pytest.approx(looks[name].interval)
    plain = report_of(rows[:4_096])
    assert [each.mean_reward for each in found.groups] == [each.mean_reward for each in plain.groups]
    assert [each.decisions for each in found.groups] == [each.decisions for each in plain.groups]
    assert (found.lift.value, found.buckets, found.warnings) == (plain.lift.value, plain.buckets, [])


@pytest.mark.rest
def test_numbers_and_intervals_by_keys_stay_until_the_decisions_have_doubled():
    """A policy that gets better: means of all decisions lay outside of the intervals of the first ones."""
    rng = np.random.default_rng(7)
    rows = visits(rng, 300, 1_024) + [
        msgspec.structs.replace(each, rewards=[reward_of(1.0)]) if each.group == "policy" else each
        for each in visits(rng, 300, 1_076)
    ]
    found = {count: report_of(rows[:count], unit="key") for count in (1_024, 1_025, 2_047, 2_048, 2_100)}
    assert found[1_024].lift.interval == found[1_025].lift.interval == found[2_047].lift.interval is not None
    assert found[2_048].lift.interval == found[2_100].lift.interval != found[1_024].lift.interval
    assert found[1_024].lift == found[2_047].lift
    assert found[1_024].groups == found[2_047].groups
    for count, report in found.items():
        assert (report.decisions, report.as_of_decisions) == (count, 1_024 if count < 2_048 else 2_048)
        assert report.next_look == 2 * report.as_of_decisions
        for each in (*report.groups, report.lift):
            low, high = each.interval or (math.nan, math.nan)
            value = report.lift.value if each is report.lift else each.mean_reward
            assert low < (value or math.nan) < high


@pytest.mark.rest
@pytest.mark.parametrize("cut", [1, 97, 5_000])
def test_pages_do_not_matter_to_keys(cut: int):
    rows = visits(np.random.default_rng(8), 400, 3_000)
    fold = ReportFold(unit="key")
    for start in range(0, len(rows), cut):
        fold.add(rows[start : start + cut], {1: COINS})
    assert fold.report().lift.interval == pytest.approx(report_of(rows, unit="key").lift.interval)


@pytest.mark.rest
def test_keys_that_are_few_or_uneven_have_no_interval_and_it_is_said_why():
    rng = np.random.default_rng(9)
    few = report_of(visits(rng, 40, 1_000), unit="key")
    assert [each.interval for each in few.groups] == [None, None]
    assert few.lift.interval is None
    assert few.lift.value is not None
    assert few.warnings == [f"{name}: no interval below 30 keys" for name in ("policy", "holdout")]
    busy = [row(1.0, key="robot", group="policy") for _ in range(3_000)]
    uneven = report_of([*visits(rng, 400, 3_000), *busy], unit="key")
    assert [each.interval is None for each in uneven.groups] == [True, False]
    assert uneven.lift.interval is None
    (words,) = uneven.warnings
    assert words.startswith(
        "policy: no interval while a few keys have most of the decisions, or of the rewards;"
    )
    assert words.endswith("that takes 1,200 keys at least")
    idle = report_of([row(key=f"user-{number}") for number in range(64)], unit="key")
    assert idle.warnings == ["policy: no interval while all keys have earned the same"]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("unit", "terms", "least"), [("key", COINS, (34, 300)), ("decision", FREE, (112, 1_000))]
)
def test_it_is_said_from_how_many_on_there_can_be_an_interval(
    unit: Unit, terms: Terms, least: tuple[int, int]
):
    """A holdout of a tenth, as often as it is said: 100 keys never have an interval."""
    fold = ReportFold(unit=unit, share=0.1)
    fold.add(visits(np.random.default_rng(9), 20, 40), {1: terms})
    policy, holdout = fold.report().warnings
    assert policy.endswith(f"of both groups together that is about {least[0]}")
    assert holdout.endswith(f"of both groups together that is about {least[1]:,}")


@pytest.mark.rest
def test_intervals_of_keys_lie_within_what_decisions_can_earn():
    rare = [
        row(*([1.0] if number % 11 == 0 else []), key=f"user-{number}", group="policy")
        for number in range(64)
    ]
    folds = [ReportFold(unit="key", level=0.999) for _ in range(2)]
    for fold, terms in zip(folds, (COINS, FREE), strict=True):
        fold.add(rare, {1: terms})
    (low, high), (plain_low, plain_high) = (fold.report().groups[0].interval or (0, 0) for fold in folds)
    assert plain_low < 0.0
    assert (low, high) == (0.0, plain_high)


@pytest.mark.rest
def test_keys_without_a_group_are_the_policys_or_counted_apart():
    rng = np.random.default_rng(10)
    before, rows = visits(rng, 200, 700), visits(rng, 300, 2_000)
    before = [msgspec.structs.replace(each, group=None) for each in before]
    alone, both = report_of(before, unit="key"), report_of([*before, *rows], unit="key")
    assert alone.groups[0].interval is not None
    assert (alone.interval_decisions, alone.groups[1].interval, alone.lift.interval) == (512, None, None)
    assert (both.ungrouped, both.interval_decisions) == (700, 1_024)
    assert both.lift.interval == report_of(rows, unit="key").lift.interval


@pytest.mark.rest
@pytest.mark.anyio
async def test_the_scope_of_a_bandit_says_what_the_unit_is(service: HeadlessService):
    rows = visits(np.random.default_rng(11), 200, 1_000)
    for scope, unit in (("global", "decision"), ("per_key", "key")):
        bandit = await service.bandit(scope, scope=scope)
        found = await Reports(service.parts.bandits, LogInMemory(rows), Metrics()).report(
            bandit, from_ms=None, to_ms=None, bucket_ms=None
        )
        assert found.unit == unit


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
async def test_bounds_that_were_seen_hold_the_default_of_arms_without_a_reward():
    async def terms(version: int) -> Terms:
        return FREE

    async def pages() -> AsyncIterator[Sequence[Row]]:
        yield [row(0.75, arms="ab"), row(0.5)]

    seen = SeenRewards(bandit_record(scope="global"), terms)
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


@pytest.mark.rest
@pytest.mark.anyio
async def test_few_reports_are_made_at_once_and_too_many_are_refused(service: HeadlessService):
    bandit, goes_on, under_way = await service.bandit(), asyncio.Event(), 0

    class Held(LogInMemory):
        async def pages(
            self, bandit: Bandit, *, from_ms: int | None, to_ms: int | None
        ) -> AsyncIterator[Sequence[Row]]:
            nonlocal under_way
            under_way += 1
            await goes_on.wait()
            yield [row(1.0)]

    service = Reports(service.parts.bandits, Held([]), Metrics())

    def one() -> asyncio.Task[Report]:
        return asyncio.create_task(service.report(bandit, from_ms=None, to_ms=None, bucket_ms=None))

    tasks = [one() for _ in range(reports.AT_ONCE + reports.WAITING)]

    async def are_begun() -> bool:
        return under_way >= reports.AT_ONCE

    await wait_until(are_begun, what="as many reports are made as may be at once")
    assert under_way == reports.AT_ONCE
    with pytest.raises(Unavailable, match="reports"):
        await one()
    tasks[0].cancel()
    tasks[-1].cancel()
    goes_on.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(each, Report) for each in done) == len(tasks) - 2
    assert (await one()).groups[0].decisions == 1
