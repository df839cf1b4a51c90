"""The arms of logged lists as arrays: rows of a snapshot, scores, contexts.

Notation
    n, k        lists, places of each
    q, m        contexts, numbers of each
    d           dimension of the arms
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.services.catalogues.learner_snapshot import LearnerSnapshot
from app.services.measuring.logged_lists import NO_CONTEXT
from shortlist.types import NO_ROWS, Matrix, Rows

TOGETHER = 1_000_000  # features of arms in lists


def rows_of(arms: LearnerSnapshot, ids: Sequence[str]) -> Rows:
    """Rows of arms in the whole catalogue; -1 for those that it has not. Shape: -> (n,)."""
    distinct = dict.fromkeys(ids)
    places = arms.plain.whole.table.row_of_each(distinct).tolist()
    rows = dict(zip(distinct, places, strict=True))
    return np.array([rows[arm] for arm in ids], dtype=np.int64)


def known_rows(arms: LearnerSnapshot, ids: Sequence[str]) -> Rows:
    """Rows of arms of a snapshot, each once."""
    return np.unique(arms.rows_of(ids)) if ids else NO_ROWS


def padded(columns: Sequence[Rows]) -> Rows:
    """Lists of rows side by side, filled up with -1. Shape: (n, longest)."""
    result = np.full((len(columns), max(map(len, columns))), -1, dtype=np.int64)
    for place, rows in enumerate(columns):
        result[place, : len(rows)] = rows
    return result


def joined(contexts: Sequence[bytes]) -> NDArray[np.float32] | None:
    """Encoded contexts of one length; None where there is none. Shape: (q, m)."""
    if not contexts or contexts[0] == NO_CONTEXT:
        return None
    return np.frombuffer(b"".join(contexts), dtype=np.float32).reshape(len(contexts), -1)


def lets_in(arms: LearnerSnapshot, rows: Rows) -> NDArray[np.bool_]:
    """Whether arms can be drawn. Shapes: (n, k) -> (n, k)."""
    known = rows >= 0
    known[known] = arms.plain.lets_in(rows[known])
    return known


def scores_of(arms: LearnerSnapshot, rows: Rows, queries: Matrix, which: Rows) -> Matrix:
    """x.query of every arm of lists, 0 for those without a row. Shapes: rows (n, k), which (n,) -> (n, k)."""
    result = np.zeros(rows.shape)
    if not arms.table.rows or not rows.size:
        return result
    step = max(1, TOGETHER // (rows.shape[1] * arms.table.dim))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        features = arms.plain.features_of(np.maximum(rows[part], 0).reshape(-1))
        shaped = features.reshape(*rows[part].shape, -1)
        np.einsum("nkd,nd->nk", shaped, queries[which[part]], out=result[part])
    return np.where(rows >= 0, result, 0.0)
