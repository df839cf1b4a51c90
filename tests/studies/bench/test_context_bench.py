"""The benchmark of contexts on worlds small enough for a test: the ways meet the same users; none peeks."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from app.records.log_entries import decoded_all
from server import cli
from shortlist.linear import bilinear
from studies.bench import (
    context,
    context_decisions,
    context_films,
    context_learning,
    context_peers,
    context_regret,
)
from studies.bench.choose import index_of
from studies.bench.context_films import Films, Setting, User, Way
from studies.experiments import movielens

pytestmark = pytest.mark.rest


ROUNDS = 5
SMALL = context.Sizes(
    films=context_films.Sizes(tuning=3, splits=2, served=6, rounds=ROUNDS),
    regret=context_regret.Sizes(arms=300, steps=150, seeds=2),
    learning=context_learning.Sizes(batch=20, batches=2, shapes=((4, 0, 0), (4, 3, 2))),
    decisions=context_decisions.Sizes(arms=2_000, decisions=30, turn=10, shapes=((2, 3), (4, 32))),
)


@pytest.fixture
def no_peers(monkeypatch):
    monkeypatch.setattr(context_peers, "find_spec", lambda name: None)


@pytest.mark.slow
def test_every_part_has_its_rows(no_peers, movielens_100k: Path, capsys):
    result = json.loads(json.dumps(context.run(quick=True, data=movielens_100k, sizes=SMALL)))
    assert result["benchmark"] == "context"
    rows = {part: [row for row in result["rows"] if row["part"] == part] for part in ("films", "regret")}
    assert [row["way"] for row in rows["films"]] == [way.name for way in context_films.WAYS]
    assert [row["policy"] for row in rows["regret"]] == ["exact", "sub_ts", "blind"]
    for row in rows["films"]:
        assert 0.0 < row["reward"] < 1.0
        assert row["users"] == 12
    decisions = [row for row in result["rows"] if row["part"] == "decisions"]
    assert [(row["m"], row["p"], row["D"]) for row in decisions] == [
        (None, None, 32),
        (2, 3, 38),
        (4, 32, 160),
    ]
    assert (decisions[0]["ratio"], decisions[0]["extra_ms"]) == (1.0, 0.0)
    learning = [row for row in result["rows"] if row["part"] == "learning"]
    assert [(row["D"], row["rewards"]) for row in learning] == [(4, 40), (10, 40)]
    printed = capsys.readouterr().out
    assert "vowpal is not installed" in printed
    assert "bayesianbandits is not installed" in printed


@pytest.mark.slow
def test_without_data_the_films_are_left_out(capsys):
    parts = {row["part"] for row in context.run(quick=True, sizes=SMALL)["rows"]}
    assert parts == {"regret", "learning", "decisions"}
    assert "--data" in capsys.readouterr().out


def test_a_folder_without_ratings_is_named(tmp_path: Path, capsys):
    assert cli.main(["bench", "context", "--quick", "--data", str(tmp_path)]) == 2
    assert "no MovieLens ratings" in capsys.readouterr().err


def test_data_is_refused_where_none_is_read(tmp_path: Path, capsys):
    assert cli.main(["bench", "churn", "--data", str(tmp_path)]) == 2
    assert "churn reads no data" in capsys.readouterr().err


class TestRegret:
    @pytest.fixture
    def small_world(self):
        return context_regret.make(1, SMALL.regret)

    def played(self, small_world, learner):
        snapshot = index_of("auto", small_world.arms, 1).snapshot()
        return context_regret.play(small_world, learner(small_world, snapshot), 1)[0]

    def test_with_an_exact_index_both_ways_choose_the_same_arms(self, small_world):
        assert self.played(small_world, context_regret.SubTs) == pytest.approx(
            self.played(small_world, context_regret.Explicit), rel=1e-9
        )

    def test_the_context_matters(self, small_world):
        assert self.played(small_world, context_regret.SubTs) < 0.8 * self.played(
            small_world, context_regret.Blind
        )

    def test_a_learner_that_takes_another_context_for_its_own_shows(self, small_world):
        class Stale(context_regret.SubTs):
            def learn(self, arm, context, reward):
                super().learn(arm, np.roll(context, 1), reward)

        assert self.played(small_world, Stale) > 1.2 * self.played(small_world, context_regret.SubTs)

    def test_rewards_are_as_described(self, small_world):
        phi = bilinear.phi(small_world.arms, small_world.directions, small_world.contexts[0])
        parameter = np.concatenate((small_world.theta, small_world.weights.ravel()))
        assert small_world.means(small_world.contexts[0]) == pytest.approx(phi @ parameter, rel=1e-9)
        assert np.linalg.norm(small_world.contexts, axis=1) == pytest.approx(1.0)


class TestFilms:
    @pytest.fixture
    def ratings(self, movielens_100k: Path) -> movielens.Ratings:
        return movielens.read(movielens_100k)

    @pytest.fixture
    def films(self, ratings) -> Films:
        return context_films.films_for(ratings, np.arange(8), np.arange(8), seed=1)

    def test_users_of_a_split_are_in_no_other_part(self, ratings, monkeypatch):
        seen = []
        monkeypatch.setattr(
            context_films, "films_for", lambda _, served, out, seed: seen.append((served, out))
        )
        context_films.groups(ratings, context_films.Sizes(tuning=4, served=10, splits=3))
        tuning = set(seen[0][0])
        assert len(seen) == 4
        for served, left_out in seen[1:]:
            assert len(served) == 10
            assert not tuning & set(served)
            assert tuning | set(served) == set(left_out)

    def test_what_is_rewarded_is_no_part_of_the_context(self, ratings):
        """With the ratings of the other half turned round, contexts and predictions stay; likes change."""
        served = np.arange(3)
        before = context_films.films_for(ratings, served, served, seed=1)
        turned = ratings.values.copy()
        for user, known in zip(served, before.users, strict=True):
            other = (ratings.users == user) & ~np.isin(ratings.movies, known.known)
            turned[other] = 6 - turned[other]
        after = context_films.films_for(replace(ratings, values=turned), served, served, seed=1)
        for one, other in zip(before.users, after.users, strict=True):
            assert one.context.tolist() == other.context.tolist()
            assert one.predicted.tolist() == other.predicted.tolist()
            assert one.likes.tolist() != other.likes.tolist()
            assert not one.likes[one.known].any()
            assert np.linalg.norm(one.context) == pytest.approx(1.0)

    @pytest.mark.parametrize("way", context_films.WAYS, ids=lambda way: way.name)
    def test_no_film_is_shown_twice_or_was_rated_before(self, films, way: Way):
        shown: dict[int, list[int]] = {}

        class Watched:
            def __init__(self) -> None:
                self.inner = way.make(films, way.settings[0], 1)

            def start(self, user):
                self.inner.start(user)

            def choose(self, user, excluded, rng):
                film = self.inner.choose(user, excluded, rng)
                shown.setdefault(id(user), user.known.tolist()).append(film)
                return film

            def learn(self, user, film, reward):
                assert reward == user.likes[film]
                self.inner.learn(user, film, reward)

        context_films.play(Watched(), films, 1, ROUNDS)
        assert len(shown) == len(films.users)
        for own in shown.values():
            assert len(set(own)) == len(own)

    def test_who_knows_the_likes_gets_all_rewards(self, films):
        oracle = context_films.Ranked(lambda user: user.likes)
        there = [min(ROUNDS, user.likes.sum()) for user in films.users]
        assert context_films.play(oracle, films, 1, ROUNDS).reward == np.mean(there) / ROUNDS

    def test_the_best_setting_is_taken(self, films):
        def make(_films, sign, _seed):
            return context_films.Ranked(lambda user: sign * user.likes.astype(float))

        assert context_films.tune(Way("w", make, [-1, 1, 0]), films, ROUNDS) == 1

    def test_too_few_users_are_refused(self, ratings):
        with pytest.raises(ValueError, match="only 48 users"):
            context_films.groups(ratings, context_films.Sizes(tuning=10, served=39, splits=1))

    def test_with_a_context_that_tells_the_taste_it_earns_more(self):
        """Two tastes, told by the context: who sees it, shows each its own films."""
        rng = np.random.default_rng(2)
        features = rng.standard_normal((60, context_films.DIM)) / 10
        features[:, 0] = np.repeat((1.0, -1.0), 30)
        users = []
        for number in range(30):
            context = np.zeros(context_films.CONTEXT)
            context[0] = sign = (-1.0) ** number
            users.append(User(context, np.array([0, 30]), features[:, 0] * sign > 0, np.zeros(60)))
        films = Films(features, np.ones(60), users)
        setting = Setting(0.3, 0.05, context_films.DIM)
        told, blind = (
            context_films.play(context_films.Bandit(films, each, 1), films, 1, rounds=20).reward
            for each in (setting, replace(setting, interactions=None))
        )
        assert told > 0.9
        assert blind < 0.8


class TestPeers:
    @pytest.fixture
    def films(self) -> Films:
        rng = np.random.default_rng(4)
        likes = np.arange(6) % 2 == 0
        user = User(rng.standard_normal(context_films.CONTEXT), np.array([1, 4]), likes, np.zeros(6))
        return Films(rng.standard_normal((6, context_films.DIM)), np.ones(6), [user])

    def test_vowpal_gets_the_eligible_films_and_learns_the_one_it_chose(self, films, monkeypatch):
        texts = []

        class Workspace:
            def __init__(self, arguments: str) -> None:
                assert "--cb_explore_adf" in arguments

            def predict(self, text: str) -> list[float]:
                texts.append(text.splitlines())
                return [0.0, 0.0, 0.5, 0.0]

            def learn(self, text: str) -> None:
                texts.append(text.splitlines())

        monkeypatch.setitem(sys.modules, "vowpalwabbit", SimpleNamespace(Workspace=Workspace))
        (user,) = films.users
        peer = context_peers.Vowpal(films, "", 1)
        film = peer.choose(user, user.known, np.random.default_rng(0))
        assert film == 3  # the third of 0, 2, 3, 5
        peer.learn(user, film, 1.0)
        asked, taught = texts
        assert len(asked) == 5
        assert asked[0].startswith("shared |u 0:")
        assert all(line.startswith("|f 0:") for line in asked[1:])
        assert [line for line in taught if ":-1.0:1.0 |f" in line] == [taught[3]]
        assert taught[3].endswith(asked[3])
        assert taught[:3] + taught[4:] == asked[:3] + asked[4:]

    def test_every_peer_has_as_many_settings_as_shortlist(self):
        assert {len(way.settings) for way in context_peers.PEERS} == {len(context_films.WITH_CONTEXT)}

    @pytest.mark.parametrize("way", context_peers.PEERS, ids=lambda way: way.name)
    def test_an_installed_peer_shows_no_excluded_film(self, films, way: Way):
        pytest.importorskip(context_peers.MODULES[way.name])
        (user,) = films.users
        peer = way.make(films, way.settings[0], 1)
        rng = np.random.default_rng(0)
        for _ in range(20):
            film = peer.choose(user, user.known, rng)
            assert film not in user.known
            peer.learn(user, film, float(user.likes[film]))


def test_learning_is_compared_with_the_same_sums():
    """What is folded are the sums that the product in numpy gives."""
    taught = np.random.default_rng(1).standard_normal((5, 3))
    values = np.arange(5.0)
    entries = context_learning.log_entries(taught, values, first=0)
    state = context_learning.fold({}, decoded_all(entries))[context_learning.LEARNER]
    assert state is not None
    assert state.sums.gram == pytest.approx(taught.T @ taught)
    assert state.sums.moment == pytest.approx(taught.T @ values)
