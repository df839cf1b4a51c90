"""What a reward with a context costs to learn: a part of `shortlist bench context`.

Notation
    d, m, p     dimension of the arms, numbers of the context, directions that interact with it; 0: no context
    D           numbers that a learner estimates, d + p m
    entry       of the reward log: the D numbers that it teaches, and the reward
    per_s       rewards a second of processor time, of one learner, in batches of the worker's size
    numpy_per_s the same by what one would write: for a batch ``V += Phi.T @ Phi; b += Phi.T @ r``
    vs_numpy    time of the fold / time of numpy. The fold reads each entry, and adds one after the other with
                its rounding error, so that it gives the same bits however a log is cut into batches. The
                product does not
    entry_bytes bytes of an entry; what the store writes beside it is measured by
                `python -m load_tests.bytes_per_reward --contexts`

Fold and numpy take turns, a batch each; their least times count.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.fold.fold import States, fold
from app.records.log_entries import RewardEntry, decoded_all, encode
from app.records.records import vector_to_bytes
from app.storage.types import LearnerId, LogEntry
from shortlist.linear import bilinear
from shortlist.types import Matrix
from shortlist_client.progress import progress

SEED = 1_619
LEARNER = LearnerId("0" * 16, "learner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``batch``: rewards of a batch. ``shapes``: d, m, p."""

    batch: int = 500
    batches: int = 6
    shapes: tuple[tuple[int, int, int], ...] = (
        (16, 0, 0), (16, 16, 16), (32, 0, 0), (32, 31, 32),  # D = 16, 272, 32 and 1,024
    )  # fmt: skip


WHOLE, QUICK = Sizes(), Sizes(batches=2)


def rows(sizes: Sizes) -> list[dict[str, Any]]:
    """Fold batches of each shape; a row for each."""
    with threadpool_limits(1):
        return [row(*shape, sizes) for shape in progress(sizes.shapes, "shapes of learners")]


def row(dim: int, m: int, p: int, sizes: Sizes) -> dict[str, Any]:
    """What learning costs with these dimensions."""
    rng = np.random.default_rng((SEED, dim, m))
    arms = rng.standard_normal((sizes.batch, dim))
    taught = arms
    if p:
        directions = bilinear.directions(arms.T @ arms, p)
        taught = bilinear.phi(arms, directions, rng.standard_normal((sizes.batch, m)))
    values = rng.standard_normal(sizes.batch)
    states: States = {}
    precision, moment = np.zeros((taught.shape[1],) * 2), np.zeros(taught.shape[1])
    seconds = []
    for batch in range(sizes.batches):
        entries = log_entries(taught, values, first=batch * sizes.batch)
        started = time.thread_time()
        states |= fold(states, decoded_all(entries))
        folded = time.thread_time()
        precision += taught.T @ taught
        moment += taught.T @ values
        seconds.append((folded - started, time.thread_time() - folded))
    fold_s, numpy_s = np.min(seconds, axis=0)
    state = states[LEARNER]
    return {
        "part": "learning",
        "d": dim,
        "m": m,
        "p": p,
        "D": taught.shape[1],
        "rewards": 0 if state is None else state.version,
        "per_s": float(sizes.batch / fold_s),
        "numpy_per_s": float(sizes.batch / numpy_s),
        "vs_numpy": float(fold_s / numpy_s),
        "entry_bytes": len(entries[0].payload),
    }


def log_entries(taught: Matrix, values: Any, *, first: int) -> list[LogEntry]:
    """Entries of the reward log, each of a decision of its own. Shapes: taught (n, D), values (n,)."""
    payloads = [
        encode(RewardEntry(vector_to_bytes(phi), value))
        for phi, value in zip(taught, values.tolist(), strict=True)
    ]
    return [LogEntry(f"{first + number}-0", LEARNER, payload) for number, payload in enumerate(payloads)]
