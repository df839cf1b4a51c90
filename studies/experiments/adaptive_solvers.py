"""`shortlist reproduce adaptive-solvers`: hashed solvers, for which Theorem 3.3 holds, beside graphs.

Notation
    K, d            arms, dimension; norms are at most 1
    c, r, epsilon   contract of the adaptive solver, see ``mips.adaptive``
    kappa           solvers that the theorem asks for, with delta = 0.05
    fixed           queries out of 1,000 that were drawn beforehand and are answered null, although an arm has
                    a product of at least r + epsilon
    adversary       the same out of 1,000, of one who goes on asking a query that was answered null
    products        computed a query, over the K of a scan (graphs do not count theirs)
    time            of a query, over that of one BLAS product with all arms and its maximum

Two sets of arms. ``one long``: one arm of norm 1, all others shorter than c r, so that only it is an answer,
and queries just far enough from it. ``gaussian``: normal arms over the largest norm, queries in all
directions.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Proposition 3.2, Theorem 3.3.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from app.catalogues.adaptive_solver import IndependentGraphs
from app.indexes.live import IndexOptions, LiveIndex
from app.platform.command_line import table
from shortlist.mips.adaptive import AdaptiveSolver, Scan
from shortlist.mips.epsilon_net import nearest_point, solvers_needed
from shortlist.mips.screening import lsh_mips
from shortlist.mips.screening.lsh_mips import LshMips, solver_for
from shortlist.types import Matrix, MipsSolver, Vector
from shortlist_client.progress import progress
from studies.measurement import report

SEED = 17
ARMS, QUICK_ARMS, DIM = 10_000, 2_000, 8
QUERIES, QUICK_QUERIES = 1_000, 100
EPSILON, DELTA = 0.02, 0.05
GRAPHS = 4
# What hashing takes by the formula alone: contracts (c, r), and numbers of arms.
CONTRACTS = ((0.5, 0.4), (0.5, 0.8), (0.5, 0.95), (0.9, 0.95))
COUNTS = (10**4, 10**6, 10**8)


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Arms (K, d), a contract, and queries for which some arm has a product of r + epsilon."""

    name: str
    arms: Matrix
    c: float
    r: float
    epsilon: float
    queries: Callable[[np.random.Generator], Iterator[Vector]]

    @property
    def kappa(self) -> int:
        return solvers_needed(self.arms.shape[1], epsilon=self.epsilon, delta=DELTA)


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - as all reproductions
    """Print what hashing takes by its formula, and one row a set of arms and way to search them."""
    count, queries = (QUICK_ARMS, QUICK_QUERIES) if quick else (ARMS, QUERIES)
    cases = [
        (instance, *solvers) for instance in (one_long(count), gaussian(count)) for solvers in ways(instance)
    ]
    rows = [row(*case, queries) for case in progress(cases, "ways to search")]
    print(table(formulas()))
    return report(name, rows, seed=SEED)


def one_long(count: int) -> Instance:
    """One arm is an answer, and the product of a query with it is r + epsilon."""
    c, r, epsilon = 0.5, 0.8, EPSILON
    rng = np.random.default_rng((SEED, 1))
    arms = rng.standard_normal((count, DIM))
    arms *= 0.95 * c * r / np.linalg.norm(arms, axis=1, keepdims=True)
    arms[0] *= 1.0 / (0.95 * c * r)

    def queries(rng: np.random.Generator) -> Iterator[Vector]:
        along = r + epsilon + 1e-9
        while True:
            side = rng.standard_normal(DIM)
            side -= (side @ arms[0]) * arms[0]
            yield along * arms[0] + math.sqrt(1.0 - along**2) * side / np.linalg.norm(side)

    return Instance("one long", arms, c, r, epsilon, queries)


def gaussian(count: int) -> Instance:
    """Queries of norm 1 in all directions, of which few are left out."""
    c, r, epsilon = 0.8, 0.5, EPSILON
    arms = np.random.default_rng((SEED, 2)).standard_normal((count, DIM))
    arms /= np.linalg.norm(arms, axis=1).max()

    def queries(rng: np.random.Generator) -> Iterator[Vector]:
        while True:
            query = rng.standard_normal(DIM)
            query /= np.linalg.norm(query)
            if float((arms @ query).max()) >= r + epsilon:
                yield query

    return Instance("gaussian", arms, c, r, epsilon, queries)


def ways(instance: Instance) -> Iterator[tuple[str, Callable[[], Sequence[MipsSolver]]]]:
    """Names, and how to prepare the solvers that are asked."""
    yield "scan", lambda: [Scan(instance.arms)]
    for copies in (1, GRAPHS, instance.kappa):
        yield "hashed", partial(hashed, instance, copies)
    for copies in (1, GRAPHS):
        yield "graph", partial(graphs, instance.arms, copies)


