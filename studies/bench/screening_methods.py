"""The baselines of the BoundedME paper: searches that screen the vectors, and score few candidates in full.

What is swept is what the paper sweeps: the budget of GREEDY-MIPS as a share of the vectors (and below its
tenth), bits x tables of LSH-MIPS up to 20 x 50, the depth of PCA-MIPS.

Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", section "Experiments".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shortlist.mips.screening.greedy_mips import GreedyMips
from shortlist.mips.screening.lsh_mips import LshMips
from shortlist.mips.screening.pca_mips import PcaMips
from shortlist.mips.screening.screened import Screened
from studies.bench.one_shot_method import Find, Method, Result
from studies.experiments.coordinates import Single

Screen = Callable[[Single], Screened]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Shares of the vectors, bits and tables, depths."""

    budgets: Sequence[float] = (0.01, 0.03, 0.1, 0.2, 0.5, 1.0)
    hashes: Sequence[tuple[int, int]] = (
        (1, 1), (2, 2), (4, 4), (4, 10), (8, 10), (8, 50), (12, 50), (16, 50), (20, 50),
    )  # fmt: skip
    depths: Sequence[int] = (0, 1, 2, 3, 4, 6, 8)


SWEEP = Sweep()


def screening_methods(vectors: Single, seed: int, sweep: Sweep) -> Iterator[Method]:
    """Yield every method at every setting. Shapes: vectors (n, N)."""
    started = time.thread_time()
    greedy = GreedyMips.build(vectors)
    build_s = time.thread_time() - started
    for share in sweep.budgets:
        screen = partial(greedy.candidates, budget=max(1, round(share * len(vectors))))
        yield Method("greedy_mips", share, build_s, _find(vectors, screen))
    for bits, tables in sweep.hashes:
        started = time.thread_time()
        hashed = LshMips.build(vectors, bits=bits, tables=tables, rng=np.random.default_rng(seed))
        build_s = time.thread_time() - started
        yield Method("lsh_mips", f"{bits} x {tables}", build_s, _find(vectors, hashed.candidates))
    for depth in sweep.depths:
        started = time.thread_time()
        tree = PcaMips.build(vectors, depth, np.random.default_rng(seed))
        build_s = time.thread_time() - started
        yield Method("pca_mips", depth, build_s, _find(vectors, tree.candidates))


def _find(vectors: Single, screen: Screen) -> Find:
    def found(query: Single, k: int) -> Result:
        screened = screen(query)
        reads = screened.multiplications + len(screened.rows) * vectors.shape[1]
        return Result(screened.best(k, vectors, query).rows, reads, "none")

    return found
