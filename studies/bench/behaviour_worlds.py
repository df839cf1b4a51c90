"""Worlds of people who like some arms: what a table says of the arms, and how others behaved before.

Notation
    K, f        arms, columns of their table
    U           people who are played; nothing of theirs is known before
    likes       whether they like an arm: rewards are 1 or 0, always the same
    past        which arms others were shown before, and whether they liked them

Worlds
    films       users of MovieLens who are held back; table: genres and decade; past: what others rated, liked
                or not, and as many films that they did not rate, which count as not liked
    kinds       as films are: half of a taste is for kinds that the table has, half for what it does not
                have, and some arms are better for everyone
    niches      as papers are: each of many groups likes a few arms of its own; the table has ten broad
                categories
    thin        kinds, of whose past a fifth is known
    sales       as a shop is: the past is views, by kinds and what they do not say; who is played must buy,
                which one in four views leads to, with some arms far more often than with others
    shop        instruments whose popularity no column names: kind, brand and price. What was shown follows
                popularity, and half of the people who are played were shown it
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from shortlist.embedding.behaviour import embed, keys_by_arms
from shortlist.types import Matrix, Rows, Vector
from studies.experiments import movielens

SEED = 7_202
PLAYED, OTHERS = 60, 400
SHOWN_BEFORE = 80  # arms that each of the others was shown
KNOWN, SHOWN_IN_SHOP = 200, 81
DIM = 32
SHARE_LIKED, SHARE_VIEWED = 0.06, 0.12  # of the arms of ``kinds``, and of ``sales``
KNOWN_OF_THIN = 0.2
BOUGHT, BOUGHT_SPREAD = 0.25, 0.8  # of views, in the median arm, and the deviation of its logarithm
CHANCE_IN_NICHE, CHANCE_ELSEWHERE = 0.9, 0.01

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Who was shown what, and whether they liked it. Shapes: all (n,); people are numbered from 0."""

    people: Rows
    arms: Rows
    liked: Bools

    def of(self, chosen: Bools) -> Events:
        """These of them."""
        return Events(self.people[chosen], self.arms[chosen], self.liked[chosen])

    def likes(self, people: int, arms: int) -> csr_array:
        """1 where a person liked an arm. Shape: (people, arms)."""
        return keys_by_arms(self.people, self.arms, self.liked.astype(np.float64), shape=(people, arms))


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Shapes: table (K, f), likes (U, K). ``others``: how many people the past is of.

    ``known``: so many of the people who are played are the first of the past, in this order.
    """

    name: str
    table: Matrix
    likes: Bools
    past: Events
    others: int
    known: int = 0

    @property
    def past_of_known(self) -> Events:
        """The past of people who are played."""
        return self.past.of(self.past.people < self.known)

    @property
    def popularity(self) -> Vector:
        """How many others liked each arm. Shape: (K,)."""
        counts = np.bincount(self.past.arms[self.past.liked], minlength=len(self.table))
        return counts.astype(np.float64)

    def table_with_popularity(self) -> Matrix:
        """The table and log(1 + popularity) in standard deviations, as the docs advise. Shape: (K, f + 1)."""
        counts: Vector = np.log1p(self.popularity)
        return np.column_stack((self.table, (counts - counts.mean()) / max(float(counts.std()), 1e-9)))

    def embedding(self) -> Matrix:
        """Arms as numbers made of what others liked. Shape: (K, ``DIM``)."""
        likes = self.past.likes(self.others, len(self.table))
        return embed(likes, DIM, np.random.default_rng(SEED)).vectors


def films(
    ratings: movielens.Ratings, table: Matrix, draw: int, *, played: int = PLAYED, others: int | None = None
) -> World:
    """``others``: how many of all others have a past, None: all. Raises ValueError: too few users."""
    held, _, known = movielens.split(ratings, played, seed=draw)
    rng = np.random.default_rng((SEED, 1, draw))
    known = np.sort(rng.permutation(known)[:others])
    own = np.isin(ratings.users, known)
    people, arms = np.searchsorted(known, ratings.users[own]), ratings.movies[own]
    liked = ratings.values[own] >= movielens.GOOD
    unrated = rng.integers(len(table), size=len(arms))
    is_new = ~np.isin(people * len(table) + unrated, people * len(table) + arms)
    past = Events(
        np.concatenate((people, people[is_new])),
        np.concatenate((arms, unrated[is_new])),
        np.concatenate((liked, np.zeros(int(is_new.sum()), dtype=np.bool_))),
    )
    return World("films", table, ratings.good[held].toarray() > 0.0, past, len(known))


def kinds(draw: int, *, played: int = PLAYED, arms: int = 1_200) -> World:
    """Arms of one to three of 16 kinds, six numbers that nobody has written down, and a quality."""
    rng = np.random.default_rng((SEED, 2, draw))
    return _world("kinds", *_by_kinds(played, arms, SHARE_LIKED, rng), played, rng)


def thin(draw: int, *, played: int = PLAYED, arms: int = 1_200) -> World:
    """``kinds``, each row of its past with a chance of ``KNOWN_OF_THIN``."""
    world = kinds(draw, played=played, arms=arms)
    is_known = np.random.default_rng((SEED, 4, draw)).random(len(world.past.arms)) < KNOWN_OF_THIN
    past = Events(world.past.people[is_known], world.past.arms[is_known], world.past.liked[is_known])
    return replace(world, name="thin", past=past)


def sales(draw: int, *, played: int = PLAYED, arms: int = 1_200) -> World:
    """As ``kinds``; likes of the past are views, those of the people who are played are sales."""
    rng = np.random.default_rng((SEED, 5, draw))
    world = _world("sales", *_by_kinds(played, arms, SHARE_VIEWED, rng), played, rng)
    bought = np.minimum(BOUGHT * np.exp(BOUGHT_SPREAD * rng.standard_normal(arms)), 1.0)
    return replace(world, likes=world.likes & (rng.random(world.likes.shape) < bought))


def shop(draw: int, *, known: int = KNOWN, new: int = KNOWN, arms: int = 3_000) -> World:
    """About 16,200 shows and 4,200 clicks; 1,800 of 3,000 instruments without one."""
    rng = np.random.default_rng((SEED, 6, draw))
    people = known + new
    kind = rng.choice(12, size=arms, p=rng.dirichlet(np.full(12, 3.0)))
    brand, price, popular = rng.integers(20, size=arms), *rng.standard_normal((2, arms))
    unsaid = 0.8 * rng.standard_normal((people, 6)) @ rng.standard_normal((6, arms)) / np.sqrt(6)
    plays, loves = 1.2 * rng.standard_normal((people, 12)), 0.5 * rng.standard_normal((people, 20))
    scores = 1.1 * popular + plays[:, kind] + loves[:, brand] + unsaid
    scores += 0.4 * rng.standard_normal((people, 1)) * price
    likes = rng.random((people, arms)) < 1.0 / (1.0 + np.exp(2.8 - scores))
    keys = 1.2 * popular + rng.gumbel(size=(known, arms))
    shown = np.argpartition(-keys, SHOWN_IN_SHOP, axis=1)[:, :SHOWN_IN_SHOP]
    liked = np.take_along_axis(likes[:known], shown, axis=1)
    past = Events(np.repeat(np.arange(known), SHOWN_IN_SHOP), shown.ravel(), liked.ravel())
    table = np.column_stack((np.eye(12)[kind], np.eye(20)[brand], price))
    return World("shop", table, likes, past, known, known)


def _by_kinds(played: int, arms: int, share: float, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """A table of kinds, and the chances with which people like arms: above a half for ``share`` of them."""
    table = np.zeros((arms, 16))
    for _ in range(3):
        table[np.arange(arms), rng.integers(16, size=arms)] = 1.0
    people = played + OTHERS
    said = _standard(rng.standard_normal((people, 16)) @ table.T)
    unsaid = _standard(rng.standard_normal((people, 6)) @ rng.standard_normal((6, arms)))
    scores = said + unsaid + rng.standard_normal(arms)
    return table, 1.0 / (1.0 + np.exp(-2.0 * (scores - np.quantile(scores, 1.0 - share))))


def niches(draw: int, *, played: int = PLAYED, arms: int = 1_500) -> World:
    """75 niches in ten categories; everybody likes three niches, more often their better arms."""
    rng = np.random.default_rng((SEED, 3, draw))
    niche = rng.integers(75, size=arms)
    table = np.eye(10)[niche % 10]
    better = rng.uniform(0.2, 1.0, size=arms) ** 2
    people = played + OTHERS
    is_in = np.zeros((people, 75), dtype=np.bool_)
    np.put_along_axis(is_in, rng.random((people, 75)).argpartition(3, axis=1)[:, :3], np.bool_(True), axis=1)
    chances = np.where(is_in[:, niche], CHANCE_IN_NICHE, CHANCE_ELSEWHERE) * better
    return _world("niches", table, chances, played, rng)


def _standard(scores: Matrix) -> Matrix:
    found: Matrix = (scores - scores.mean()) / scores.std()
    return found


def _world(name: str, table: Matrix, chances: Matrix, played: int, rng: np.random.Generator) -> World:
    """Likes are drawn once. Others were shown arms with chances that grow with what they like."""
    likes = rng.random(chances.shape) < chances
    others = len(likes) - played
    keys = np.log(chances[played:] + 0.02) + rng.gumbel(size=(others, len(table)))
    shown = np.argpartition(-keys, SHOWN_BEFORE, axis=1)[:, :SHOWN_BEFORE]
    liked = np.take_along_axis(likes[played:], shown, axis=1)
    past = Events(np.repeat(np.arange(others), SHOWN_BEFORE), shown.ravel(), liked.ravel())
    return World(name, table, likes[:played], past, others)
