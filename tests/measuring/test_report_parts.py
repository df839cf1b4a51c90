"""Parts of a report: groups, places, keys and intervals."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import msgspec
import numpy as np
import pytest
from test_report import COINS, FREE, coins, report_of

from app.bandits.bandit import Bandit
from app.decision_log.rows import Row
from app.measuring import report as reports
from app.measuring.report import ReportFold, Reports
from app.measuring.report_answer import Report
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from headless_service import HeadlessService
from logged_rows import LogInMemory, reward_of, row
from shortlist.evaluation import clustered_t_sequence as sequence
from shortlist.evaluation import confidence_sequence as bounded
from shortlist.evaluation.clustered_t_sequence import Looks, Summary
from waiting import wait_until

pytestmark = pytest.mark.rest


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


@pytest.mark.parametrize(("policy", "worse"), [(0.1, True), (0.5, False), (0.9, False)])
def test_a_policy_that_is_worse_for_certain_is_named(policy: float, worse: bool):
    rng = np.random.default_rng(4)
    rows = coins(rng, 1_000, policy, "policy") + coins(rng, 1_000, 0.5, "holdout")
    assert report_of(rows).warnings == [reports.POLICY_WORSE_THAN_HOLDOUT] * worse


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


@pytest.mark.parametrize("cut", [1, 97, 5_000])
def test_pages_do_not_matter_to_keys(cut: int):
    rows = visits(np.random.default_rng(8), 400, 3_000)
    fold = ReportFold(unit="key")
    for start in range(0, len(rows), cut):
        fold.add(rows[start : start + cut], {1: COINS})
    assert fold.report().lift.interval == pytest.approx(report_of(rows, unit="key").lift.interval)


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


def test_keys_without_a_group_are_the_policys_or_counted_apart():
    rng = np.random.default_rng(10)
    before, rows = visits(rng, 200, 700), visits(rng, 300, 2_000)
    before = [msgspec.structs.replace(each, group=None) for each in before]
    alone, both = report_of(before, unit="key"), report_of([*before, *rows], unit="key")
    assert alone.groups[0].interval is not None
    assert (alone.interval_decisions, alone.groups[1].interval, alone.lift.interval) == (512, None, None)
    assert (both.ungrouped, both.interval_decisions) == (700, 1_024)
    assert both.lift.interval == report_of(rows, unit="key").lift.interval


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
