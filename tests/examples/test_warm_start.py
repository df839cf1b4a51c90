"""The comparison of priors runs against a real service, and both see the same users and rounds."""

from pathlib import Path

import pytest

from examples import warm_start


def test_it_compares_the_priors(movielens_100k: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(movielens_100k), "--users", "4", "--strength", "1"]
    assert warm_start.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "mean over 4 users" in printed
    assert "less than plain by  0.00" in printed
    assert "pooled-1" in printed


def test_a_folder_without_ratings_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert warm_start.main(["--data", str(tmp_path)]) == 1
    assert "no MovieLens ratings" in capsys.readouterr().err
