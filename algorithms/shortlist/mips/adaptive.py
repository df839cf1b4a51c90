"""The adaptive MIPS solver, and the ladder of them for Thompson sampling.

Notation
    K, d            number of arms, dimension; R the largest norm of an arm
    q, q^           query (d,) of norm at most 1, and its nearest point of the net
    p               an arm divided by R: |p| <= 1 (c, r, epsilon) if <q, p*> >= r + epsilon for some arm, an
    arm with <q, p> >= c r - epsilon is returned
    null            no arm is returned
    i, n            rung of the ladder, 1 <= i <= n = ceil(d / eta): c = 1 - 1/(i + 1), r = i eta / d,
                    epsilon = eta / d

The solvers inside answer (c, r, 0) on net points with probability at least 0.9 each, independently; an exact
one never fails, and is enough. Ours do not depend on c and r, so all rungs share them, and the whole ladder
is one question to each: the largest rung with an arm is read off the best answer.

The guarantee of the ladder (docs/papers/sublinear-bandits.md): if all net points are answered and max <q, p>
>= 2 eta / d, the answer has <q, p> > max - 4 eta / d.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Algorithm 1, Theorem 3.3, and
Algorithm 4, lines 3 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.mips.epsilon_net import nearest_point
from shortlist.mips.exact import exact
from shortlist.types import NO_ROWS, Matrix, MipsSolver, Rows, TopK, Vector

_UNIT = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveSolver:
    """M(c, r, epsilon): Algorithm 1 over ``solvers`` that hold arms of norm at most 1.

    Arms are added to and deleted from the solvers themselves (line 7).
    """

    solvers: Sequence[MipsSolver]
    c: float
    r: float
    epsilon: float

    def __post_init__(self) -> None:
        checks.in_range("c", self.c, above=0.0, most=1.0)
        checks.in_range("r", self.r, above=0.0)
        checks.in_range("epsilon", self.epsilon, above=0.0)

    def query(self, query: Vector, exclude: Rows = NO_ROWS) -> int | None:
        """Return the row of an arm, or null. Raises: NonFinite, InvalidParameter (|query| > 1)."""
        if len(query) and float(np.linalg.norm(query)) > _UNIT:
            raise InvalidParameter("query must have a norm of at most 1", argument="query")
        answer = _ask(self.solvers, nearest_point(query, epsilon=self.epsilon), 1, exclude)
        # DEVIATION (Alg. 1, line 12): the best of all answers, which is checked against c r at the net point.
        return int(answer.rows[0]) if len(answer.rows) and answer.scores[0] >= self.c * self.r else None


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs of Algorithm 4 over one set of ``solvers``, as a ``MipsSolver`` that may answer null.

    ``largest_norm`` is R, or more; ``features_of`` maps rows (m,) to features (m, d), for exact scores.
    """

    solvers: Sequence[MipsSolver]
    features_of: Callable[[Rows], Matrix]
    largest_norm: float
    eta: float

    def __post_init__(self) -> None:
        checks.in_range("eta", self.eta, above=0.0, most=1.0)
        checks.in_range("largest_norm", self.largest_norm, least=0.0)

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return up to ``k`` arms that are not null, those of the largest rungs first, then of largest score.

        Scores are x.query in float64. Shapes: query (d,), exclude (e,) -> rows (m,), scores (m,), m <= k.
        Cost: one search of each solver. Raises: NonFinite, InvalidParameter (k < 1).
        """
        checks.in_range("k", k, least=1)
        checks.finite("query", query)
        largest = float(np.abs(query).max(initial=0.0))
        if largest == 0.0 or self.largest_norm == 0.0:
            return TopK(NO_ROWS, np.empty(0), exact=False)
        unit = query / largest
        unit /= np.linalg.norm(unit)
        rounded = nearest_point(unit, epsilon=self.eta / len(query))
        answer = _ask(self.solvers, rounded, k, exclude)
        rungs = rung_of(answer.scores / self.largest_norm, dim=len(query), eta=self.eta)
        rows, rungs = answer.rows[rungs > 0], rungs[rungs > 0]
        scores: Vector = np.add.reduce(self.features_of(rows) * query, axis=1)
        order = np.lexsort((rows, -scores, -rungs))[:k]
        return TopK(rows[order], scores[order], exact=False)


def eta_of(query: Vector, largest_norm: float, epsilon: float) -> float:
    """The ratio for a loss of at most ``epsilon`` in the mean product of a coordinate: 4 eta |q| R / d^2.

    It is at most 1. Shapes: query (d,).
    """
    scale = 4.0 * float(np.linalg.norm(query)) * largest_norm
    return min(1.0, epsilon * len(query) ** 2 / scale) if scale > 0.0 else 1.0


def rung_of(values: Vector, *, dim: int, eta: float) -> Rows:
    """Return the largest rung whose c r is at most the value, 0 for null. Shapes: (m,) -> (m,).

    c r = i^2 / (i + 1) eta / d, so i is the floor of the larger root of i^2 - t i - t, t = value d / eta.
    """
    scaled = np.maximum(values * dim / eta, 0.0)
    rungs = np.floor((scaled + np.sqrt(scaled * (scaled + 4.0))) / 2.0)
    for step in (1.0, -1.0):  # the root is rounded: make the comparison itself decide
        near = rungs + max(step, 0.0)
        passes = near * near <= scaled * (near + 1.0)
        rungs = np.where(passes, near, rungs) if step > 0 else np.where(passes, rungs, near - 1.0)
    return np.clip(rungs, 0, math.ceil(dim / eta)).astype(np.int64)


def adaptive(
    vectors: Matrix, query: Vector, *, k: int = 1, eta: float, solvers: Sequence[MipsSolver] = ()
) -> TopK:
    """Return up to ``k`` rows by the ladder: over ``solvers`` that hold ``vectors``, or one that is exact.

    Rows whose product with the query is below eta / (2 d) |query| R may be left out.

    Shapes: vectors (K, d), query (d,) -> rows, scores (m,), m <= k. Cost: K d reads for the exact solver.
    Raises: InvalidShape, NonFinite, InvalidParameter (k < 1, eta not in (0, 1]).
    """
    checks.shape("vectors", vectors, (None, None))
    checks.shape("query", query, (vectors.shape[1],))
    checks.finite("vectors", vectors)
    largest = float(np.linalg.norm(vectors, axis=1).max(initial=0.0))
    used_solvers = tuple(solvers) or (Scan(vectors),)
    return Ladder(used_solvers, lambda rows: vectors[rows], largest, eta).search(query, k)


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """The exact solver: it never fails, on any query."""

    vectors: Matrix

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """As ``exact``, which it calls."""
        return exact(self.vectors, query, k=k, exclude=exclude)


def _ask(solvers: Sequence[MipsSolver], query: Vector, k: int, exclude: Rows) -> TopK:
    """The best ``k`` of all answers to one question (line 11), ties in row order."""
    answers = [solver.search(query, k, exclude) for solver in solvers]
    rows = np.concatenate([answer.rows for answer in answers])
    scores = np.concatenate([answer.scores for answer in answers])
    rows, first = np.unique(rows, return_index=True)
    order = np.lexsort((rows, -scores[first]))[:k]
    return TopK(rows[order], scores[first][order], exact=False)
