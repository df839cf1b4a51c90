"""`shortlist bench people`: worlds, opponents and what their rows say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from studies.bench import behaviour_worlds, people, people_page
from studies.bench.behaviour_worlds import Events
from studies.bench.opponents import OPPONENTS

pytestmark = pytest.mark.rest

DOCS = Path(__file__).parents[3] / "docs"
TASTES = 4  # each person of this past likes the arms of one taste, each arm is of one


def of_one_taste(people_count: int, arms: int) -> Events:
    """Everybody was shown every arm."""
    who, what = (grid.ravel() for grid in np.meshgrid(np.arange(people_count), np.arange(arms)))
    return Events(who, what, who % TASTES == what % TASTES)


@pytest.mark.slow
def test_every_setting_has_a_row_by_the_service_and_an_opponent():
    everything, liked = of_one_taste(40, 80), np.random.default_rng(6).random(3_200) < 0.5
    past = Events(everything.people, everything.arms, liked)

    def tastes(_draw: int) -> behaviour_worlds.World:
        likes = np.equal.outer(np.arange(4), np.arange(80) % TASTES)
        return behaviour_worlds.World("tastes", np.eye(TASTES)[np.arange(80) % TASTES], likes, past, 40)

    rows = people.rows_of([tastes], OPPONENTS[:2], rounds=3, draws=1)
    assert {(row["setting"], row["opponent"]) for row in rows} == {
        (setting, opponent)
        for setting in ("table", "history", "behaviour", "begin")
        for opponent in ("popular", "item-kNN")
    } | {("behaviour", "no prior")}
    ratios = [row["ratio"] for row in rows]
    assert ratios == sorted(ratios, reverse=True), "the worst is last"
    assert all(row["ours"] > 0.0 for row in rows)


def test_the_table_and_the_picture_are_those_of_the_file():
    """`python -m studies.bench.people_page` renews both."""
    record = json.loads((DOCS / "figures/people.json").read_text())
    assert (DOCS / "figures/people.svg").read_text() == people_page.picture(record)
    assert people_page.table(record) in (DOCS / "measurements.md").read_text()
    assert {row["opponent"] for row in record["rows"]} == people_page.NAMES.keys()


def test_the_readme_says_where_others_earn_more():
    rows = json.loads((DOCS / "figures/people.json").read_text())["rows"]
    ratios = {(row["world"], row["setting"], row["opponent"]): row["ratio"] for row in rows}
    knn, als = (ratios.pop(("niches", "history", opponent)) for opponent in ("item-kNN", "ALS"))
    text = f"{knn:.2f} of the hits of item-kNN and {als:.2f} of those of ALS, over all rounds; everywhere"
    readme = " ".join((DOCS.parent / "README.md").read_text().split())
    assert f"{text} else at least {min(ratios.values()):.2f} of anybody's" in readme
