"""Held-out likes of keys found in lists, by rankings fitted to other keys.

A fifth of the keys is held out. All rankings are fitted to the others; each then lists arms for a held-out
key, once with nothing known of the key, to find its likes, and once with half of its likes known, to find the
others. Bestsellers, item-kNN and EASE know nothing personal in the first case, and list the most liked arms.

Of many keys and arms a sample is compared: ``MOST_KEYS``, of which likes of ``MOST_TESTED`` are looked for,
and the ``MOST_ARMS`` that most keys liked.

Ours has as many directions of behaviour as are real; or as many as it may, where these find a fifth more, and
clearly so. Where keys like many small groups of arms, each direction is hardly real, and all of them say who
likes what. Of a smaller gain the first lists of a key have nothing, and each number costs every choice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from shortlist import checks
from shortlist.embedding import feature_prior, item_to_item
from shortlist.embedding.blocks import BEHAVIOUR, TABLE, make_blocks, real_directions
from shortlist.errors import InvalidParameter
from shortlist.types import Matrix, Rows, Vector

MOST_KEYS, MOST_TESTED, MOST_ARMS = 10_000, 300, 10_000
HELD_OUT = 5  # one in so many
LEAST_LIKES = 2  # of a key that is held out
A_FIFTH_MORE, CLEARLY = 1.2, 2.0  # standard errors

Scores = Callable[[sparse.csr_array], Matrix]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Likes of each key in a list that a ranking made. Shapes: (keys,).

    ``unknown``  with nothing known, ``half``  with half of their likes known
    """

    name: str
    unknown: Vector
    half: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """``fitted``, ``arms``: how many keys and arms rankings know; ``likes``, ``hidden``: of each key that is
    held out, all and without the known half (keys,). ``sampled``: whether there are more keys or arms.
    ``directions``: of behaviour, that ours has.
    """

    fitted: int
    arms: int
    sampled: bool
    likes: Vector
    hidden: Vector
    rows: Sequence[Found]
    directions: int


def compare(
    liked: sparse.csr_array,
    table: Matrix,
    rng: np.random.Generator,
    *,
    blocks: Collection[str],
    most_directions: int,
    most_keys: int = MOST_KEYS,
    most_arms: int = MOST_ARMS,
) -> Comparison:
    """Hold out a fifth of the keys. ``liked`` is H; shape: table (arms, t). ``blocks``: of ours.

    Cost: that of ``item_to_item.best_ridge``, and of ``feature_prior.fit`` four times.
    Raises: InvalidShape, NonFinite, InvalidParameter (too few keys).
    """
    checks.shape("table", table, (liked.shape[1], None))
    liked, rows, sampled = _sample(liked, most_keys, most_arms, rng)
    table = table[rows]
    folds = _folds(liked, rng)
    if not folds:
        raise InvalidParameter(
            "no key of liked can be held out: it has too few with two likes", argument="liked"
        )
    fitted, tested_likes = _split(liked, folds[0])
    shown, hidden = item_to_item.halves(tested_likes, rng)
    nothing = sparse.csr_array(tested_likes.shape, dtype=tested_likes.dtype)

    def found(name: str, scores: Scores) -> Found:
        unknown = item_to_item.hits(scores(nothing), nothing, tested_likes)
        return Found(name, unknown, item_to_item.hits(scores(shown), shown, hidden))

    popular = np.asarray(fitted.sum(axis=0, dtype=np.float64)).ravel()
    ease = item_to_item.ease(fitted, item_to_item.best_ridge(fitted, rng))
    directions = _best_directions(fitted, table, most_directions, rng, blocks)
    rankings: list[tuple[str, Scores]] = [
        ("bestsellers", lambda likes: np.tile(popular, (likes.shape[0], 1))),
        ("item-kNN", _beside(item_to_item.item_knn(fitted), popular)),
        ("EASE", _beside(ease, popular)),
        ("the table alone", _by_prior(fitted, table, 0, rng, (TABLE,))),
        ("ours", _by_prior(fitted, table, directions, rng, blocks)),
    ]
    return Comparison(
        fitted.shape[0],
        len(rows),
        sampled,
        np.diff(tested_likes.indptr).astype(np.float64),
        np.diff(hidden.indptr).astype(np.float64),
        [found(*ranking) for ranking in rankings],
        directions,
    )


