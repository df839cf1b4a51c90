"""LSH-MIPS: the arms in a bucket with the query in one of several hash tables.

Notation
    n, d        number of arms, of coordinates
    x', q'      arm and query on one sphere, see ``euclidean_reduction``; v the cosine of their angle
    a, b        bits of a table (all must agree: AND), tables (one is enough: OR)
    s(v)        1 - arccos(v) / pi, the probability of one bit to agree
    c, r        contract of a solver: if <q, x> >= r for some arm, one with <q, x> >= c r is returned

A bit is the side of a random hyperplane through 0 on which a point lies. Hyperplanes are independent, so an
arm is a candidate with probability 1 - (1 - s(v)^a)^b, drawn once for each set of tables and fixed query.

``solver_for`` chooses a and b for which this is at least 0.9 wherever <q, x> >= r. The adaptive solver
(``mips.adaptive``) needs such solvers, each with randomness of its own. With R the largest norm, at most 1,
the cosine is <q, x> / (R |q|) >= r / |q|. A query is a point of the net, so |q| can be a little above 1.

Sources: Neyshabur and Srebro, "On Symmetric and Asymmetric LSHs for Inner Product Search", ICML 2015, section
4; Charikar, "Similarity Estimation Techniques from Rounding Algorithms", STOC 2002, section 3; Yang et al.,
"Linear Bandit Algorithms with Sublinear Time Complexity", Proposition 3.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.mips.columns import Given
from shortlist.mips.epsilon_net import FAILURE, rounding_error
from shortlist.mips.screening.euclidean_reduction import last_coordinate, norms_of
from shortlist.mips.screening.screened import Screened, check_arms, check_query
from shortlist.types import NO_ROWS, Rows, TopK, Vector

MOST_BITS = 60
_UNIT = 1.0 + 1e-9

Codes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class LshMips:
    """The tables, as a ``MipsSolver``.

    Shapes
        vectors         (n, d)
        hyperplanes     (b, a, d), without their last coordinate, which is 0 in a query
        codes, order    (b, n): the codes of each table, ascending, and the rows in that order
    """

    vectors: Given
    hyperplanes: Given
    codes: Codes
    order: NDArray[np.int32]

    @classmethod
    def build(cls, vectors: Given, *, bits: int, tables: int, rng: np.random.Generator) -> LshMips:
        """Hash all arms into ``tables`` tables of ``bits`` bits.

        Cost: n d a b products; memory 12 n b bytes and the hyperplanes.
        Raises: InvalidShape, NonFinite, InvalidParameter (bits not in 1 to 60, tables < 1).
        """
        check_arms(vectors)
        checks.in_range("bits", bits, least=1, most=MOST_BITS)
        checks.in_range("tables", tables, least=1)
        n, dim = vectors.shape
        drawn = rng.standard_normal((tables, bits, dim + 1)).astype(vectors.dtype)
        last = last_coordinate(norms_of(vectors)).astype(vectors.dtype)
        codes = np.empty((tables, n), dtype=np.uint64)
        order = np.empty((tables, n), dtype=np.int32)
        for table, planes in enumerate(drawn):
            sides = vectors @ planes[:, :-1].T + np.outer(last, planes[:, -1])
            code = _codes(sides)
            order[table] = np.argsort(code, kind="stable")
            codes[table] = code[order[table]]
        return cls(vectors, np.ascontiguousarray(drawn[..., :-1]), codes, order)

    @property
    def bits(self) -> int:
        """The number of hyperplanes of a table."""
        return int(self.hyperplanes.shape[1])

    @property
    def tables(self) -> int:
        """The number of tables."""
        return int(self.hyperplanes.shape[0])

    def candidates(self, query: Given) -> Screened:
        """Return the arms that share a bucket with the query, in row order.

        Shapes: query (d,) -> rows (m,). Cost: a b d products, and reading the buckets.
        Raises: InvalidShape, NonFinite.
        """
        check_query(query, self.vectors.shape[1])
        asked = _codes(self.hyperplanes @ query.astype(self.hyperplanes.dtype))
        is_candidate = np.zeros(len(self.vectors), dtype=np.bool_)
        for codes, order, code in zip(self.codes, self.order, asked, strict=True):
            first, stop = codes.searchsorted(code), codes.searchsorted(code, "right")
            is_candidate[order[first:stop]] = True
        return Screened(np.flatnonzero(is_candidate), self.hyperplanes.size)

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return the best ``k`` candidates that are not excluded: see ``Screened.best``."""
        screened = self.candidates(query)
        if len(exclude):
            screened = Screened(np.setdiff1d(screened.rows, exclude), screened.multiplications)
        return screened.best(k, self.vectors, query)


