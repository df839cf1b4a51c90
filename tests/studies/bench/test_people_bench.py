"""`shortlist bench people`: worlds, opponents and what their rows say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.platform.errors import ShortlistError
from studies.bench import behaviour_worlds, opponents, people, people_page
from studies.bench.behaviour_worlds import PLAYED, Events
from studies.bench.opponents import OPPONENTS, Given, ItemKnn, Popular
from studies.experiments import movielens

pytestmark = pytest.mark.rest

DOCS = Path(__file__).parents[3] / "docs"
TASTES = 4  # each person of this past likes the arms of one taste, each arm is of one


def of_one_taste(people_count: int, arms: int) -> Events:
    """Everybody was shown every arm."""
    who, what = (grid.ravel() for grid in np.meshgrid(np.arange(people_count), np.arange(arms)))
    return Events(who, what, who % TASTES == what % TASTES)


WORLDS = [behaviour_worlds.kinds, behaviour_worlds.niches, behaviour_worlds.thin, behaviour_worlds.sales]


@pytest.mark.parametrize("make", WORLDS)
def test_a_world_is_drawn_from_its_number_and_its_past_is_of_others(make):
    world, again, other = make(0, played=7, arms=90), make(0, played=7, arms=90), make(1, played=7, arms=90)
    assert np.array_equal(world.likes, again.likes)
    assert not np.array_equal(world.likes, other.likes)
    assert world.likes.shape == (7, 90)
    assert world.past.people.max() < world.others
    assert 0.0 < world.likes.mean() < world.past.liked.mean() < 1.0  # others were shown what they may like
    assert world.popularity.sum() == world.past.liked.sum()


def test_a_past_that_is_not_like_the_rewards_is_a_fifth_or_of_views():
    whole, thin = behaviour_worlds.kinds(0), behaviour_worlds.thin(0)
    assert np.array_equal(thin.likes, whole.likes)
    known = thin.past.liked.sum() / whole.past.liked.sum()
    assert known == pytest.approx(behaviour_worlds.KNOWN_OF_THIN, abs=0.02)  # four deviations
    sales = behaviour_worlds.sales(0)
    sold = sales.likes.sum(axis=0)[np.argsort(-sales.popularity)[:300]]
    assert 0.0 < sold.mean() < 0.5 * PLAYED, "most of what is viewed most is not bought"


def test_half_of_the_people_of_a_shop_were_shown_what_is_popular_and_no_column_says_it():
    world, again = behaviour_worlds.shop(0), behaviour_worlds.shop(0)
    assert np.array_equal(world.likes, again.likes)
    assert len(world.likes) == 2 * world.known == 2 * world.others
    shown = np.bincount(world.past.arms, minlength=len(world.table))
    new = world.likes[world.known :].mean(axis=0)
    assert np.corrcoef(shown, new)[0, 1] > 0.5
    told = world.table @ np.linalg.lstsq(world.table, new, rcond=None)[0]
    assert np.corrcoef(told, new)[0, 1] < 0.5 * np.corrcoef(world.popularity, new)[0, 1]
    past = world.past
    assert np.array_equal(world.likes[past.people, past.arms], past.liked), "the same people, the same likes"
    assert 3_600 < past.liked.sum() < 5_000
    assert 1_600 < np.count_nonzero(world.popularity == 0) < 2_000


def test_who_is_known_is_not_shown_again_what_they_liked_and_opponents_know_them():
    """Each person of the past liked ten arms of their taste, and likes the other ten too."""
    past = of_one_taste(TASTES, 40)
    likes = np.equal.outer(np.arange(TASTES), np.arange(80) % TASTES)
    world = behaviour_worlds.World("known", np.eye(80), likes, past, TASTES, TASTES)
    hits = people.play(world, ItemKnn(Given(world.table, TASTES), 0), 2)
    assert hits.tolist() == [0.0, 0.0], "what others liked comes before what nobody did, and is not for them"
    own = people.play(world, Popular(Given(world.table, TASTES), 0), 14)
    assert own.sum() == pytest.approx(10.0), "70 arms that they did not like before, ten of which they like"


@pytest.mark.rest
def test_films_hold_nothing_of_the_people_who_are_played(movielens_100k: Path):
    ratings = movielens.read(movielens_100k)
    world = behaviour_worlds.films(ratings, movielens.described(movielens_100k, ratings), 0, played=6)
    held, _, known = movielens.split(ratings, 6, seed=0)
    assert np.array_equal(world.likes, ratings.good[held].toarray() > 0.0)
    assert np.array_equal(world.popularity, ratings.good[known].sum(axis=0))
    assert world.others == len(known)
    assert 0 < (~world.past.liked).sum() > world.past.liked.sum()  # rated badly, or not at all


@pytest.mark.rest
@pytest.mark.parametrize("way", OPPONENTS, ids=lambda way: way.name)
def test_who_liked_an_arm_is_shown_arms_of_its_taste(way):
    """All but the most popular, who only knows how many liked each arm."""
    if way.module is not None:
        pytest.importorskip(way.module, reason="the extra `peers` is not installed")
    features = np.eye(TASTES)[np.arange(40) % TASTES]
    opponent = way.make(Given(features, TASTES, of_one_taste(60, 40), 60), 3)
    shown = np.arange(20)  # of which each person liked those of their taste
    liked = np.equal.outer(np.arange(TASTES), shown % TASTES)
    opponent.learn(Events(np.repeat(np.arange(TASTES), 20), np.tile(shown, TASTES), liked.ravel()))
    best = np.array([20 + opponent.scores(person)[20:].argsort()[-3:] for person in range(TASTES)])
    fits = best % TASTES == np.arange(TASTES)[:, None]
    assert fits.mean() == 1.0 if way.make is not Popular else fits.mean() < 1.0


@pytest.mark.rest
def test_without_a_past_what_was_liked_by_most_is_popular():
    given = Given(np.ones((5, 1)), 3)
    popular, similar = Popular(given, 0), ItemKnn(given, 0)
    shown = Events(np.array([0, 1, 2]), np.array([3, 3, 2]), np.array([True, True, False]))
    for opponent in (popular, similar):
        assert set(opponent.scores(0).round(3)) == {0.0}, "nothing is known of any arm"
        opponent.learn(shown)
        assert opponent.scores(2).argmax() == 3


@pytest.mark.rest
def test_what_is_not_installed_is_named(capsys: pytest.CaptureFixture[str]):
    gone = opponents.Way("gone", Popular, "no_such_module_anywhere")
    assert list(opponents.installed((gone, OPPONENTS[0]))) == [OPPONENTS[0]]
    assert "no_such_module_anywhere is not installed" in capsys.readouterr().out


def test_a_row_compares_draw_by_draw():
    ours = [np.array([1.0, 1.0, 1.0, 1.0, 1.0, 4.0]), np.array([2.0, 2.0, 2.0, 2.0, 2.0, 8.0])]
    theirs = [np.array([2.0, 2.0, 2.0, 2.0, 2.0, 2.0]), np.array([2.0, 2.0, 2.0, 2.0, 2.0, 2.0])]
    row = people.compared("ours", ours, "popular", theirs)
    assert (row["ours"], row["theirs"]) == (2.25, 2.0)
    assert (row["ratio"], row["error"]) == (pytest.approx(1.125), pytest.approx(0.375))  # .75 and 1.5
    assert (row["first5"], row["first5_error"]) == (pytest.approx(0.75), pytest.approx(0.25))  # .5 and 1
    assert row["ahead"] == 2  # -2.5 in rounds 1 to 5, 1 in 2 to 6


@pytest.mark.rest
@pytest.mark.parametrize(
    ("more", "expected"), [([1.0] * 6, 1), ([-9.0] + [1.0] * 6, 2), ([1.0] * 6 + [-9.0], None), ([1.0], 1)]
)
def test_ahead_is_for_good(more, expected):
    assert people.ahead_from(np.array(more)) == expected


@pytest.mark.rest
def test_nobody_is_shown_an_arm_twice():
    """Four rounds of five are all of 20 arms."""
    likes = np.random.default_rng(5).random((3, 20)) < 0.5
    world = behaviour_worlds.World("small", np.eye(20), likes, of_one_taste(4, 20), 4)
    hits = people.play(world, Popular(Given(world.table, 3), 0), 4)
    assert hits.sum() == pytest.approx(likes.sum() / 3)


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


@pytest.mark.rest
def test_a_wrong_folder_is_named_and_without_one_films_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(ShortlistError, match="no MovieLens"):
        people.worlds(True, tmp_path)
    assert len(people.worlds(True, None)) == 5
    assert "films are left out" in capsys.readouterr().out


def test_every_world_of_a_quick_run_has_its_settings():
    found = {
        world.name: [each.name for each in people.settings(world)]
        for world in (make(0) for make in people.worlds(True, None))
    }
    assert found.keys() == {"kinds", "niches", "thin", "sales", "shop"}
    assert found["shop"] == ["begin"]


def test_a_quick_run_says_that_its_worlds_are_smaller(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(people, "rows_of", lambda *_, **__: [{"ratio": 1.0}])
    people.run(True)
    assert "smaller worlds of the same kinds, with 30 people" in capsys.readouterr().out
    people.run(False)
    assert "smaller worlds" not in capsys.readouterr().out


def test_the_table_and_the_picture_are_those_of_the_file():
    """`python -m studies.bench.people_page` renews both."""
    record = json.loads((DOCS / "figures/people.json").read_text())
    assert (DOCS / "figures/people.svg").read_text() == people_page.picture(record)
    assert people_page.table(record) in (DOCS / "measurements.md").read_text()
    assert {row["opponent"] for row in record["rows"]} == people_page.NAMES.keys()


def test_the_table_begins_with_the_worst_and_says_what_was_not_measured():
    def row(world: str, ratio: float, error: float | None) -> dict[str, object]:
        found = {"world": world, "setting": "table", "opponent": "popular", "ours": 1.5, "ahead": None}
        return {**found, "ratio": ratio, "error": error, "first5": 0.5, "first5_error": error}

    record = {"rows": [row("good", 2.0, None), row("bad", 0.8, 0.04)]}
    assert people_page.table(record).splitlines()[2:] == [
        f"| bad | table | 1.50 | 0.80 (0.04); 0.50 (0.04); never |{' not measured |' * 5}",
        f"| good | table | 1.50 | 2.00; 0.50; never |{' not measured |' * 5}",
    ]
    assert people_page.picture(record).count("<circle") == len(people_page.NAMES) + 2 * 2
