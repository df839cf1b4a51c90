"""k-center by definition: what the tests compare with."""

from __future__ import annotations

from itertools import combinations

import numpy as np


def squared(points):
    """Return |x_u - x_v|^2 for all pairs in float64. Shapes: (n, m) -> (n, n)."""
    points = np.asarray(points, dtype=np.float64)
    return np.array([((points - point) ** 2).sum(axis=1) for point in points])


def greedy(matrix, k, first):
    """Return greedy's centres for distances ``matrix`` (n, n), ties to the lowest index."""
    centers = [first]
    while len(centers) < k:
        nearest = matrix[centers].min(axis=0)
        nearest[centers] = -1.0
        centers.append(int(nearest.argmax()))
    return centers


def radius(matrix, centers):
    return float(matrix[list(centers)].min(axis=0).max())


def best_radius(matrix, k):
    """Return the least radius of any k centres, by trying all."""
    return min(radius(matrix, centers) for centers in combinations(range(len(matrix)), k))


def separated(n, dim, clusters, seed, dtype=np.float32):
    """Clusters far apart, with one outlying point each: the centres that greedy should find are distinct."""
    rng = np.random.default_rng(seed)
    patterns = rng.choice((-0.5, 0.5), size=(clusters, dim))
    reach = rng.uniform(0.2, 0.6, size=n)
    reach[:clusters] = np.linspace(1.0, 0.78, clusters)
    points = 0.5 + reach[:, None] * patterns[np.arange(n) % clusters]
    points += 0.1 * (1.0 - reach[:, None]) * (rng.random((n, dim)) - 0.5)
    return rng.permutation(points).astype(dtype)
