"""The benchmark of signals, on worlds small enough for a test: its figures are what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from studies.bench import signals_cost, signals_front, signals_places

pytestmark = pytest.mark.rest

P = np.array([1.0, 0.62, 0.41])


def test_the_right_examination_lowers_the_regret_by_a_fifth():
    """Over six runs of 4,000 decisions it was .22."""
    row = signals_places.row(P, 50, 5, 2, decisions=2_000)
    assert row["ratio"] < 0.8
    assert row["error"] < 0.1


def test_a_wrong_examination_does_not(monkeypatch: pytest.MonkeyPatch):
    """The broken variant: what is taken for the examination is upside down."""
    original = signals_places.regret
    monkeypatch.setattr(
        signals_places, "regret", lambda world, known, *rest: original(world, known[::-1].copy(), *rest)
    )
    assert signals_places.row(P, 50, 5, 2, decisions=1_000)["ratio"] > 0.8


@pytest.mark.slow
def test_the_dial_finds_the_front_of_the_known_world():
    worlds = [signals_front.known(number) for number in range(2)]
    found = signals_front.front("known", worlds, 600, 25, goal_is_best=True, dial=(0.0, 1.0))
    for row in found:
        assert row["random"] < row["dial"] <= row["best"]
        assert row["random"] < row["own"] <= row["best"]
    first, last = found
    assert last["dial_r1"] > first["dial_r1"]
    assert first["dial_r2"] > last["dial_r2"]


def test_data_are_counted_until_a_goal_is_kept():
    goal = np.array([0.1, 0.9, 0.5, 0.9, 0.9])
    assert signals_front.needed(goal, 0.8, 10) == 40
    assert signals_front.needed(goal, 0.95, 10) == np.inf
    assert signals_front.needed(goal, 0.0, 10) == 10
    assert signals_front.middle([10, np.inf, 30]) == 30
    assert signals_front.middle([10, np.inf, np.inf]) is None


def test_films_have_a_learner_for_each_user(movielens_100k: Path):
    users = signals_front.films(movielens_100k, 2)
    for user in users:
        assert set(np.unique(user.means[:, 0])) <= {0.0, 1.0}
        assert ((user.means[:, 0] == 1.0) == (user.means[:, 1] >= 0.8)).all()
    (row,) = signals_front.front("films", users, 50, 5, goal_is_best=False, dial=(0.5,))
    assert 0.0 <= row["dial"] <= row["best"]


def test_intervals_are_held_against_the_truth(monkeypatch: pytest.MonkeyPatch):
    assert all(row["coverage"] > 0.6 for row in signals_front.coverage(logs=2))
    original = signals_front.World.value
    monkeypatch.setattr(signals_front.World, "value", lambda *args: original(*args) + 1.0)
    assert all(row["coverage"] == 0.0 for row in signals_front.coverage(logs=2))


def test_the_cost_has_a_row_of_each_kind():
    features = np.random.default_rng(1).standard_normal((3_000, signals_cost.DIM))
    rows = signals_cost.choices(features, 1, counts=(1, 2))
    assert [(row["J"], row["weights"]) for row in rows] == [
        (0, "own"), (1, "own"), (1, "request"), (2, "own"), (2, "request"),
    ]  # fmt: skip
    assert rows[0]["choose_ratio"] == 1.0
