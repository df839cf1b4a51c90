"""Ratings in MovieLens format, generated: users with one of four tastes, who like a quarter of the movies."""

import os
from pathlib import Path

import numpy as np
import pytest

USERS, MOVIES, RATINGS = 48, 200, 110
BESIDE = Path(__file__).parents[3] / "shared" / "data" / "ml-100k"


@pytest.fixture
def real_movielens() -> Path:
    """A directory with real ratings, which may not be copied into the project; skips where there is none."""
    folder = Path(os.environ.get("SHORTLIST_MOVIELENS", BESIDE))
    if not folder.is_dir():
        pytest.skip(f"no MovieLens ratings: SHORTLIST_MOVIELENS is not set and {folder} does not exist")
    return folder


@pytest.fixture
def movielens_100k(tmp_path: Path) -> Path:
    """A directory with ``u.data`` and ``u.item``."""
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    (folder / "u.data").write_text("".join("\t".join(row) + "\n" for row in _rows()))
    titles = [(str(3 * movie + 1), f"Film {movie} ({1960 + movie % 40})") for movie in range(MOVIES)]
    genres = ["|".join(str(int(movie % 4 == genre)) for genre in range(4)) for movie in range(MOVIES)]
    lines = [f"{number}|{title}|||x|{own}\n" for (number, title), own in zip(titles, genres, strict=True)]
    (folder / "u.item").write_text("".join(lines))
    return folder


@pytest.fixture
def movielens_1m(tmp_path: Path) -> Path:
    """A directory with ``ratings.dat`` and ``movies.dat``: the same ratings and films."""
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    (folder / "ratings.dat").write_text("".join("::".join(row) + "\n" for row in _rows()))
    films = [(3 * movie + 1, f"Film {movie} ({1960 + movie % 40})", movie % 4) for movie in range(MOVIES)]
    (folder / "movies.dat").write_text("".join(f"{n}::{title}::Kind {kind}\n" for n, title, kind in films))
    return folder


def _rows() -> list[tuple[str, ...]]:
    rng = np.random.default_rng(5)
    rows = []
    for user in range(USERS):
        for movie in rng.choice(MOVIES, RATINGS, replace=False):
            value = 5 if movie % 4 == user % 4 else rng.integers(1, 4)
            rows.append((str(user + 1), str(3 * movie + 1), str(value), "880000000"))
    return rows
