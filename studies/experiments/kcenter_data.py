"""Points for the k-center tables: patches of photographs, clusters that are far apart, movies.

Notation
    n, m        number of points, of coordinates; m = 12,288 = 64 x 64 x 3 as in the paper
    d(i, j)     |x_i - x_j|^2 / m

The paper's images (Tiny ImageNet, UT Zappos50K) are not available. Patches are cut from the two photographs
that ship with scikit-learn, if it is installed (`.venv/bin/pip install -e '.[images]'`).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.types import Matrix
from studies.experiments import movielens

DIM = 12_288
SIDE = 64
STRIDE = 5

Points = NDArray[np.float32]


def patches(n: int, *, seed: int) -> Points | None:
    """Return ``n`` overlapping patches in [0, 1], None without scikit-learn. Shapes: -> (n, 12,288)."""
    try:
        images = import_module("sklearn.datasets").load_sample_images().images
    except ImportError:
        return None
    corners = [
        (image, top, left)
        for image in images
        for top in range(0, image.shape[0] - SIDE + 1, STRIDE)
        for left in range(0, image.shape[1] - SIDE + 1, STRIDE)
    ]
    chosen = np.random.default_rng(seed).permutation(len(corners))[:n]
    points = np.empty((n, DIM), dtype=np.float32)
    for row, place in enumerate(chosen.tolist()):
        image, top, left = corners[place]
        points[row] = image[top : top + SIDE, left : left + SIDE].reshape(-1)
    points /= 255.0
    return points


def clusters(n: int, count: int, *, seed: int, dim: int = DIM, least: float = 0.78) -> Points:
    """Return ``n`` points in ``count`` clusters far apart, each with one point that is farther out.

    Shapes: -> (n, dim). Greedy's centres are these points, by a clear lead: their reach goes from 1 down to
    ``least``, so the smaller that is, the larger the lead.
    """
    rng = np.random.default_rng(seed)
    patterns = rng.choice(np.array((-0.5, 0.5), dtype=np.float32), size=(count, dim))
    reach = (rng.uniform(0.2, 0.6, size=n) * (least / 0.78)).astype(np.float32)
    reach[:count] = np.linspace(1.0, least, count)[: min(count, n)]
    points = np.empty((n, dim), dtype=np.float32)
    for row in range(n):
        spread = rng.random(dim, dtype=np.float32) - 0.5
        points[row] = 0.5 + reach[row] * patterns[row % count] + 0.1 * (1.0 - reach[row]) * spread
    order: Points = points[rng.permutation(n)]
    return order


def movies(folder: Path, *, seed: int) -> dict[str, Points]:
    """Return MovieLens movies in random order: their ratings / 5 by all users, and features of those.

    Shapes: -> "movielens ratings" (movies, users), "movielens features" (movies, 16).
    Raises: FileNotFoundError, ValueError.
    """
    ratings = movielens.read(folder)
    users = np.arange(int(ratings.users.max()) + 1)
    order = np.random.default_rng(seed).permutation(len(ratings.movie_ids))
    values = np.zeros((len(order), len(users)), dtype=np.float32)
    values[ratings.movies, ratings.users] = ratings.values / 5.0
    features = movielens.movie_features(ratings.good, users)
    return {"movielens ratings": values[order], "movielens features": features[order].astype(np.float32)}


def distances(points: Points) -> Matrix:
    """Return d. Shapes: (n, m) -> (n, n)."""
    exact = points.astype(np.float64)
    norms = np.einsum("ij,ij->i", exact, exact)
    found: Matrix = np.maximum(norms[:, None] + norms - 2.0 * exact @ exact.T, 0.0) / points.shape[1]
    np.fill_diagonal(found, 0.0)
    return found


def judged(found: Matrix) -> Matrix:
    """Return the distance of section VIII-C2: 1 - P(i is nearer to j than l) P(j is nearer to i than l).

    l is any third point. Shapes: (n, n) -> (n, n).
    """
    n = len(found)
    nearer = np.ones((n, n))
    for i, j in zip(*np.nonzero(~np.eye(n, dtype=bool)), strict=True):
        nearer[i, j] = (found[i, j] < np.delete(found[i], (i, j))).mean()
    result: Matrix = 1.0 - nearer * nearer.T
    np.fill_diagonal(result, 0.0)
    return result


def greedy(found: Matrix, k: int, first: int) -> list[int]:
    """Return greedy's centres, ties to the lowest index."""
    centers = [first]
    while len(centers) < k:
        nearest: Any = found[centers].min(axis=0)
        nearest[centers] = -1.0
        centers.append(int(nearest.argmax()))
    return centers
