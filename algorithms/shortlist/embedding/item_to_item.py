"""Scores of arms for a key as sums of weights between arms: the usual alternatives to a bandit.

Notation
    H           keys x arms: 1 where a key liked an arm, else 0
    n           how many keys liked an arm (arms,)
    B           weights (m, m), zero on the diagonal, of the m arms that most keys liked
    l           the ridge of EASE
    P           (H^T H + l I)^-1

A key that liked the arms h has the scores h B. Of item-kNN B are the cosines of the columns of H; of EASE B
is -P_ij / P_jj, the weights without a diagonal for which h B is nearest to h.

Source: Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data", Equation 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.types import Matrix, Rows, Vector

MOST_ARMS = 5_000
RIDGES = (10.0, 30.0, 100.0, 300.0, 1_000.0)
TESTED_KEYS = 300
FOUND = 20  # arms of a list that is judged; of few arms a third: a list of all finds all


@dataclass(frozen=True, slots=True, eq=False)
class ItemToItem:
    """``arms``: those that have weights, in ascending order. Shapes: arms (m,), weights (m, m)."""

    arms: Rows
    weights: Matrix

    def scores(self, liked: sparse.csr_array) -> Matrix:
        """Return scores of all arms, 0 of those without weights. Shapes: liked and returned (keys, arms)."""
        all_scores = np.zeros(liked.shape)
        all_scores[:, self.arms] = liked[:, self.arms] @ self.weights
        return all_scores


def item_knn(liked: sparse.csr_array, *, most_arms: int = MOST_ARMS) -> ItemToItem:
    """Return the cosines of arms over the keys that liked them. ``liked`` is H.

    Cost: that of H^T H. Memory: m^2 numbers. Raises: NonFinite, InvalidParameter (most_arms < 1).
    """
    arms, common = _most_liked(liked, most_arms)
    together = _products(common)
    lengths = np.sqrt(np.maximum(together.diagonal(), 1.0))
    np.fill_diagonal(together, 0.0)
    return ItemToItem(arms, together / lengths / lengths[:, None])


def ease(liked: sparse.csr_array, ridge: float, *, most_arms: int = MOST_ARMS) -> ItemToItem:
    """Return the weights of EASE. ``liked`` is H.

    Cost: O(m^3), or O(keys^2 m + keys m^2) where keys are fewer. Memory: three times m^2 numbers.
    Raises: NonFinite, InvalidParameter (ridge <= 0, most_arms < 1).
    """
    checks.in_range("ridge", ridge, above=0.0)
    arms, common = _most_liked(liked, most_arms)
    if common.shape[0] < len(arms):  # Woodbury
        dense = common.toarray().astype(np.float64)
        inner = np.linalg.inv(dense @ dense.T + ridge * np.eye(len(dense)))
        precision: Matrix = (np.eye(len(arms)) - dense.T @ (inner @ dense)) / ridge
    else:
        together = _products(common)
        np.fill_diagonal(together, together.diagonal() + ridge)
        precision = np.linalg.inv(together).astype(np.float64, copy=False)
    weights = precision / -precision.diagonal()
    np.fill_diagonal(weights, 0.0)
    return ItemToItem(arms, weights)


def best_ridge(
    liked: sparse.csr_array,
    rng: np.random.Generator,
    *,
    ridges: Sequence[float] = RIDGES,
    most_arms: int = MOST_ARMS,
) -> float:
    """Return the ridge by which EASE finds most likes of unseen keys.

    A fifth of the keys with two likes, at most ``TESTED_KEYS``, are left out; half of their likes are known,
    and the others looked for in lists of ``list_length`` arms. Without such keys the middle of ``ridges``.
    Cost: an ``ease`` for each ridge. Raises: NonFinite, InvalidParameter (no ridges).
    """
    if not ridges:
        raise InvalidParameter("ridges must not be empty", argument="ridges")
    eligible = rng.permutation(np.flatnonzero(np.diff(liked.indptr) >= 2))
    tested = np.sort(eligible[: min(TESTED_KEYS, len(eligible) // 5)])
    if not len(tested):
        return ridges[len(ridges) // 2]
    others = np.delete(np.arange(liked.shape[0]), tested)
    shown, hidden = halves(liked[tested], rng)

    def found(ridge: float) -> float:
        model = ease(liked[others], ridge, most_arms=most_arms)
        return recall(model.scores, shown, hidden)

    return max(ridges, key=found)


def halves(liked: sparse.csr_array, rng: np.random.Generator) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return two parts of the likes of each key, drawn at random; of odd numbers the second has one more."""
    keys = np.repeat(np.arange(liked.shape[0]), np.diff(liked.indptr))
    order = np.lexsort((rng.random(len(keys)), keys))
    position = np.arange(len(keys)) - liked.indptr[keys]  # of a like among those of its key
    is_known = position < (np.diff(liked.indptr) // 2)[keys]

    def part(chosen: NDArray[np.bool_]) -> sparse.csr_array:
        places = (keys[chosen], liked.indices[order][chosen])
        return sparse.csr_array((liked.data[order][chosen], places), shape=liked.shape)

    return part(is_known), part(~is_known)


def list_length(arms: int) -> int:
    """Return how many arms a list has that is judged, of so many."""
    return max(1, min(FOUND, arms // 3))


def recall(
    scores: Callable[[sparse.csr_array], Matrix],
    known: sparse.csr_array,
    hidden: sparse.csr_array,
    *,
    shown: int | None = None,
) -> float:
    """Return the share of the hidden likes in lists of ``shown`` arms, none of which is known to be liked.

    ``scores`` is given the known likes. ``shown``: by default ``list_length``.
    Shapes: known, hidden and scores (keys, arms).
    """
    hit_counts = hits(scores(known), known, hidden, shown=shown)
    return float(hit_counts.sum() / max(hidden.sum(), 1.0))


def hits(
    ranked: Matrix, known: sparse.csr_array, hidden: sparse.csr_array, *, shown: int | None = None
) -> Vector:
    """Return how many hidden likes of each key its list of ``shown`` arms has; known likes are left out.

    ``ranked``: scores, of which those of known likes are overwritten. ``shown``: by default ``list_length``.
    Shapes: (keys, arms) -> (keys,).
    """
    ranked[known.nonzero()] = -np.inf
    shown = list_length(ranked.shape[1]) if shown is None else min(shown, ranked.shape[1])
    listed = np.argpartition(-ranked, shown - 1, axis=1)[:, :shown]
    hit_counts: Vector = np.take_along_axis(hidden.toarray(), listed, axis=1).sum(axis=1).astype(np.float64)
    return hit_counts


def _most_liked(liked: sparse.csr_array, most: int) -> tuple[Rows, sparse.csr_array]:
    """At most ``most`` arms that anybody liked, and their columns of H."""
    checks.finite("liked", liked.data)
    checks.in_range("most_arms", most, least=1, whole=True)
    counts = np.bincount(liked.indices, minlength=liked.shape[1])
    first = np.argsort(-counts, kind="stable")[: min(most, np.count_nonzero(counts))]
    arms = np.sort(first).astype(np.int64)
    return arms, sparse.csr_array(liked[:, arms])


def _products(liked: sparse.csr_array) -> Matrix:
    """H^T H."""
    products: Matrix = (liked.T @ liked).toarray().astype(np.float64)
    return products
