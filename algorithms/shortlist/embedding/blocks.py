"""Features of arms in blocks at one scale: what keys liked, what a table says, and how many liked an arm.

Notation
    T           features of arms from their fields (K, t)
    V S         their embedding by behaviour (K, d), as in ``behaviour``
    n           how many keys liked an arm
    X           [a V S ; b log(1 + n)]: a and b give both a mean square of 1 over arms, as a field has
    F           [T ; X']: X' is X mixed with what fields say of it

Bestsellers know n, which holds the knowledge of a shop when it showed an arm; clicks a view do not. A later
arm has n = 0 and no V S: its fields give the expected X (``table_map``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from shortlist import checks
from shortlist.embedding import table_map, unliked_arms
from shortlist.embedding.behaviour import embed
from shortlist.embedding.real_share import real_dim, real_share
from shortlist.embedding.table_map import TableMap
from shortlist.types import Matrix, Rows, Vector

BEHAVIOUR, TABLE, LIKES = BLOCKS = ("behaviour", "table", "likes")
LOOKED_AT, REAL = 8, 0.1


@dataclass(frozen=True, slots=True, eq=False)
class FeatureBlocks:
    """``vectors``: X (K, d'), ``likes``: n (K,), ``weights``: as how many likes X counts beside fields (K,).

    ``directions``: d. ``map`` is from T to X. ``features``: F.
    """

    vectors: Matrix
    likes: Rows
    weights: Vector
    directions: int
    map: TableMap
    features: Matrix


def real_directions(
    liked: sparse.csr_array, most: int, rng: np.random.Generator, *, blocks: Collection[str]
) -> int:
    """Return how many directions of behaviour these blocks have: as many as are real, at most ``most``.

    None beside the likes where the second is not real (``REAL``): the first is the popularity of arms, which
    the likes say in another form. Popularity in proportion to n, as in V S, underrates the arms between where
    a shop showed its bestsellers most: in such a shop 200 keys who liked 21 arms each had shares of .2 and
    .06, and behaviour cost a tenth of all hits. ``liked`` is H, of keys with likes. Cost: that of
    ``real_dim``, and of ``real_share`` of ``LOOKED_AT`` directions.
    """
    if BEHAVIOUR not in blocks:
        return 0
    if LIKES in blocks and real_share(liked, min(LOOKED_AT, *liked.shape), rng)[1:2].sum() < REAL:
        return 0
    return real_dim(liked, rng, least=1, most=most)


def make_blocks(
    liked: sparse.csr_array,
    table: Matrix,
    directions: int,
    rng: np.random.Generator,
    *,
    blocks: Collection[str],
) -> FeatureBlocks:
    """Return the features of arms by these blocks of ``BLOCKS``. ``liked`` is H, of keys with a like.

    ``directions``: of behaviour; 0 leaves that block out. Shape: table (K, t).
    Cost: that of ``embed`` and ``table_map.fit``. Raises: InvalidShape, NonFinite, InvalidParameter.
    """
    checks.shape("table", table, (liked.shape[1], None))
    likes = np.bincount(liked.indices, minlength=len(table)).astype(np.int64)
    parts = [np.zeros((len(table), 0))]
    if BEHAVIOUR in blocks and directions:
        parts.append(_scaled(embed(liked, directions, rng).vectors))
    if LIKES in blocks:
        parts.append(_scaled(np.log1p(likes)[:, None]))
    vectors = np.hstack(parts)
    fitted = table_map.fit(table, vectors, likes, rng)
    expected = fitted.expected(table)
    weights = likes.astype(np.float64)
    none = likes == 0
    first = slice(0, max(1, vectors.shape[1] - (LIKES in blocks)))  # whose columns are orthogonal
    share = unliked_arms.shares(
        expected[:, first], vectors[:, first], likes, liked.shape[0], exposure=np.ones(len(table))
    )
    weights[none] = unliked_arms.passed_over(share[none], fitted.kappa)
    mixed = fitted.mix(table, vectors, weights)
    features = np.hstack((table, mixed)) if TABLE in blocks else mixed
    return FeatureBlocks(vectors, likes, weights, directions, fitted, features)


def _scaled(block: Matrix) -> Matrix:
    scaled: Matrix = block / np.sqrt(np.square(block).sum(axis=1).mean())
    return scaled
