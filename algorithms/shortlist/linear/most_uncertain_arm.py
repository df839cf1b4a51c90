"""Searches for the most uncertain arm: each proposes living arms of large width without reading all of them.

Notation
    V^-1            inverse of the precision (d, d); ||x||^2 = x^T V^-1 x is the squared width of x
    s               lowest stage with a living arm
    u               direction of an inner product search (d,)
    f*              the largest squared width of a living arm

A finder only proposes arms. ``sub_elim.choose`` computes the width of each of them, so a poor finder costs an
exact pass, but never a wrong answer. The service uses ``Watched``. What each finder guarantees is proved in
docs/papers/sublinear-bandits.md; what it costs and finds is measured by ``shortlist bench elimination``.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Algorithm 2, lines 15 to 18.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shortlist.linear.elimination import WATCHED, Elimination, FeaturesOf
from shortlist.linear.ridge import Posterior, widths
from shortlist.types import Matrix, MipsSolver, Rows, Vector


class Finder(Protocol):
    """Proposes rows of arms; the caller leaves out those that do not live."""

    def __call__(self, posterior: Posterior, state: Elimination, rng: np.random.Generator, /) -> Rows: ...


def every_arm(_posterior: Posterior, state: Elimination, _rng: np.random.Generator) -> Rows:
    """Propose all arms, so that the most uncertain one is found. Cost of n widths: O(n d^2)."""
    return np.concatenate([heap.rows for heap in state.stages])


def whole_stage(_posterior: Posterior, state: Elimination, _rng: np.random.Generator) -> Rows:
    """Propose the lowest stage: an arm that is wider than 2^-(s + 1) can only be there."""
    return state.stages[0].rows


@dataclass(frozen=True, slots=True)
class StageSample:
    """Proposes ``size`` arms of the lowest stage, drawn with replacement, or all of a stage that is no
    larger.

    If a share p of the stage is still wide enough, it finds none of these with probability (1 - p)^size.
    """

    size: int = 32

    def __call__(self, _posterior: Posterior, state: Elimination, rng: np.random.Generator) -> Rows:
        lowest = state.stages[0]
        return lowest.rows if len(lowest) <= self.size else lowest.draw(self.size, rng)


@dataclass(frozen=True, slots=True)
class Watched:
    """Proposes the arms that were most uncertain when they were placed, and a sample of the lowest stage.

    It needs no index, and its cost does not grow with K. A sample is good enough because the widths of a
    stage were within a factor of 2 when its arms were placed. ``sample`` draws from the stage.
    """

    sample: StageSample = StageSample()

    @property
    def most(self) -> int:
        """The largest number of proposed arms."""
        return WATCHED + self.sample.size

    def __call__(self, posterior: Posterior, state: Elimination, rng: np.random.Generator) -> Rows:
        # DEVIATION (Alg. 2, line 17): no index; the stage is sampled, and an exact pass verifies a null.
        return np.concatenate((state.watched, self.sample(posterior, state, rng)))


@dataclass(frozen=True, slots=True)
class AlternatingSearch:
    """Alternates x <- argmax |u.x| and u <- V^-1 x over an index of all arms: ||x||^2 never falls.

    ``solver`` is the index, whose rows ``features_of`` maps to features. It is asked for the ``shortlist``
    best arms of u and of -u; the most uncertain living one gives the next u. There are at most ``rounds``
    steps from each of ``starts`` first vectors, which are Gaussian vectors after two steps of power iteration
    with V^-1. When no shortlist has a living arm, because most wide arms are eliminated, a ``StageSample``
    answers.

    Cost: at most 2 * starts * rounds searches. Guarantee: squared width at least f* / d, if every
    eigenvector of V^-1 is a start and ``solver`` is exact.
    """

    solver: MipsSolver
    features_of: FeaturesOf
    starts: int = 1
    rounds: int = 4
    shortlist: int = 30

    def __call__(self, posterior: Posterior, state: Elimination, rng: np.random.Generator) -> Rows:
        # DEVIATION (Alg. 2, lines 7 and 13): one d-dimensional index of all arms serves all stages.
        climbs = [self._climb(posterior, state, self._first(posterior, rng)) for _ in range(self.starts)]
        rows = np.concatenate(climbs)
        return rows if len(rows) else StageSample()(posterior, state, rng)

    def _first(self, posterior: Posterior, rng: np.random.Generator) -> Vector:
        root = posterior.root
        inverse = root @ root.T
        direction: Vector = inverse @ (inverse @ rng.standard_normal(len(inverse)))
        return direction

    def _climb(self, posterior: Posterior, state: Elimination, direction: Vector) -> Rows:
        best, visited, root = 0.0, [], posterior.root
        for _ in range(self.rounds):
            direction /= np.linalg.norm(direction)
            hits = [self.solver.search(sign * direction, self.shortlist).rows for sign in (1.0, -1.0)]
            rows = state.living.among(np.concatenate(hits))
            if not len(rows):
                break
            features = self.features_of(rows)
            spans = widths(posterior, features)
            visited.append(rows)
            widest = int(spans.argmax())
            if spans[widest] <= best:
                break
            best = float(spans[widest])
            direction = root @ (features[widest] @ root)
        return np.concatenate(visited) if visited else np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class QuadraticSearch:
    """Searches vec(V^-1) in an index of vec(x x^T): the paper's reduction, of dimension d (d + 1) / 2.

    ``solver`` is an index of ``packed_squares`` of the arms under the same rows; it is asked for
    ``shortlist`` arms. When none of them lives, a ``StageSample`` answers. Cost: one search. Guarantee: the
    most uncertain living arm, if ``solver`` is exact and a living arm is in its shortlist.
    """

    solver: MipsSolver
    shortlist: int

    def __call__(self, posterior: Posterior, state: Elimination, rng: np.random.Generator) -> Rows:
        root = posterior.root
        query = packed(root @ root.T)
        rows = state.living.among(self.solver.search(query, self.shortlist).rows)
        return rows if len(rows) else StageSample()(posterior, state, rng)


def packed(symmetric: Matrix) -> Vector:
    """Return the upper triangle, entries off the diagonal times sqrt 2: packed(A).packed(B) = trace(A B).

    Shapes: (d, d) -> (d (d + 1) / 2,).
    """
    first, second = np.triu_indices(len(symmetric))
    return symmetric[first, second] * np.where(first == second, 1.0, np.sqrt(2.0))


def packed_squares(features: Matrix) -> Matrix:
    """Return ``packed(x x^T)`` of every row. Shapes: (n, d) -> (n, d (d + 1) / 2)."""
    first, second = np.triu_indices(features.shape[1])
    weights = np.where(first == second, 1.0, np.sqrt(2.0))
    return features[:, first] * features[:, second] * weights