def _folds(liked: sparse.csr_array, rng: np.random.Generator) -> list[Rows]:
    """Keys that are held out together: a fifth of all, folds until they have ``MOST_TESTED``."""
    several = rng.permutation(np.flatnonzero(np.diff(liked.indptr) >= LEAST_LIKES))
    size = min(MOST_TESTED, liked.shape[0] // HELD_OUT)
    starts = range(0, min(len(several), MOST_TESTED), size) if size else ()
    return [np.sort(several[start : start + size]) for start in starts]


def _split(liked: sparse.csr_array, tested: Rows) -> tuple[sparse.csr_array, sparse.csr_array]:
    """The likes of the keys to which rankings are fitted, and of those that are held out."""
    others = liked[np.delete(np.arange(liked.shape[0]), tested)]
    return others[np.diff(others.indptr) > 0], liked[tested]


def _best_directions(
    liked: sparse.csr_array, table: Matrix, most: int, rng: np.random.Generator, blocks: Collection[str]
) -> int:
    """How many directions ours has, by folds of these keys; the first fold that shows no gain ends it."""
    real = real_directions(liked, most, rng, blocks=blocks)
    if BEHAVIOUR not in blocks or real == most:
        return real
    more, less, squares = 0.0, 0.0, 0.0
    for tested in _folds(liked, rng):
        fitted, tested_likes = _split(liked, tested)
        known, hidden = item_to_item.halves(tested_likes, rng)
        try:
            by_most, by_real = (
                item_to_item.hits(_by_prior(fitted, table, count, rng, blocks)(known), known, hidden)
                for count in (most, real)
            )
        except InvalidParameter:  # more than these keys tell apart, or too few keys
            return real
        more, less = more + float(by_most.sum()), less + float(by_real.sum())
        squares += float(np.square(by_most - by_real).sum())
        if more <= less:
            return real
    is_clear = more > A_FIFTH_MORE * less and more - less > CLEARLY * np.sqrt(squares)
    return most if is_clear else real


def _sample(
    liked: sparse.csr_array, most_keys: int, most_arms: int, rng: np.random.Generator
) -> tuple[sparse.csr_array, Rows, bool]:
    """Rows and columns of H that are compared, the columns, and whether some are left out."""
    liked = liked[np.diff(liked.indptr) > 0]
    likes = np.bincount(liked.indices, minlength=liked.shape[1])
    arms = np.sort(np.argsort(-likes, kind="stable")[:most_arms]).astype(np.int64)
    keys = np.sort(rng.permutation(liked.shape[0])[:most_keys])
    sampled = len(arms) < liked.shape[1] or len(keys) < liked.shape[0]
    if sampled:
        liked = sparse.csr_array(liked[keys][:, arms])
        liked = liked[np.diff(liked.indptr) > 0]
    return liked, arms, sampled


def _beside(model: item_to_item.ItemToItem, popular: Vector) -> Scores:
    """Scores by weights between arms; popularity breaks ties, and ranks for keys of which nothing is
    known.
    """
    tie = 1e-6 / max(float(popular.max()), 1.0)

    def scores(likes: sparse.csr_array) -> Matrix:
        return model.scores(likes) + tie * popular

    return scores


def _by_prior(
    fitted: sparse.csr_array,
    table: Matrix,
    directions: int,
    rng: np.random.Generator,
    blocks: Collection[str],
) -> Scores:
    """Scores by the taste of a key, as expected by the prior of a history."""

    def make(likes: sparse.csr_array) -> Matrix:
        return make_blocks(likes, table, directions, rng, blocks=blocks).features

    features = make(fitted)
    prior = feature_prior.fit(fitted, make, rng, directions=max(directions, 1))
    return lambda likes: feature_prior.tastes(prior, features, likes) @ features.T
