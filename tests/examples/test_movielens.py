"""Reading, splitting and features: what is held back must not leak."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples import movielens


@pytest.mark.rest
def test_both_formats_give_the_same_ratings(movielens_100k: Path, movielens_1m: Path) -> None:
    old, new = movielens.read(movielens_100k), movielens.read(movielens_1m)
    for field in ("users", "movies", "values"):
        assert np.array_equal(getattr(old, field), getattr(new, field))
    assert old.movie_ids == new.movie_ids
    assert len(old.movie_ids) == old.movies.max() + 1


@pytest.mark.parametrize("content", ["1\t2\n", "a::b::c::d\n", "1\t2\tx\t4\n"])
def test_other_content_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "u.data").write_text(content)
    with pytest.raises(ValueError, match="not in MovieLens format"):
        movielens.read(tmp_path)


@pytest.mark.rest
def test_the_groups_are_apart_and_rate_enough(movielens_100k: Path) -> None:
    ratings = movielens.read(movielens_100k)
    held, others, known = movielens.split(ratings, 10, seed=3)
    assert len(held) == len(set(held)) == len(others) == 10
    assert not set(held) & set(others)
    assert sorted({*held, *known}) == list(range(48))
    assert not set(held) & set(known)
    assert np.bincount(ratings.users)[held].min() >= movielens.LEAST_RATINGS
    with pytest.raises(ValueError, match="only 48 users"):
        movielens.split(ratings, 49, seed=3)


@pytest.mark.rest
def test_features_do_not_know_the_players(movielens_100k: Path) -> None:
    ratings = movielens.read(movielens_100k)
    held, _, known = movielens.split(ratings, 10, seed=3)
    forged = replace(ratings, values=np.where(np.isin(ratings.users, held), 3, ratings.values))
    games = [movielens.environment(r, held, known, rounds=40, seed=1) for r in (ratings, forged)]
    assert np.array_equal(games[0].features, games[1].features)
    assert np.array_equal(games[0].popularity, games[1].popularity)
    assert not np.array_equal(games[0].means, games[1].means)


@pytest.mark.rest
def test_an_environment_is_what_the_ratings_say(movielens_100k: Path) -> None:
    ratings = movielens.read(movielens_100k)
    held, _, known = movielens.split(ratings, 10, seed=3)
    game = movielens.environment(ratings, held, known, rounds=60, seed=1)
    good = {(u, m) for u, m, v in zip(ratings.users, ratings.movies, ratings.values, strict=True) if v >= 4}
    assert game.popularity.sum() == sum(user in set(known) for user, _ in good)
    assert game.present == [100, 150, 200]


@pytest.mark.rest
def test_clicks_are_more_likely_where_ratings_are_good(movielens_100k: Path) -> None:
    ratings = movielens.read(movielens_100k)
    held, _, known = movielens.split(ratings, 10, seed=3)
    game = movielens.environment(ratings, held, known, rounds=40, seed=1)
    liked = ratings.good[held].toarray()[:, np.random.default_rng(1).permutation(len(ratings.movie_ids))] > 0
    assert 0.0 < game.means.min() < game.means.max() < 1.0
    assert game.means[liked].mean() > game.means[~liked].mean() + 0.2
