"""A report over several shares of the holdout: what is compared, what is counted apart, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from app.decision_log.rows import Row
from app.measuring.outcomes import Terms
from app.measuring.report import ReportFold
from app.measuring.report_answer import Report, Unit
from logged_rows import row

pytestmark = pytest.mark.rest

COINS = Terms(0.0, 0.0, 1.0)
SHARES: Mapping[int, float | None] = {1: 1.0, 2: 0.5, 3: 0.1, 4: 0.0, 5: None}


def stage(
    rng: np.random.Generator, version: int, count: int, policy: float, holdout: float, *, keys: int = 300
) -> list[Row]:
    """Decisions of one version. A key is in the holdout by its place, as by the hash of it."""
    share, found = SHARES[version], list[Row]()
    for key in rng.integers(0, keys, count).tolist():
        held = share is not None and (key * 0.618034) % 1.0 < share
        comes = rng.random() < (holdout if held else policy)
        group = None if share is None else "holdout" if held else "policy"
        found.append(
            row(*([1.0] if comes else []), key=f"u{key}", group=group, bandit_version=version, time=version)
        )
    return found


def report_of(rows: Sequence[Row], unit: Unit = "decision", share: float | None = None) -> Report:
    fold = ReportFold(1_000, unit, share=share)
    fold.add(rows, dict.fromkeys(SHARES, COINS), SHARES)
    return fold.report()


@pytest.mark.parametrize("unit", ["decision", "key"])
def test_decisions_of_a_holdout_that_was_all_or_nothing_are_counted_apart(unit: Unit):
    """And they delay no look: with keys there is one at 2,048 of those that are compared."""
    rng = np.random.default_rng(1)
    shadow, half, off, before = (
        stage(rng, 1, 5_000, 0.5, 0.5), stage(rng, 2, 2_100, 0.4, 0.2), stage(rng, 4, 700, 0.9, 0.9),
        stage(rng, 5, 300, 0.1, 0.1),
    )  # fmt: skip
    found, alone = report_of([*before, *shadow, *half, *off], unit), report_of(half, unit)
    assert found.ungrouped == 6_000
    assert (found.lift, found.groups, found.decisions) == (alone.lift, alone.groups, alone.decisions)
    assert found.as_of_decisions == alone.as_of_decisions == (2_100 if unit == "decision" else 2_048)
    assert found.lift.interval is not None
    assert found.lift.interval[0] > 0.0
    assert [(each.share, each.policy, each.holdout, each.weight) for each in found.stages] == [
        (1.0, 0, 5_000, 0.0), (0.0, 700, 0, 0.0),
        (0.5, *(sum(each.group == name for each in half) for name in ("policy", "holdout")), 1.0),
    ]  # fmt: skip
    # Buckets are of all that has a group.
    assert sum(each.decisions for bucket in found.buckets for each in bucket.groups) == 7_800


def test_a_shadow_has_a_holdout_and_no_lift():
    found = report_of(stage(np.random.default_rng(2), 1, 500, 0.5, 0.3))
    policy, holdout = found.groups
    assert (policy.decisions, holdout.decisions, found.ungrouped) == (0, 500, 0)
    assert holdout.interval is not None
    assert (found.lift.value, found.lift.interval) == (None, None)


def test_all_and_nothing_are_not_compared_with_each_other():
    """They were never drawn at the same time."""
    rng = np.random.default_rng(3)
    found = report_of([*stage(rng, 1, 500, 0.1, 0.1), *stage(rng, 4, 900, 0.9, 0.9)])
    assert (found.lift.value, found.lift.interval) == (None, None)


@pytest.mark.parametrize("unit", ["decision", "key"])
def test_means_and_lift_are_of_the_stages_by_their_weights(unit: Unit):
    rng = np.random.default_rng(4)
    rows = [stage(rng, 2, 2_048, 0.5, 0.4), stage(rng, 3, 2_048, 0.2, 0.1)]
    found = report_of([*rows[0], *rows[1]], unit)
    expected = np.zeros(2)
    for own, stage_report in zip(rows, found.stages, strict=True):
        means = [
            np.mean([len(each.rewards) for each in own if each.group == name])
            for name in ("policy", "holdout")
        ]
        expected += stage_report.weight * np.array(means)
    assert [each.mean_reward for each in found.groups] == pytest.approx(expected.tolist())
    assert found.lift.value == pytest.approx(expected[0] - expected[1])
    assert sum(each.weight for each in found.stages) == pytest.approx(1.0)
    assert found.stages[0].weight > 2 * found.stages[1].weight
    assert sum(each.decisions for each in found.groups) == found.as_of_decisions == 4_096
    assert found.lift.interval is not None
    assert found.lift.interval[0] < found.lift.value < found.lift.interval[1]
    assert found.interval_kind == "asymptotic"


@pytest.mark.parametrize(("unit", "few"), [("decision", 400), ("key", 400)])
def test_a_new_stage_waits_until_it_has_enough_of_both_groups(unit: Unit, few: int):
    """With 12 keys, or some 40 decisions, in the holdout an interval would be one of the first stage too."""
    rng = np.random.default_rng(5)
    first, second = stage(rng, 2, 1_648, 0.5, 0.4), stage(rng, 3, few, 0.2, 0.1, keys=120)
    found, alone = report_of([*first, *second], unit), report_of(first, unit)
    assert [each.weight for each in found.stages] == [1.0, 0.0]
    assert found.lift.value is not None
    assert alone.lift.value is not None
    assert found.lift.value == pytest.approx(alone.lift.value, abs=0.05)
    assert sum(each.decisions for each in found.groups) == 1_648
    assert found.as_of_decisions == 2_048


def test_the_same_share_twice_is_one_stage():
    """Whoever was drawn with one share was drawn alike, whenever it was."""
    rng = np.random.default_rng(6)
    rows = [*stage(rng, 2, 400, 0.5, 0.4), *stage(rng, 3, 2_000, 0.2, 0.1), *stage(rng, 2, 400, 0.5, 0.4)]
    found = report_of(rows)
    assert [(each.share, each.policy + each.holdout) for each in found.stages] == [(0.5, 800), (0.1, 2_000)]


def test_a_version_that_is_not_known_has_the_share_of_now():
    rows = stage(np.random.default_rng(7), 2, 600, 0.5, 0.4)
    fold = ReportFold(share=0.25)
    fold.add(rows, {2: COINS}, {})
    assert [each.share for each in fold.report().stages] == [0.25]
