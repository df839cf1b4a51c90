"""One-shot searches by the ladder of adaptive solvers, with a guarantee in the units of a request.

Notation
    d, q, R         dimension, query (d,), largest norm of an arm
    eta             ratio of the ladder (``mips.adaptive``): the loss is less than 4 eta |q| R / d
    epsilon         the same bound in units of the mean product of a coordinate: 4 eta |q| R / d^2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.indexes.snapshot import Snapshot
from app.services.catalogues.adaptive_solver import ladder
from shortlist.guarantee import Guarantee
from shortlist.mips.adaptive import adaptive
from shortlist.mips.answer import Answer
from shortlist.types import Vector

FINER_THAN_NET = "epsilon is finer than any net of queries in float64"
LADDER = "of the arms returned; arms of a mean product below epsilon / 8 may be left out"
GRAPHS = "independent graphs were asked about the nearest point of a net; for graphs nothing is proved"
LEAST_ETA = 1e-9


def search_adaptively(
    snapshot: Snapshot,
    independent: Callable[[], Sequence[Snapshot]],
    query: Vector,
    *,
    k: int,
    epsilon: float,
) -> Answer | None:
    """Search a catalogue; None when ``epsilon`` is too fine for any net.

    ``independent`` returns the same arms, searched by each of the independent solvers.
    """
    view = snapshot.view
    eta = ratio(query, view.largest_norm, epsilon)
    if eta < LEAST_ETA:
        return None
    solvers = independent()
    rungs = ladder(solvers, snapshot.features_of, largest_norm=view.largest_norm, eta=eta)
    found = rungs.search(query, k)
    total = snapshot.size * view.dim
    if solvers[0].kind == "hnsw":
        return Answer(found.rows, found.scores, None, total, Guarantee("none", reason=GRAPHS))
    return Answer(found.rows, found.scores, total, total, Guarantee("pac", epsilon, 0.0, reason=LADDER))


def search_vectors_adaptively(
    vectors: NDArray[np.floating[Any]], query: Vector, *, k: int, epsilon: float
) -> Answer | None:
    """Search vectors (n, d) by one exact solver; None when ``epsilon`` is too fine for any net."""
    rows = vectors.astype(np.float64, copy=False)
    eta = ratio(query, float(np.linalg.norm(rows, axis=1).max()), epsilon)
    if eta < LEAST_ETA:
        return None
    found = adaptive(rows, query, k=k, eta=eta)
    guarantee = Guarantee("pac", epsilon, 0.0, reason=LADDER)
    return Answer(found.rows, found.scores, vectors.size, vectors.size, guarantee)


def ratio(query: Vector, largest_norm: float, epsilon: float) -> float:
    """Return eta for an epsilon: see the module's notation. It is at most 1. Shapes: query (d,)."""
    scale = 4.0 * float(np.linalg.norm(query)) * largest_norm
    return min(1.0, epsilon * len(query) ** 2 / scale) if scale > 0.0 else 1.0
