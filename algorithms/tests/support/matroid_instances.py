"""Matroids for the tests of slates under rules: partitions, spanning trees, and all of their bases."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from shortlist.slates.matroids import PartitionMatroid, UniformMatroid


@dataclass(frozen=True)
class SpanningTrees:
    """The spanning trees of a connected graph; its arms are the edges. Kruskal's algorithm is the oracle."""

    edges: tuple[tuple[int, int], ...]

    @property
    def n(self):
        return len(self.edges)

    @property
    def k(self):
        return max(map(max, self.edges))

    def best(self, weights):
        part, tree = list(range(self.k + 1)), []
        for edge in np.argsort(-weights, kind="stable").tolist():
            one, other = (part[end] for end in self.edges[edge])
            if one != other:
                part = [one if label == other else label for label in part]
                tree.append(edge)
        return np.sort(np.array(tree))

    def has(self, sets):
        # k edges are a tree if what is left of them after Kruskal's algorithm is all of them.
        return np.array(
            [bool(set(self.best(np.where(row, 1.0, 0.0))) == set(np.flatnonzero(row))) for row in sets]
        )


# Two of each maker; a maker with one arm; limits that leave no choice but within groups (two components, with
# one arm that is always in); spanning trees of a square with a diagonal, and of two triangles that share a
# corner (two components).
MATROIDS = {
    "uniform": UniformMatroid(7, 3),
    "two of each": PartitionMatroid((0, 0, 0, 0, 1, 1, 1, 2), (2, 2, 2), 4),
    "one of each": PartitionMatroid((0, 1, 0, 1, 2, 2, 3), (1, 1, 1, 1), 3),
    "alone": PartitionMatroid((0, 0, 0, 0, 1, 2, 3), (1, 1, 1, 1), 2),
    "every group full": PartitionMatroid((0, 0, 0, 1, 1, 1, 2), (1, 2, 1), 4),
    "trees": SpanningTrees(((0, 1), (1, 2), (2, 3), (0, 3), (0, 2))),
    "two triangles": SpanningTrees(((0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4))),
}


def bases(matroid):
    """The vectors of all slates, by the definition of each matroid."""
    rows = []
    for members in combinations(range(matroid.n), matroid.k):
        if isinstance(matroid, PartitionMatroid):
            groups = [matroid.groups[arm] for arm in members]
            allowed = all(groups.count(group) <= limit for group, limit in enumerate(matroid.limits))
        elif isinstance(matroid, SpanningTrees):
            ends = np.zeros((matroid.k + 1, matroid.k))
            for column, arm in enumerate(members):
                ends[matroid.edges[arm], column] = (1.0, -1.0)
            allowed = np.linalg.matrix_rank(ends) == matroid.k  # no circle
        else:
            allowed = True
        if allowed:
            rows.append(np.isin(np.arange(matroid.n), members).astype(float))
    return np.array(rows)
