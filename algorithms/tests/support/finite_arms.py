"""Arms for the tests of the searches that sample coordinates, and the truth about them."""

from __future__ import annotations

import numpy as np

from shortlist.mips import blocked, columns
from shortlist.mips.rewards import blocked_rewards
from shortlist.mips.row_major import RowMajorRewards


def truth(vectors, query, objective):
    """Values by brute force in float64, larger is better."""
    wide = vectors.astype(np.float64)
    return (wide * query).sum(axis=1) if objective == "inner_product" else -((wide - query) ** 2).sum(axis=1)


def best(vectors, query, objective, k):
    return np.lexsort((np.arange(len(vectors)), -truth(vectors, query, objective)))[:k].tolist()


def suboptimality(vectors, query, objective, rows):
    """k-th best mean of all less k-th best mean of the rows."""
    means = truth(vectors, query, objective) / vectors.shape[1]
    return float(np.sort(means)[-len(rows)] - means[rows].min())


def in_blocks(vectors, query, objective="inner_product", *, seed=0, **options):
    arms = blocked.build(vectors, rng=np.random.default_rng(seed))
    return blocked_rewards(arms, query, objective=objective, **options)


def with_columns(vectors, query, objective="inner_product", *, seed=0, **options):
    return RowMajorRewards(
        vectors,
        query,
        rng=np.random.default_rng(seed),
        objective=objective,
        columns=columns.of(vectors),
        **options,
    )


def in_rows(vectors, query, objective="inner_product", *, seed=0, value_range=None):
    """With the range of the terms, as a user would give it, unless another one is given."""
    if value_range is None:
        terms = vectors * query if objective == "inner_product" else (vectors - query) ** 2
        value_range = (float(terms.min()), float(terms.max()))
    rng = np.random.default_rng(seed)
    return RowMajorRewards(vectors, query, rng=rng, objective=objective, value_range=value_range)


LAYOUTS = {"blocked": in_blocks, "columns": with_columns, "rows": in_rows}


def spread_out(n, dim, seed, *, dtype=np.float32):
    """Arms whose means differ by up to 1 under a query of signs: easy to tell apart."""
    rng = np.random.default_rng(seed)
    query = rng.choice((-1.0, 1.0), size=dim)
    vectors = rng.uniform(-1, 1, (n, dim)) + np.linspace(0, 1, n)[:, None] * query
    return vectors.astype(dtype)[rng.permutation(n)], query
