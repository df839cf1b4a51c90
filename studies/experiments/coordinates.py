"""Vectors for searches that sample coordinates: Gaussian, uniform, and of low rank.

Notation
    n, N        number of vectors, of coordinates
    r           rank of the low-rank ones, as a matrix factorisation of n items' ratings by N users has it

Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", section "Experiments".
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Data = Literal["gaussian", "uniform", "low_rank"]
Single = NDArray[np.float32]

RANK = 16
NOISE = 0.1
_ROWS = 256


def make(data: Data, n: int, dim: int, queries: int, rng: np.random.Generator) -> tuple[Single, Single]:
    """Return vectors (n, N) and queries (queries, N).

    Gaussian: standard normal. Uniform: on [0, 1]. Low rank: items a with lognormal norms, seen by N users b:
    x = a.b + noise with r factors; a query is a further item. Cost: 4 n N bytes.
    """
    vectors = np.empty((n + queries, dim), dtype=np.float32)
    users = rng.standard_normal((RANK, dim), dtype=np.float32) / np.float32(np.sqrt(RANK))
    for start in range(0, n + queries, _ROWS):
        some = vectors[start : start + _ROWS]
        if data == "uniform":
            rng.random(out=some, dtype=np.float32)
            continue
        rng.standard_normal(out=some, dtype=np.float32)
        if data == "low_rank":
            items = rng.standard_normal((len(some), RANK)) * rng.lognormal(sigma=0.5, size=(len(some), 1))
            some *= NOISE
            some += items.astype(np.float32) @ users
    return vectors[:n], vectors[n:]