def hashed(instance: Instance, copies: int) -> list[LshMips]:
    """Solvers for the contract, each with hyperplanes of its own."""
    rngs = np.random.default_rng((SEED, 3)).spawn(copies)
    return [
        solver_for(instance.arms, c=instance.c, r=instance.r, epsilon=instance.epsilon, rng=rng)
        for rng in rngs
    ]


def graphs(arms: Matrix, copies: int) -> Sequence[MipsSolver]:
    """Graphs with levels and orders of insertion of their own, without the scan of the longest arms."""
    options = IndexOptions(kind="exact")
    index = LiveIndex(arms.shape[1], options, seed=SEED)
    rows = range(len(arms))
    index.upsert(list(map(str, rows)), arms, rows)
    snapshot = index.snapshot()
    made = IndependentGraphs.build(snapshot.table, options, check=lambda: None, copies=copies, seed=SEED)
    return [snapshot.searched_by(graph) for graph in made.graphs]


def row(
    instance: Instance, way: str, prepare: Callable[[], Sequence[MipsSolver]], queries: int
) -> dict[str, Any]:
    """Prepare the solvers and ask them, first queries drawn beforehand, then as an adversary does."""
    started = time.thread_time()
    solvers = prepare()
    build_s = time.thread_time() - started
    solver = AdaptiveSolver(solvers, instance.c, instance.r, instance.epsilon)
    fixed = list(islice(instance.queries(np.random.default_rng((SEED, 4))), queries))
    started = time.thread_time()
    failed = sum(solver.query(query) is None for query in fixed)
    query_s = (time.thread_time() - started) / queries
    scan_s = _scan_s(instance.arms, fixed)
    return {
        "arms": instance.name,
        "K": len(instance.arms),
        "c": instance.c,
        "r": instance.r,
        "search": way,
        "solvers": len(solvers),
        "kappa": instance.kappa,
        "fixed": failed,
        "adversary": adversary(solver, instance, queries),
        "products": _products(instance, solvers, fixed),
        "time": query_s / scan_s,
        "build_scans": build_s / scan_s,
    }


def adversary(solver: AdaptiveSolver, instance: Instance, steps: int) -> int:
    """How often the answer is null, of one who draws queries until one is, and then stays with it."""
    queries = instance.queries(np.random.default_rng((SEED, 5)))
    query, failed = next(queries), 0
    for _ in range(steps):
        if solver.query(query) is None:
            failed += 1
        else:
            query = next(queries)
    return failed


def formulas() -> list[dict[str, Any]]:
    """What a hashed solver takes for a contract: bits, tables, and products over the K of a scan.

    ``one``, ``all``: of one solver, of all kappa. ``rho``: the exponent of K in the products of one, and
    ``rho_printed`` that of Proposition 3.2.
    """
    kappa, rows = solvers_needed(DIM, epsilon=EPSILON, delta=DELTA), []
    for (c, r), count in product(CONTRACTS, COUNTS):
        near = lsh_mips.least_cosine(r, dim=DIM, epsilon=EPSILON)
        bits = lsh_mips.bits_for(count, near=near, far=c * r)
        tables = lsh_mips.tables_needed(near, bits=bits)
        share = lsh_mips.products_needed(count, near=near, far=c * r, bits=bits) / count
        found = {
            "c": c,
            "r": r,
            "K": count,
            "bits": bits,
            "tables": tables,
            "one": share,
            "all": kappa * share,
        }
        rows.append({**found, "rho": exponent(c, r), "rho_printed": printed_exponent(c, r)})
    return rows


def exponent(c: float, r: float) -> float:
    """Of hyperplanes: log s(r) / log s(c r), for arms and queries of norm 1 (Indyk and Motwani 1998)."""
    probability = lsh_mips.collision_probability
    return math.log(probability(r)) / math.log(probability(c * r))


def printed_exponent(c: float, r: float) -> float:
    """rho_q of Proposition 3.2: 4 c'^2 / (1 + c'^2)^2 with c'^2 = (3 - c r) / (3 - r)."""
    square = (3.0 - c * r) / (3.0 - r)
    return 4.0 * square / (1.0 + square) ** 2


def _products(instance: Instance, solvers: Sequence[MipsSolver], queries: Sequence[Vector]) -> float | None:
    """Products with hyperplanes and candidates, over those of a scan."""
    if any(isinstance(solver, Scan) for solver in solvers):
        return 1.0
    counted, some = 0, queries[:100]
    for query in some:
        rounded = nearest_point(query, epsilon=instance.epsilon)
        for solver in solvers:
            if not isinstance(solver, LshMips):
                return None
            screened = solver.candidates(rounded)
            counted += screened.multiplications + len(screened.rows) * instance.arms.shape[1]
    return counted / (len(some) * instance.arms.size)


def _scan_s(arms: Matrix, queries: Sequence[Vector]) -> float:
    started = time.thread_time()
    for query in queries:
        int((arms @ query).argmax())
    return (time.thread_time() - started) / len(queries)