def _codes(sides: NDArray[np.floating]) -> Codes:
    """The sides of the hyperplanes as one number. Shapes: (..., a) -> (...,)."""
    weights = np.uint64(1) << np.arange(sides.shape[-1], dtype=np.uint64)
    codes: Codes = (sides >= 0.0) @ weights
    return codes


def collision_probability(cosine: float) -> float:
    """Return s(v), the probability that one bit agrees. Raises: InvalidParameter (not in [-1, 1])."""
    checks.in_range("cosine", cosine, least=-1.0, most=1.0)
    return 1.0 - math.acos(cosine) / math.pi


def success_probability(cosine: float, *, bits: int, tables: int) -> float:
    """Return the probability that an arm at this cosine is a candidate."""
    agree = collision_probability(cosine) ** bits
    return 1.0 if agree == 1.0 else -math.expm1(tables * math.log1p(-agree))


def tables_needed(cosine: float, *, bits: int) -> int:
    """Return the least number of tables that finds an arm at this cosine with probability 0.9."""
    agree = collision_probability(cosine) ** bits
    if agree == 0.0:
        raise InvalidParameter(
            "cosine must be larger: no number of tables finds such an arm", argument="cosine"
        )
    return 1 if agree > 1.0 - FAILURE else math.ceil(math.log(FAILURE) / math.log1p(-agree))


def products_needed(count: int, *, near: float, far: float, bits: int) -> float:
    """Return how many products of arms with a query, on average, a solver with ``bits`` bits takes at most.

    It hashes the query, b hyperplanes of a bits, and scores its candidates. All ``count`` arms but one are at
    the cosine ``far`` at most; tables are as many as find an arm at ``near``.
    """
    tables = tables_needed(near, bits=bits)
    return tables * bits + count * success_probability(far, bits=bits, tables=tables)


def bits_for(count: int, *, near: float, far: float) -> int:
    """Return the bits of a table with which a query takes the fewest products. Cost: O(1)."""
    return min(range(1, MOST_BITS + 1), key=lambda a: products_needed(count, near=near, far=far, bits=a))


def least_cosine(r: float, *, dim: int, epsilon: float) -> float:
    """Return the least cosine of an arm with <q^, x> >= r, for q in the unit ball rounded to its net."""
    return r / (1.0 + rounding_error(dim, epsilon))


def solver_for(vectors: Given, *, c: float, r: float, epsilon: float, rng: np.random.Generator) -> LshMips:
    """Return S(c, r, 0): on any fixed point of the net it keeps the contract with probability at least 0.9.

    ``epsilon`` is the width of the net, as of ``AdaptiveSolver``. Bits are those with the fewest products
    where all other arms are just below c r, and tables follow. So an arm with <q, x> >= r is a candidate with
    probability 0.9, and the best candidate is at least as good.
    Raises: as ``LshMips.build``; InvalidParameter (c not in (0, 1], r not in (0, 1], a norm above 1).
    """
    check_arms(vectors)
    checks.in_range("c", c, above=0.0, most=1.0)
    checks.in_range("r", r, above=0.0, most=1.0)
    largest = float(norms_of(vectors).max(initial=0.0))
    if largest > _UNIT:
        raise InvalidParameter("vectors must have norms of at most 1", argument="vectors")
    cosine = least_cosine(r, dim=vectors.shape[1], epsilon=epsilon)
    bits = bits_for(len(vectors), near=cosine, far=c * r)
    # DEVIATION (Prop. 3.2): tables of random hyperplanes in place of the tree of Andoni et al. (2017).
    return LshMips.build(vectors, bits=bits, tables=tables_needed(cosine, bits=bits), rng=rng)
