"""Why a union bound says nothing about queries that depend on answers, and what the net does about it.

    python -m examples.adaptive_queries

First the thought experiment of section 3.2 of Yang et al., "Linear Bandit Algorithms with Sublinear Time
Complexity": a box holds a random unit vector p of 10 dimensions and answers <q, p>; who asks 11 times wants a
query with <q, p> = 1. Then the same turn against an approximate search: one that fails on a tenth of all
queries fails an adversary every time, and Algorithm 1 (rounding, and enough independent solvers) never.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from shortlist.mips.adaptive import AdaptiveSolver, Scan
from shortlist.mips.epsilon_net import solvers_needed
from shortlist.types import NO_ROWS, Rows, TopK

Vector = NDArray[np.float64]

DIM = 10
ASKED = 11
FAILS_ON = 0.1
EPSILON = 0.5


class Box:
    """Holds p, and answers <q, p>."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._secret = unit(rng.standard_normal(DIM))

    def ask(self, query: Vector) -> float:
        return float(query @ self._secret)


def unit(vector: Vector) -> Vector:
    return vector / float(np.linalg.norm(vector))


def guess(box: Box, rng: np.random.Generator) -> float:
    """The best of 11 queries that do not depend on the answers."""
    return max(box.ask(unit(rng.standard_normal(DIM))) for _ in range(ASKED))


def solve(box: Box) -> float:
    """Ten answers make ten linear equations for p; the eleventh query is their solution."""
    queries = np.eye(DIM)
    answers = np.array([box.ask(query) for query in queries])
    return box.ask(np.linalg.solve(queries, answers))


class Approximate:
    """Right on any fixed query with probability 0.9; on which, was drawn when it was made."""

    def __init__(self, arms: NDArray[np.float64], seed: int) -> None:
        self._exact = Scan(arms)
        self._key = seed.to_bytes(8, "little")

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        digest = hashlib.blake2b(query.tobytes(), key=self._key, digest_size=8).digest()
        if int.from_bytes(digest, "little") < FAILS_ON * 2**64:
            return TopK(NO_ROWS, np.empty(0), exact=False)
        return self._exact.search(query, k, exclude)


def failures(copies: int, rng: np.random.Generator, *, steps: int = 300) -> tuple[int, int]:
    """Failures among ``steps`` queries that were fixed beforehand, and among as many of an adversary."""
    arms = np.eye(2)
    solver = AdaptiveSolver([Approximate(arms, seed) for seed in range(copies)], 0.5, 0.2, EPSILON)
    queries = [unit(np.abs(rng.standard_normal(2))) for _ in range(steps)]
    fixed = sum(solver.query(query) is None for query in queries)
    place = adaptive = 0
    for _ in range(steps):
        if solver.query(queries[place]) is None:
            adaptive += 1  # it fails here: ask the same again
        else:
            place = (place + 1) % steps
    return fixed, adaptive


def main(seed: int = 1) -> dict[str, float]:
    """Print both experiments, and return their figures."""
    rng = np.random.default_rng(seed)
    box = Box(rng)
    figures = {"guessed": guess(box, rng), "solved": solve(box)}
    print(f"best <q, p> of {ASKED} queries: fixed {figures['guessed']:.3f}, adaptive {figures['solved']:.6f}")
    for copies in (1, solvers_needed(2, epsilon=EPSILON, delta=1e-6)):
        fixed, adaptive = failures(copies, rng)
        figures |= {f"fixed_{copies}": fixed, f"adaptive_{copies}": adaptive}
        print(f"{copies:2} solvers, 300 queries: {fixed:3} failures when fixed, {adaptive:3} when adaptive")
    return figures


if __name__ == "__main__":
    main()
