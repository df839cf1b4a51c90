"""The comparison of priors: all of them see the same users, and one that counts nothing is the plain one."""

from pathlib import Path

import pytest

from examples import movielens, warm_start

pytestmark = pytest.mark.rest


def test_it_compares_the_priors(movielens_100k: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(movielens_100k), "--users", "4", "--splits", "2", "--strength", "1"]
    assert warm_start.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "4 users in turn" in printed
    assert "plain " in printed
    assert "+0.00 +- 0.00" in printed
    assert "pooled, 1" in printed


def test_a_prior_of_hardly_any_strength_is_the_plain_one(movielens_100k: Path) -> None:
    ratings = movielens.read(movielens_100k)
    held, _, known = movielens.split(ratings, 5, seed=1)
    game = movielens.environment(ratings, held, known, rounds=20, seed=1)
    for repeats in (True, False):
        plain, weak, strong = (
            warm_start.mean_regret(game, strength, repeats=repeats, seed=1)
            for strength in (0.0, 1e-12, 100.0)
        )
        assert weak == plain
        assert strong != plain


def test_a_folder_without_ratings_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert warm_start.main(["--data", str(tmp_path)]) == 1
    assert "no MovieLens ratings" in capsys.readouterr().err
