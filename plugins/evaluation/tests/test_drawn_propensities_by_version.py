"""Learners at the version that made a decision, from rewards in the order in which they came."""

from __future__ import annotations

import numpy as np
import pytest

from app.records.log_entries import RewardEntry
from app.records.records import LearnerState
from app.storage.types import LearnerId, LogEntry
from shortlist.linear import ridge_sums
from shortlist_evaluation.drawn_propensities import LearnersByVersion
from shortlist_service.decision_log import TimedReward

pytestmark = pytest.mark.rest

LEARNER, OTHER = LearnerId("b", "ann"), LearnerId("b", "bob")


def reward(came_ms: float, value: float, learner: LearnerId = LEARNER) -> TimedReward:
    features = np.array([value, 1.0]).astype("<f8").tobytes()
    return came_ms, (LogEntry("", learner, b""), RewardEntry(features, value))


def moment(state: LearnerState | None) -> list[float]:
    assert state is not None
    return list(state.sums.moment)


def test_a_version_knows_the_rewards_that_came_first() -> None:
    learners = LearnersByVersion({})
    assert learners.at(LEARNER, 0) is None
    learners.add([reward(30.0, 3.0), reward(10.0, 1.0), reward(20.0, 9.0, OTHER)])
    assert moment(learners.at(LEARNER, 1)) == pytest.approx([1.0, 1.0])
    learners.add([reward(20.0, 2.0)])
    state = learners.at(LEARNER, 2)
    assert moment(state) == pytest.approx([5.0, 3.0])
    assert learners.at(LEARNER, 2) is state
    assert moment(learners.at(LEARNER, 3)) == pytest.approx([14.0, 6.0])


def test_versions_that_are_not_known_have_no_state() -> None:
    learners = LearnersByVersion({LEARNER: LearnerState(5, ridge_sums.empty(2))})
    learners.add([reward(10.0, 1.0)])
    assert learners.at(LEARNER, 4) is None, "it is known later only"
    assert learners.at(LEARNER, 7) is None, "a reward is missing"
    state = learners.at(LEARNER, 6)
    assert state is not None
    assert state.version == 6
    learners.inexact.add(LEARNER)
    assert learners.at(LEARNER, 6) is None
