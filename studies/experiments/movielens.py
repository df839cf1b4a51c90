"""MovieLens: reading the ratings, holding users back, and features of movies from everybody else's ratings.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 7, "Movie
Recommendation": the ratings of some users with more than 100 ratings are held back; the ratings of all
others give every movie a feature of 16 dimensions by matrix factorisation; a recommendation is right when
the user rated the movie 4 or more, and its regret is 1 when the rating is lower or missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from shortlist.types import Matrix, Rows
from studies.experiments.synthetic import PERIOD, Environment

GOOD = 4
LEAST_RATINGS = 100
DIM = 16
CLICK_RANK = 12
ALS_STEPS, ALS_RIDGE, ALS_SEED = 8, 5.0, 2026
PAPER_FIRST, PAPER_MOVIES = 1_952, 3_952


@dataclass(frozen=True)
class Ratings:
    """Shapes: users, movies, values (n,). Users and movies are numbered from 0 without gaps."""

    users: Rows
    movies: Rows
    values: NDArray[np.int64]
    movie_ids: list[str]

    @property
    def good(self) -> csr_array:
        """(users, movies), 1 where the rating is at least ``GOOD``."""
        liked = self.values >= GOOD
        ones = np.ones(np.count_nonzero(liked))
        shape = (int(self.users.max()) + 1, len(self.movie_ids))
        return csr_array((ones, (self.users[liked], self.movies[liked])), shape=shape)


def read(folder: Path) -> Ratings:
    """Ratings from ``u.data`` (100K) or ``ratings.dat`` (1M). Raises FileNotFoundError, ValueError."""
    for name in ("u.data", "ratings.dat"):
        path = folder / name
        if path.is_file():
            break
    else:
        raise FileNotFoundError(f"no MovieLens ratings in {folder}: neither u.data nor ratings.dat")
    text = StringIO(path.read_text("latin-1").replace("::", "\t"))
    try:
        user_ids, movie_ids, values = np.loadtxt(text, dtype=np.int64, usecols=(0, 1, 2), ndmin=2).T
    except ValueError:
        raise ValueError(f"{path} is not in MovieLens format: user, movie, rating, time") from None
    _, users = np.unique(user_ids, return_inverse=True)
    names, movies = np.unique(movie_ids, return_inverse=True)
    return Ratings(users, movies, values, [f"movie-{name}" for name in names])


def described(folder: Path, ratings: Ratings) -> Matrix:
    """What is known of movies without a rating: a column for each genre, and the decades since 1990.

    From ``u.item`` (100K) or ``movies.dat`` (1M); a movie without a year has 0 there.
    Shape: -> (K, genres + 1). Raises FileNotFoundError, ValueError.
    """
    found: dict[str, tuple[set[str], float]] = {}
    for number, title, genres in _movies(folder):
        year = re.search(r"\((\d{4})\)\s*$", title)
        found[f"movie-{number}"] = genres, (int(year[1]) - 1990) / 10 if year else 0.0
    names = sorted(set().union(*(genres for genres, _ in found.values())))
    rows = [
        [*(float(name in found[movie][0]) for name in names), found[movie][1]] for movie in ratings.movie_ids
    ]
    return np.array(rows)


def titles(folder: Path) -> dict[str, str]:
    """The titles of movies, with the year, from ``u.item`` (100K) or ``movies.dat`` (1M), by their ids.

    Raises FileNotFoundError.
    """
    return {f"movie-{number}": title for number, title, _ in _movies(folder)}


def _movies(folder: Path) -> Iterator[tuple[str, str, set[str]]]:
    """Number, title and genres of each movie. Raises FileNotFoundError."""
    path = next((folder / name for name in ("u.item", "movies.dat") if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"no MovieLens movies in {folder}: neither u.item nor movies.dat")
    for line in path.read_text("latin-1").splitlines():
        if "::" in line:
            number, title, listed = line.split("::")
            yield number, title, set(listed.split("|"))
        else:
            number, title, _, _, _, *flags = line.split("|")
            yield number, title, {str(place) for place, flag in enumerate(flags) if flag == "1"}


def split(ratings: Ratings, held: int, *, seed: int) -> tuple[Rows, Rows, Rows]:
    """Users held back, ``held`` others to tune on, and everyone who is not held back.

    Both groups are drawn from the users with at least ``LEAST_RATINGS`` ratings; the held-back ones do not
    depend on what is done with the others. Raises ValueError when there are fewer than ``held``.
    """
    counts = np.bincount(ratings.users)
    active = np.random.default_rng(seed).permutation(np.flatnonzero(counts >= LEAST_RATINGS))
    if len(active) < held:
        raise ValueError(f"only {len(active)} users have {LEAST_RATINGS} ratings or more, {held} are wanted")
    back = active[:held]
    return back, active[held : 2 * held], np.setdiff1d(np.arange(len(counts)), back)


def movie_features(good: csr_array, users: Rows) -> Matrix:
    """Features of every movie from the ratings of ``users``: V S^1/2 of a truncated singular value
    decomposition of the matrix of good ratings, scaled so that the longest has norm 1.

    Shapes: good (users, K) -> (K, 16).
    """
    _, sizes, right = svds(good[users], k=DIM, v0=np.ones(min(len(users), good.shape[1])))
    features: Matrix = right.T * np.sqrt(sizes)
    features /= np.linalg.norm(features, axis=1).max()
    return features


def clicked(ratings: Ratings, players: Rows, known: Rows) -> tuple[Matrix, Matrix]:
    """Features of movies, and the chance that each of ``players`` clicks each of them.

    A movie is clicked with probability 1 / (1 + exp(7 - 2 r)): .5 for a rating r of 3.5, .95 for 5. Ratings
    that are missing are completed by factors of all ratings; features are factors of those of ``known``.
    Shapes: -> (K, DIM), (players, K).
    """
    everyone = np.arange(int(ratings.users.max()) + 1)
    left, right, centre = als_factors(ratings, everyone, rank=CLICK_RANK)
    chances: Matrix = 1.0 / (1.0 + np.exp(7.0 - 2.0 * (centre + left[players] @ right.T)))
    return als_factors(ratings, known, rank=DIM)[1], chances


def als_factors(
    ratings: Ratings, users: Rows, *, rank: int, seed: int = ALS_SEED
) -> tuple[Matrix, Matrix, float]:
    """Factors of users and films by alternating least squares, of ratings about their mean; and that mean.

    Shapes: -> (users, rank), (films, rank).
    """
    chosen = np.isin(ratings.users, users)
    shape = (int(ratings.users.max()) + 1, len(ratings.movie_ids))
    centre = float(ratings.values[chosen].mean())
    places = ratings.users[chosen], ratings.movies[chosen]
    values = csr_array((ratings.values[chosen] - centre, places), shape=shape)
    seen = csr_array((np.ones(len(places[0])), places), shape=shape)
    left: Matrix = np.random.default_rng(seed).normal(0.0, rank**-0.5, (shape[0], rank))
    for _ in range(ALS_STEPS):
        right = _solved(values.T.tocsr(), seen.T.tocsr(), left)
        left = _solved(values, seen, right)
    return left, right, centre


def _solved(values: csr_array, seen: csr_array, factors: Matrix) -> Matrix:
    """Least squares of the values that are seen on the factors, for each row."""
    products = np.einsum("jd,je->jde", factors, factors).reshape(len(factors), -1)
    grams: Matrix = (seen @ products).reshape(values.shape[0], factors.shape[1], -1)
    np.einsum("ijj->ij", grams)[:] += ALS_RIDGE
    found = np.linalg.solve(grams, (values @ factors)[:, :, None])[:, :, 0]
    return np.asarray(found, dtype=np.float64)


def rating_factors(ratings: Ratings, rank: int) -> tuple[Matrix, Matrix]:
    """Factors of movies and of users: V S^1/2 and U S^1/2 of a truncated singular value decomposition.

    It is of the matrix of all ratings, 0 where there is none. So a movie's product with a user is large where
    people like that user rated it high.
    Shapes: -> (K, rank), (users, rank); of so few movies or users, one factor less than there are of them.
    """
    shape = (int(ratings.users.max()) + 1, len(ratings.movie_ids))
    matrix = csr_array((ratings.values.astype(np.float64), (ratings.users, ratings.movies)), shape=shape)
    left, sizes, right = svds(matrix, k=min(rank, min(shape) - 1), v0=np.ones(min(shape)))
    roots = np.sqrt(sizes)
    return right.T * roots, left * roots


def environment(liked: NDArray[np.float64], features: Matrix, *, steps: int, change: int = 2) -> Environment:
    """One user as an environment: reward 1 for a movie the user liked, else regret 1, and no noise.

    Movies arrive in their order, ``change`` every ``PERIOD`` steps, until all are there. At the start there
    are as many as leaves the last for the last step, but no smaller a share of all than in the paper.
    Shapes: liked (K,) of 0 and 1, features (K, 16).
    """
    batches = (steps - 1) // PERIOD
    movies = len(liked)
    first = max(movies - change * batches, round(movies * PAPER_FIRST / PAPER_MOVIES))
    gone = np.empty((batches, 0), dtype=np.int64)
    return Environment(features, liked, np.zeros(steps), np.ones(steps), first, change, gone)
