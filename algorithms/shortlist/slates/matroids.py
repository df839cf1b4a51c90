"""Matroids, whose bases are the slates: sets of k arms, met through a linear oracle.

Notation
    base        a largest independent set; all have k arms, and they are the slates
    B - f + e   the base B with the arm f exchanged for e; all that is asked below is whether this is a base
    component   arms exchangeable for one another, through others if need be. Every base has equally
                many arms of a component

The vectors of all bases span R^n if there is one component. With c of them n - c + 1 dimensions are spanned:
the total of one component cannot be told apart from another's, and need not be, since all slates have the
same number of arms of each.

Source: Kuroki et al., Appendices A and B; Oxley, "Matroid Theory", sections 1.2 and 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.types import Matrix, Rows, Vector

Mask = NDArray[np.bool_]


class Matroid(Protocol):
    """``n`` arms, and which sets of ``k`` of them are slates. Hashable, and it does not change."""

    def __hash__(self) -> int: ...

    @property
    def n(self) -> int:
        """The number of arms."""
        ...

    @property
    def k(self) -> int:
        """The number of arms of a slate."""
        ...

    def best(self, weights: Vector) -> Rows:
        """Return the base of largest total weight, ascending; of equal weights the lower index first.

        Shapes: (n,), finite -> (k,).
        """
        ...

    def has(self, sets: Mask) -> Mask:
        """Return which of these sets of k arms are bases. Shapes: (m, n) -> (m,)."""
        ...


@dataclass(frozen=True, slots=True)
class UniformMatroid:
    """Any ``k`` of ``n`` arms."""

    n: int
    k: int

    def best(self, weights: Vector) -> Rows:
        """Cost: O(n log n)."""
        return np.sort(np.argsort(-weights, kind="stable")[: self.k])

    def has(self, sets: Mask) -> Mask:
        """As ``Matroid.has``: every set is a base."""
        return np.ones(len(sets), dtype=bool)


@dataclass(frozen=True)
class PartitionMatroid:
    """``k`` arms, of each group at most its limit.

    ``groups`` has the group of each arm, 0, 1, ...; ``limits`` how many arms of each group a slate may have.
    """

    groups: tuple[int, ...]
    limits: tuple[int, ...]
    k: int

    @property
    def n(self) -> int:
        """The number of arms."""
        return len(self.groups)

    @property
    def rank(self) -> int:
        """The most arms that the limits let into one set; a slate needs k."""
        sizes = np.bincount(self._groups, minlength=len(self.limits))
        return int(np.minimum(sizes, self._limits).sum())

    @cached_property
    def _groups(self) -> NDArray[np.int64]:
        return np.array(self.groups, dtype=np.int64)

    @cached_property
    def _limits(self) -> NDArray[np.int64]:
        return np.array(self.limits, dtype=np.int64)

    @cached_property
    def _kept(self) -> NDArray[np.bool_]:
        """A mask of the arms, sorted by group, which are among the first ``limit`` of theirs. Shape (n,)."""
        groups = np.sort(self._groups)
        position = np.arange(self.n) - np.searchsorted(groups, groups)
        return np.asarray(position < self._limits[groups])

    def best(self, weights: Vector) -> Rows:
        """The greedy algorithm. Cost: O(n log n)."""
        best: Rows = self.greedy(np.argsort(-weights, kind="stable")[np.newaxis])[0]
        return best

    def greedy(self, orders: Rows) -> Rows:
        """Return the base that takes, in each order of the arms, every arm whose group is not yet full.

        Shapes: (m, n) -> (m, k), ascending. Cost: O(m n log n).
        """
        groups = self._groups.astype(np.uint16 if len(self.limits) < 2**16 else np.int64)
        together = np.argsort(groups[orders], axis=1, kind="stable")  # places, group by group
        first = np.sort(together[:, self._kept], axis=1)[:, : self.k]
        return np.sort(np.take_along_axis(orders, first, axis=1), axis=1)

    def has(self, sets: Mask) -> Mask:
        """Cost: O(m n), and O(m) numbers for each group."""
        members = np.zeros((self.n, len(self.limits)))
        members[np.arange(self.n), self._groups] = 1.0
        return np.asarray((sets @ members <= self._limits).all(axis=1))


def check(matroid: PartitionMatroid, n: int, k: int) -> None:
    """Raise InvalidParameter for one of other arms, limits below 1, or so low that no slate has k arms.

    Otherwise every arm is in some slate, and for k < n there are two slates at least.
    """
    given: object = matroid
    if not isinstance(given, PartitionMatroid) or (given.n, given.k) != (n, k):
        raise InvalidParameter(f"matroid must be a PartitionMatroid of {k} of {n} arms", argument="matroid")
    for limit in matroid.limits:
        checks.in_range("limits", limit, least=1, whole=True)
    for group in matroid.groups:
        checks.in_range("groups", group, least=0, most=len(matroid.limits) - 1, whole=True)
    if matroid.rank < matroid.k:
        text = f"the rules let at most {matroid.rank} of the arms into one slate, which is fewer than k"
        raise InvalidParameter(text, argument="rules")


@dataclass(frozen=True, slots=True, eq=False)
class Spanning:
    """Slates whose vectors are linearly independent and span those of all, and the component of each arm.

    Shapes: slates (d, k); components (n,), numbered from 0; d = n + 1 - the number of components.
    """

    slates: Rows
    components: NDArray[np.int64]


@lru_cache(maxsize=16)
def spanning(matroid: Matroid, first: tuple[int, ...]) -> Spanning:
    """Return d slates that span all. ``first`` is one of them.

    Let e be outside B, the first slate, and f in it. B - f + e is a slate for the f of one circuit. Join e
    and f then: the joined arms are the components, and n - c joints make a forest. Its slates and B are
    linearly independent, because the differences e - f are the edges of a forest. Cost: at most 2n calls of
    the oracle.
    """
    n, inside = matroid.n, np.zeros(matroid.n, dtype=bool)
    inside[list(first)] = True
    label = np.arange(n)
    slates = [np.array(first, dtype=np.int64)]
    for e in np.flatnonzero(~inside).tolist():
        while True:
            # The heaviest base has e, and all of the first slate but one: if it can, an arm not yet joined.
            weights = np.where(inside, np.where(label == label[e], 2.0, 1.0), 0.0)
            weights[e] = 3.0
            basis = matroid.best(weights)
            (gone,) = np.setdiff1d(slates[0], basis).tolist() or [e]
            if label[gone] == label[e]:
                break
            slates.append(basis)
            label[label == label[gone]] = label[e]
    components = np.unique(label, return_inverse=True)[1]
    return Spanning(np.array(slates), components.astype(np.int64))


@lru_cache(maxsize=16)
def unseen(matroid: Matroid) -> Matrix:
    """Return an orthonormal basis of the vectors that are orthogonal to every slate. Shape (n, c - 1).

    They are constant on components E_j, with values a_j such that the sum of a_j r_j is 0, where r_j is how
    many arms of E_j a slate has.
    """
    if isinstance(matroid, UniformMatroid) and matroid.k < matroid.n:
        return np.zeros((matroid.n, 0))
    first = tuple(matroid.best(np.zeros(matroid.n)).tolist())
    components = spanning(matroid, first).components
    sizes = np.bincount(components)
    ranks = np.bincount(components[list(first)], minlength=len(sizes))
    units = np.zeros((matroid.n, len(sizes)))
    units[np.arange(matroid.n), components] = 1.0 / np.sqrt(sizes[components])
    complement = np.linalg.qr((ranks / np.sqrt(sizes))[:, np.newaxis], mode="complete")[0][:, 1:]
    basis: Matrix = units @ complement
    return basis


def lead(matroid: Matroid, weights: Vector, best: Rows) -> float:
    """Return by how much the best slate is heavier than the second; infinite if there is no other.

    The second lacks some arm of the best. Shapes: (n,), (k,). Cost: k calls of the oracle.
    """
    least = float(weights.min()) - 1.0 - abs(float(weights.min()))  # taken last
    found = np.inf
    for arm in best.tolist():
        lowered = weights.copy()
        lowered[arm] = least
        other = matroid.best(lowered)
        gone, come = np.setdiff1d(best, other), np.setdiff1d(other, best)
        if len(gone):
            found = min(found, float(weights[gone].sum() - weights[come].sum()))
    return found
