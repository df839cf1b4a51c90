"""What a rebuild makes of rows that are rare: by hand, on lakes of a few rows."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.platform.errors import ShortlistError
from app.records.records import LearnerState, state_to_bytes
from lake_rows import ARM, TERMS, row
from shortlist.linear import ridge_sums
from shortlist_lake import tables
from shortlist_lake.files import Lake
from shortlist_lake.rebuild import mapped, plan_of, rebuilt
from shortlist_lake.writing import LakeWriter


def lake_of(folder: Path, *rows: tuple[int, Any], **terms: Any) -> Lake:
    lake = LakeWriter.open(str(folder / "lake"), "b", {**TERMS, **terms})
    for number, some in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
        days = {("rewards", day): table for day, table in tables.rewards(some).items()}
        if number == 0:
            days |= {("arms", day): table for day, table in tables.arms([ARM], 1).items()}
        lake.commit(days, {})
    lake.close()
    return Lake(lake.address)


def state_of(*rewards: float) -> LearnerState:
    count = len(rewards)
    features = np.tile([1.0, 2.0], (count, 1))
    sums = ridge_sums.of(features, np.array(rewards), np.ones(count, dtype=bool))
    return LearnerState(count, sums)


def given(*rewards: float) -> str:
    return base64.b64encode(state_to_bytes(state_of(*rewards))).decode()


def values(lake: Lake) -> dict[str, tuple[int, float]]:
    """How many rewards each learner counts, and their sum."""
    return {key: (state.version, float(state.sums.moment[0])) for key, state in rebuilt(lake).items()}


def test_who_is_forgotten_begins_anew(tmp_path: Path):
    rows = [row(1), row(2, key="bob"), row(3, "forget"), row(4, value=7.0), row(5, "forget", key="bob")]
    assert values(lake_of(tmp_path, *rows)) == {"ann": (1, 7.0)}


def test_a_state_counts_for_a_learner_without_rewards_alone(tmp_path: Path):
    rows = [
        row(1, "state", state=given(2.0, 3.0)),
        row(2, value=1.0),
        row(3, "state", state=given(100.0)),
        row(4, key="bob"),
        row(5, "state", key="bob", state=given(100.0)),
        row(6, key="carl"),
        row(7, "forget", key="carl"),
        row(8, "state", key="carl", state=given(4.0)),
    ]
    assert values(lake_of(tmp_path, *rows)) == {"ann": (3, 6.0), "bob": (1, 1.0), "carl": (1, 4.0)}


def test_a_state_that_was_given_before_a_learner_was_forgotten_counts_no_more(tmp_path: Path):
    rows = [
        row(1, "state", state=given(2.0, 3.0)),
        row(2, "forget"),
        row(3, value=7.0),
        row(4, "state", key="bob", state=given(100.0)),
        row(5, "forget", key="bob"),
        row(6, "state", key="bob", state=given(4.0)),
    ]
    assert values(lake_of(tmp_path, *rows)) == {"ann": (1, 7.0), "bob": (1, 4.0)}


def test_a_dead_letter_counts_when_it_came_again(tmp_path: Path):
    rows = [row(1, value=3.0), row(2, value=5.0), row(9, value=3.0, replayed=1)]
    assert values(lake_of(tmp_path, *rows)) == {"ann": (2, 8.0)}


def test_a_default_goes_where_a_reward_takes_its_place(tmp_path: Path):
    rows = [row(1, "default", value=-0.5), row(2, "reward", value=2.0, first=False, replaces=-0.5)]
    lake = lake_of(tmp_path, *rows)
    [state] = rebuilt(lake).values()
    assert (state.version, state.sums.observations) == (2, 1)
    np.testing.assert_allclose(state.sums.moment, [2.0, 4.0])
    assert state.sums.squares == pytest.approx(4.0)


@pytest.mark.rest
def test_what_campaigns_teach_has_its_own_features(tmp_path: Path):
    rows = [row(1, "other", revision=None, features=[3.0, 4.0]), row(2, key=None)]
    found = rebuilt(lake_of(tmp_path, *rows))
    np.testing.assert_allclose(found["ann"].sums.moment, [3.0, 4.0])
    assert set(found) == {"ann", "_global"}


@pytest.mark.rest
def test_arms_of_a_request_have_their_own_features(tmp_path: Path):
    rows = [row(1, "reward", revision=0, features=[3.0, 4.0]), row(2, value=2.0)]
    found = rebuilt(lake_of(tmp_path, *rows))
    np.testing.assert_allclose(found["ann"].sums.moment, [3.0 + 2.0, 4.0 + 4.0])


@pytest.mark.rest
def test_nothing_makes_nothing(tmp_path: Path):
    lake = LakeWriter.open(str(tmp_path / "lake"), "b", TERMS)
    lake.close()
    assert dict(rebuilt(lake)) == {}
    empty = tables.rewards([row(1)])["1970-01-01"].slice(0, 0)
    assert mapped(plan_of(lake), empty).states == {}


@pytest.mark.rest
def test_vectors_of_another_length_are_damage(tmp_path: Path):
    lake = lake_of(tmp_path, row(1), row(2), features=3)
    with pytest.raises(ShortlistError, match="wrong length"):
        rebuilt(lake)


@pytest.mark.rest
def test_two_that_write_at_once_do_not_mix(tmp_path: Path):
    """In a store without locks the manifest tells."""
    one = LakeWriter.open("memory://two", "b", TERMS)
    other = LakeWriter.open("memory://two", "b", TERMS)
    one.commit({("arms", "1970-01-01"): tables.arms([ARM], 1)["1970-01-01"]}, {})
    with pytest.raises(ShortlistError, match=r"somebody else writes|exists already"):
        other.commit({("arms", "1970-01-01"): tables.arms([ARM], 1)["1970-01-01"]}, {})
    assert Lake("memory://two").manifest["rows"]["arms"] == 1
    assert len(Lake("memory://two").read(Lake("memory://two").files("arms")[0])) == 1
