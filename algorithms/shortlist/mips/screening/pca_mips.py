"""PCA-MIPS: arms and queries on one sphere, in a tree which halves the arms along principal components.

Notation
    n, d        number of arms, of coordinates
    x', q'      arm and query with one coordinate more (d + 1,), see ``euclidean_reduction``
    depth       levels of the tree: level l halves every node at its median along the l-th component
    leaf        the arms on the same side of every level, about n / 2^depth of them

A query goes down to one leaf, and the arms of that leaf are its candidates. With depth 0 they are all arms.

Source: Bachrach et al., "Speeding up the Xbox recommender system using a Euclidean transformation for
inner-product spaces", RecSys 2014, section 3.2, without its neighbourhood boosting, as Liu, Wu and Mozafari
compare with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.mips.columns import Given
from shortlist.mips.screening.euclidean_reduction import last_coordinate, norms_of, on_the_sphere
from shortlist.mips.screening.screened import Screened, check_arms, check_query
from shortlist.types import Matrix, Rows, Vector

MOST_DEPTH = 20
# Orthogonal iteration: steps, and columns beyond those that are wanted. Its leading columns converge first.
_STEPS, _MORE = 12, 10


@dataclass(frozen=True, slots=True, eq=False)
class PcaMips:
    """The tree.

    Shapes
        vectors         (n, d)
        components      (depth, d), without their last coordinate, which is 0 in a query
        medians         one array (2^l,) a level
        order, leaves   (n,): the rows by leaf, and the leaf of each, ascending
    ``radius`` is the largest norm of an arm.
    """

    vectors: Given
    components: Matrix
    medians: tuple[Vector, ...]
    order: Rows
    leaves: Rows
    radius: float

    @classmethod
    def build(cls, vectors: Given, depth: int, rng: np.random.Generator) -> PcaMips:
        """Find the components and halve the arms. ``rng`` only starts an iteration that converges.

        Shapes: vectors (n, d). Cost: O(n d depth) for each of a dozen steps; the memory of n depth numbers.
        Raises: InvalidShape, NonFinite, InvalidParameter (depth not in 0 to min(20, n, d + 1)).
        """
        check_arms(vectors)
        checks.in_range("depth", depth, least=0, most=min(MOST_DEPTH, len(vectors), vectors.shape[1] + 1))
        norms = norms_of(vectors)
        last = last_coordinate(norms)
        components = principal_components(vectors, last, depth, rng)
        along = vectors @ components[:, :-1].T.astype(vectors.dtype) + np.outer(last, components[:, -1])
        medians, nodes = _halved(along)
        order: Rows = np.argsort(nodes, kind="stable")
        radius = float(norms.max(initial=0.0))
        return cls(vectors, components[:, :-1], medians, order, nodes[order], radius)

    def candidates(self, query: Given) -> Screened:
        """Return the arms of the query's leaf, in row order.

        Shapes: query (d,) -> rows (m,), m about n / 2^depth. Cost: depth d products.
        Raises: InvalidShape, NonFinite.
        """
        check_query(query, self.vectors.shape[1])
        along = self.components @ on_the_sphere(query, self.radius)
        node = 0
        for value, medians in zip(along.tolist(), self.medians, strict=True):
            node = 2 * node + int(value > medians[node])
        first, stop = np.searchsorted(self.leaves, (node, node + 1))
        return Screened(self.order[first:stop], self.components.size)


def principal_components(vectors: Given, last: Vector, count: int, rng: np.random.Generator) -> Matrix:
    """Return the directions of largest variance of [x, last], one a row, by orthogonal iteration.

    Components of nearly the same variance are found as some basis of what they span.
    Shapes: vectors (n, d), last (n,) -> (count, d + 1). Cost: 24 n d (count + 10) products.
    """
    dim = vectors.shape[1] + 1
    mean = np.append(vectors.mean(axis=0, dtype=np.float64), last.mean())
    basis = rng.standard_normal((dim, min(count + _MORE, dim)))
    for _ in range(_STEPS if count else 0):
        basis = np.linalg.qr(basis)[0]
        scores = vectors @ basis[:-1].astype(vectors.dtype) + np.outer(last, basis[-1]) - mean @ basis
        # The scores of a column sum to 0, so the mean need not be taken off the arms once more.
        basis = np.vstack((vectors.T @ scores.astype(vectors.dtype), last @ scores))
    components: Matrix = np.linalg.qr(basis)[0].T[:count]
    return components


def _halved(along: Matrix) -> tuple[tuple[Vector, ...], Rows]:
    """Return the medians of every level, and the leaf of every arm. Shapes: along (n, depth) -> leaves (n,).

    The lower half is rounded down, and a median is its largest value: -inf for an empty half, so no query
    goes to an empty side of a node with arms.
    """
    nodes = np.zeros(len(along), dtype=np.int64)
    levels = []
    for level, values in enumerate(along.T):
        order = np.lexsort((values, nodes))
        counts = np.bincount(nodes, minlength=2**level)
        starts = np.cumsum(counts) - counts
        position = np.empty(len(nodes), dtype=np.int64)
        position[order] = np.arange(len(nodes)) - np.repeat(starts, counts)
        lower = counts // 2
        medians = np.full(len(counts), -np.inf)
        halved = lower > 0
        medians[halved] = values[order[(starts + lower - 1)[halved]]]
        levels.append(medians)
        nodes = 2 * nodes + (position >= lower[nodes])
    return tuple(levels), nodes
