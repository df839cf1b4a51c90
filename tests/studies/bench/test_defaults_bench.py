"""The benchmark of defaults on worlds small enough for a test."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from server import cli
from shortlist.linear import ridge, ridge_sums
from shortlist.linear.scales import Scales
from studies.bench import classes, defaults, few_keys, many_keys, noise_levels
from studies.bench.defaults import OURS, ahead_from
from studies.bench.few_keys import Setting, gauss, play

pytestmark = pytest.mark.rest


FEW = few_keys.Sizes(arms=60, keys=3, rounds=25, click_rounds=3, users=4, film_rounds=5)
SMALL = dataclasses.replace(defaults.QUICK, early=12, few=FEW, genre_users=8, click_users=8)


@pytest.fixture
def two_crowds(monkeypatch):
    crowd = partial(many_keys.gauss, keys=8, rounds=6)
    monkeypatch.setattr(
        many_keys, "worlds", lambda: [partial(crowd, "people16"), partial(crowd, "drift", drift=3)]
    )


@pytest.mark.slow
def test_every_world_has_its_rows(two_crowds, movielens_100k: Path, capsys):
    found = json.loads(json.dumps(defaults.run(quick=True, data=movielens_100k, sizes=SMALL)))
    rows, crowds, levels = found["rows"][:17], found["rows"][17:25], found["rows"][25:]
    assert [(row["world"], row["rounds"]) for row in rows] == [
        *((world, rounds) for world in ("gauss4", "gauss16") for rounds in (12, 25)),
        *((f"gauss16 x {scale}", rounds) for scale in (0.1, 10) for rounds in (12, 25)),
        *((world, rounds) for world in ("gauss64", "lognormal") for rounds in (12, 25)),
        ("clicks", 3),
        ("context", 12),
        ("context", 25),
        ("films", 5),
        ("films again", 5),
    ]
    fresh, best = gauss("gauss4", 4, 1, sizes=FEW), Setting(rows[1]["exploration"], rows[1]["ridge"])
    assert rows[1]["ratio"] == pytest.approx(play(fresh, OURS).mean() / play(fresh, best).mean())
    assert {row["D"] for row in rows} == {4, 16, 48, 64}
    assert {row["keys"] for row in rows} == {2, 3, 4}
    assert [row["world"] for row in crowds] == [
        "people16",
        "drift",
        "genres",
        "genres, 150 others",
        "drawn clicks",
        "drawn clicks, none twice",
        "drawn clicks, 125 rounds",
        "drawn clicks, none twice, 125 rounds",
    ]
    for row in crowds:
        assert row["gain"] == pytest.approx(row["ours"] / row["plain"] - 1.0)
        assert (row["simulated"] is None) == (row["world"] == "genres, 150 others")
    assert {(row["signal"], row["D"]) for row in levels} == {
        (signal, dim) for signal in (30.0, 10.0, 3.0, 1.0, 0.3) for dim in (17, 65)
    }
    assert "ratio" in capsys.readouterr().out


def test_ours_does_not_depend_on_the_unit_of_features():
    plain, scaled = (play(gauss("gauss16", 16, 0, scale=scale, sizes=FEW), OURS) for scale in (1.0, 0.125))
    assert plain.tobytes() == scaled.tobytes()
    assert plain[:, 15:].mean() > plain[:, :5].mean()


@pytest.mark.parametrize(("behind", "expected"), [([], 1), ([2], 4), ([24], None)])
def test_ahead_is_for_good(behind, expected):
    rewards = np.ones((3, 25))
    rewards[:, behind] = -1.0
    world = gauss("gauss4", 4, 0, sizes=FEW)
    assert ahead_from(world, rewards, np.zeros((3, 25)), window=1) == expected


def test_without_data_the_films_are_left_out_and_a_wrong_folder_is_named(tmp_path: Path, capsys):
    assert cli.main(["bench", "defaults", "--quick", "--data", str(tmp_path)]) == 2
    assert "no MovieLens ratings" in capsys.readouterr().err


def test_the_best_of_a_grid_is_compared_in_draws_that_did_not_choose_it(monkeypatch):
    """Two settings that differ by chance alone: ours is chosen as neither, but is no worse in other draws."""
    earned = {0: (1.0, 1.0, 5.0), 1: (1.0, 2.0, 1.0)}  # by draw: ours, and the two of the grid
    grid = [many_keys.GRID[0], many_keys.GRID[1]]

    def play(world, way, *, seed):
        assert world.name == f"draw {seed}"
        return np.full((2, 6), earned[seed][grid.index(way) + 1 if way in grid else 0])

    monkeypatch.setattr(many_keys, "play", play)
    draw = many_keys.gauss("any", 0, keys=2, rounds=6)
    row = many_keys.rows_of(lambda number: dataclasses.replace(draw, name=f"draw {number}"), 1, grid)
    assert (row["best"], row["best_way"], row["ratio"]) == (5.0, str(grid[1]), 1.0)


def test_keys_are_away_before_they_come_and_after_they_stayed():
    world = many_keys.gauss("any", 0, keys=3, rounds=6, arrival=2, stay=3)
    there = [[True] * 3 + [False] * 3, [False] * 2 + [True] * 3 + [False], [False] * 4 + [True] * 2]
    for played in (many_keys.play(world, many_keys.OURS), many_keys.popular(world)):
        np.testing.assert_array_equal(~np.isnan(played), there)


def test_who_comes_later_is_better_served_where_keys_share_a_taste():
    """With the prior the keys of the last turns of the first round know what the first ones liked; without,
    they know nothing. A seeded play; its margin is some 10 standard errors.
    """
    world = many_keys.gauss("people16", 0, keys=60, rounds=1)
    learned, alone = (many_keys.play(world, way) for way in (many_keys.OURS, many_keys.PLAIN))
    assert learned[30:].mean() > 1.0 + alone[30:].mean()
    assert many_keys.popular(world).mean() > learned.mean()


@pytest.mark.slow
def test_who_shares_nothing_loses_next_to_nothing():
    """At most 4 % of what each key earns for itself; a prior that takes people for nearly alike loses half.
    Seeded plays.
    """
    world = many_keys.gauss("own", 0, rounds=40, kind="nothing shared")
    alone, learned, too_sure = (
        many_keys.play(world, way).mean()
        for way in (many_keys.PLAIN, many_keys.OURS, many_keys.Way(exploration=0.6, strength=30.0))
    )
    assert learned >= 0.96 * alone
    assert too_sure < 0.96 * alone, "the check tells a prior that is too sure"


def test_one_learner_for_all_keys_learns_from_each_and_knows_nobody():
    """Where all that keys like is their own, it is no better than any arm; where it is shared, it is as good
    after a round as a key alone after many. Seeded plays; margins of some 10 standard errors.
    """
    shared, own = (
        many_keys.gauss("people16", 0, rounds=2),
        many_keys.gauss("own", 0, rounds=2, kind="nothing shared"),
    )
    together, alone = (many_keys.play(shared, way) for way in (many_keys.GLOBAL, many_keys.PLAIN))
    assert together[:, 1].mean() > 1.0 + alone[:, 1].mean()
    assert abs(many_keys.play(own, many_keys.GLOBAL).mean()) < 0.5


def test_most_popular_moves_on_where_nothing_is_shown_twice():
    world = many_keys.gauss("people16", 0, keys=4, rounds=3)
    once = many_keys.People(
        "once", world.features, world.means, world.popularity, 4, 3, shown=2, repeats=False
    )
    ranked = np.argsort(-world.popularity)
    expected = [world.means(0)[:, ranked[start : start + 2]].mean(axis=1) for start in (0, 2, 4)]
    np.testing.assert_array_equal(many_keys.popular(once), np.array(expected).T)


def test_who_knows_prior_and_noise_loses_little_and_the_worst_level_is_first():
    """Seeded plays; an oracle that were told a wrong prior would lose half of what random arms lose."""
    rows = noise_levels.rows(2, signals=(10.0, 1.0), dims=(16,), arms=(300,), rounds=100)
    assert [row["ratio"] for row in rows] == sorted((row["ratio"] for row in rows), reverse=True)
    by_signal = {row["signal"]: row for row in rows}
    assert by_signal[10.0]["oracle"] < by_signal[1.0]["oracle"] < 0.35
    for row in rows:
        assert row["ratio"] == pytest.approx(row["ours"] / row["oracle"])
        assert row["ours_error"] > 0.0
    worlds = [noise_levels.world(10.0, 16, 300, draw, 100) for draw in range(2)]
    assert noise_levels.regrets(worlds, Setting(0.6, ridge=100.0)).mean() > 2 * by_signal[10.0]["oracle"]


def test_a_company_among_people_changes_nothing_for_them():
    """Rewards 20 times as large of one key of six. Seeded plays."""
    alike, company = (
        many_keys.gauss("any", 0, keys=6, rounds=40, first_size=size) for size in (1.0, many_keys.COMPANY)
    )
    without, with_company = (many_keys.play(world, many_keys.OURS)[1:].mean() for world in (alike, company))
    assert with_company > 0.9 * without


def test_a_table_of_classes_becomes_one_hot_arms_with_a_context(tmp_path: Path):
    assert classes.rows(tmp_path, 1) == []
    rng = np.random.default_rng(5)
    numbers = rng.integers(0, 100, (90, 16))
    lines = [
        f'"{row}",{",".join(map(str, line))},"{"ABC"[line.argmax() % 3]}"' for row, line in enumerate(numbers)
    ]
    Path(tmp_path, "letter.csv").write_text("names\n" + "\n".join(lines))
    world = classes.world(tmp_path / "letter.csv", 0, 60)
    assert (world.dim, world.numbers, world.rounds) == (3 * 17, 18.0, 60)
    assert 0.0 <= world.contexts.min() < world.contexts.max() <= 1.0
    assert {float(world.means(0, at).sum()) for at in range(60)} == {1.0}
    (row,) = classes.rows(tmp_path, 2, rounds=60)
    assert (row["world"], row["K"], row["D"]) == ("letter", 3, 52)
    assert 0.0 < row["ours"] < 1.0


@pytest.mark.parametrize("policy", ["linear_ts", "softmax", "igw", "linucb"])
def test_each_policy_learns_and_takes_only_what_is_left(policy):
    """After 300 rewards each policy takes one of the best of 100 arms, and none of those that are gone."""
    rng = np.random.default_rng(11)
    features, theta = rng.standard_normal((100, 4)), np.array([3.0, 0.0, 0.0, 1.0])
    shown = rng.integers(100, size=300)
    sums = ridge_sums.of(features[shown], features[shown] @ theta, np.ones(300, dtype=np.bool_))
    posterior = Scales(None, learns_noise=True, least_ratio=0.0).posterior(sums)
    assert isinstance(posterior, ridge.Factored)
    best = np.argsort(-(features @ theta))
    left = np.ones(100, dtype=np.bool_)
    assert few_keys.choose(posterior, features, policy, exploration=0.5, rng=rng) in best[:3]
    left[best[:50]] = False
    chosen = {
        few_keys.choose(posterior, features, policy, exploration=0.5, rng=rng, left=left) for _ in range(20)
    }
    assert chosen <= set(best[50:].tolist())
    assert best[50] in chosen


def test_what_is_silent_is_told_as_zeros_and_not_counted():
    world = noise_levels.world(3.0, 4, 60, 0, 25)
    silent = dataclasses.replace(world, silent=25)
    assert noise_levels.row_of([dataclasses.replace(world, silent=5)], 3.0)["rounds"] == 20
    # Nothing is ever learned of rewards that are all 0: as good as any arm.
    played = play(silent, OURS)
    assert played.mean() < 0.5 * world.means(0, 0).max()
    assert play(world, OURS)[0, 15:].mean() > 0.5 * world.means(0, 0).max()
