"""A shop measures its policy, sees the lift, and changes the policy by what its log says of others."""

from __future__ import annotations

import pytest

from examples import is_it_better
from examples.service import temporary_service
from shortlist_client import Client

pytestmark = pytest.mark.slow  # three weeks of a shop


@pytest.fixture(scope="module")
def story() -> is_it_better.Story:
    with temporary_service() as server, Client(server.url) as client:
        return is_it_better.play(client, seed=2)


def test_the_lift_appears_and_only_then_the_shop_stops(story: is_it_better.Story) -> None:
    *before, last = story.days
    assert before
    assert not any(is_it_better.is_clear(report) for report in before)
    assert is_it_better.is_clear(last)
    low, high = last.lift.interval or (0.0, 0.0)
    assert 0 < low < (last.lift.value or 0.0) < high
    assert last.interval_kind == "bounded"


def test_what_the_evaluation_said_comes_true(story: is_it_better.Story) -> None:
    (estimate,) = story.evaluations[story.temperature].estimates
    was, now = story.days[-1].groups[0].mean_reward or 0.0, story.since.groups[0].mean_reward or 0.0
    assert estimate.interval is not None
    assert estimate.interval[0] > was  # so it was worth changing
    assert now > was + 0.1
    assert now == pytest.approx(estimate.value, abs=0.15)


def test_the_bandit_was_changed_and_its_learner_kept(story: is_it_better.Story) -> None:
    assert story.version == 2
    assert story.temperature in is_it_better.OTHER_TEMPERATURES
    assert story.after == story.before
    assert story.after.observations == len(story.days) * is_it_better.CUSTOMERS
    decided = sum(group.decisions for group in story.since.groups)
    assert decided == is_it_better.DAYS_AFTER * is_it_better.CUSTOMERS
