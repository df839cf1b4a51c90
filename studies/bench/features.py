"""Which features? Hits of a bandit without settings on MovieLens, by what its films are described with.

python -m studies.bench.features FOLDER [DRAWS]

Keys are 60 users who are held back, played for 20 rounds of five films, none twice; a hit is a film that the
user likes. Films are encoded as the service does it (``records.features``), from their table: genres, year,
title, and how often others rated them. The embedding of a film is who of 768 others rated it, and how.
Ratings of the users who are held back are in none of it. Policy and learned prior are those of ``many_keys``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from app.catalogues.arms import fit_reduction
from app.catalogues.kept_arms import FoundArms
from app.records.encoding import EncodedField
from app.records.features import EmbeddingRule, FeatureEncoding, FeaturesRule, ReduceRule, completed
from app.records.records import UnfittedArmDocument, pack
from shortlist.types import Matrix
from studies.bench import many_keys
from studies.bench.many_keys import OURS, People, play, popular
from studies.experiments import movielens

GENRES = [
    "unknown", "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama",
    "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
]  # fmt: skip
RATERS = 768
GENRE = EncodedField("genre", "categories", values=GENRES)
YEAR = EncodedField("year", "number", mean=1990.0, scale=10.0)
TITLE = EncodedField("title", "hash", size=32)
WAYS: dict[str, tuple[list[Any], int | None]] = {
    "genres and year": ([GENRE, YEAR], None),
    "genres, year and popularity": ([GENRE, YEAR, "popularity"], None),
    "words of the title": ([TITLE], None),
    "words of the title and popularity": ([TITLE, "popularity"], None),
    "embedding of 768, reduced to 32": ([], 32),
    "the same and popularity": (["popularity"], 32),
    "the same, genres, year and popularity": ([GENRE, YEAR, "popularity"], 32),
}


def table(folder: Path) -> list[dict[str, Any]]:
    """The films as their table has them."""
    films = []
    for line in (folder / "u.item").read_text(encoding="latin-1").splitlines():
        _, title, date, *_, flags = line.split("|", 5)
        genres = [name for name, flag in zip(GENRES, flags.split("|"), strict=True) if flag == "1"]
        year = {"year": int(date[-4:])} if date else {}
        films.append({"title": title.rpartition(" (")[0] or title, "genre": genres, **year})
    return films


def encoded(
    films: list[dict[str, Any]], fields: list[Any], embeddings: Matrix | None, to: int | None
) -> Matrix:
    """What a catalogue makes of the films."""
    counts = np.log1p([film["popularity"] for film in films])
    mean, scale = float(counts.mean()), float(counts.std())
    known = EncodedField("popularity", "number", mean=mean, scale=scale, log=True)
    embedding = None if to is None else EmbeddingRule(RATERS, ReduceRule(to))
    rule, _ = completed(FeaturesRule([known if f == "popularity" else f for f in fields] or None, embedding))
    encoding = FeatureEncoding(rule, None, 0)
    rows: Any = embeddings if to is not None else [()] * len(films)
    raw = np.array([encoding.raw(row, (), film) for row, film in zip(rows, films, strict=True)])
    if to is not None:
        documents = [pack(UnfittedArmDocument([], {}, row.astype("<f4").tobytes())) for row in rows]
        ids = [str(place) for place in range(len(films))]
        reduction, _ = fit_reduction(encoding, FoundArms(ids, encoding.features(raw), []), documents)
        encoding = encoding.fitted(reduction)
    return encoding.features(raw)


def world(folder: Path, ratings: movielens.Ratings, way: str, draw: int) -> People:
    """The world of the learned prior, with the features of a way."""
    films = table(folder)
    held, _, known = movielens.split(ratings, many_keys.GENRE_USERS, seed=draw)
    liked = ratings.good.toarray()
    own = np.isin(ratings.users, known)
    counts = np.bincount(ratings.movies[own], minlength=liked.shape[1])
    for film, count in zip(films, counts.tolist(), strict=True):
        film["popularity"] = count
    fields, to = WAYS[way]
    embeddings = None
    if to is not None:
        raters = known[np.argsort(-np.bincount(ratings.users[own], minlength=len(liked))[known])[:RATERS]]
        embeddings = np.zeros((len(films), RATERS))
        position = {user: place for place, user in enumerate(raters.tolist())}
        mean = ratings.values[own].mean()
        for user, film, value in zip(ratings.users, ratings.movies, ratings.values, strict=True):
            if int(user) in position:
                embeddings[film, position[int(user)]] = value - mean
    return People(
        way,
        encoded(films, fields, embeddings, to),
        lambda _: liked[held],
        np.asarray(liked[known].sum(axis=0), dtype=np.float64),
        many_keys.GENRE_USERS,
        20,
        rewards="certain",
        spread=0.5,
        shown=5,
        repeats=False,
    )


def main(folder: Path, draws: int) -> None:
    ratings = movielens.read(folder)
    print(f"{'features':40} numbers  hits  most popular  ratio")
    for way in WAYS:
        hits, best = np.empty(draws), np.empty(draws)
        for draw in range(draws):
            played = world(folder, ratings, way, draw)
            hits[draw] = 100.0 * np.nanmean(play(played, OURS, seed=draw))
            best[draw] = 100.0 * np.nanmean(popular(played))
        numbers = played.features.shape[1]
        ours, most = hits.mean(), best.mean()
        print(f"{way:40} {numbers:7} {ours:5.1f} {most:13.1f} {ours / most:6.2f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2)
