"""What a context adds to the time of a decision: a part of `shortlist bench context`.

Notation
    K, d        arms, standard normal; their dimension, 32
    m, p        numbers of the context; directions of the arms that interact with it. None: no context
    D           numbers that a learner estimates, d + p m
    index       the one that serves: what the planner chose for these arms
    ratio       time / that of a decision without context: of the medians of a turn, the median over all turns
    extra_ms    difference of the same medians, the median over all turns
    cpu_ratio, cpu_extra_ms     the same of processor times: on a busy machine these are what counts
    posterior   milliseconds to make the posterior again, once after each batch of rewards that was learned.
                From D = 256 on the service does that in a thread

A decision is a draw of the query and a search of the index for it; with a context, that is first encoded from
the list of numbers which a request brings. Decisions with and without context take
turns, so that all see the machine in one state. BLAS has one thread, as in the service.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.bandits.context import Context
from app.indexes.snapshot import Snapshot
from app.records.encoding import ContextRule, Encoding
from shortlist.linear import bilinear, ridge, ridge_sums, sub_ts
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix
from shortlist_client.progress import progress
from studies.bench.choose import index_of

SEED = 1_617
DIM = 32
EXPLORATION, RIDGE = 1.0, 1.0
REMAKES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``turn``: decisions of a way in a row. ``shapes``: m, p."""

    arms: int = 1_000_000
    decisions: int = 2_000
    turn: int = 50
    shapes: tuple[tuple[int, int], ...] = ((8, 8), (31, 32))  # D = 96 and 1,024


WHOLE, QUICK = Sizes(), Sizes(arms=100_000, decisions=300)

Numbers = list[float]
Decide = Callable[[Numbers], object]


def rows(sizes: Sizes) -> list[dict[str, Any]]:
    """Decisions of each kind over the same arms; a row for each."""
    features = np.random.default_rng(SEED).standard_normal((sizes.arms, DIM))
    index = index_of("auto", features, SEED)
    kind = index.status().kind
    with threadpool_limits(1):
        return [
            {"part": "decisions", "K": sizes.arms, "d": DIM, "index": kind, **row}
            for row in compare(index.snapshot(), features.T @ features, sizes)
        ]


def compare(snapshot: Snapshot, gram: Matrix, sizes: Sizes) -> list[dict[str, Any]]:
    """A row without context, and one of each shape. ``gram`` (d, d): the sum of x x^T of the arms."""
    rng = np.random.default_rng(SEED)
    contexts = rng.standard_normal((sizes.decisions, max(m for m, _ in sizes.shapes))).tolist()
    posterior, made_ms = _posterior(DIM)
    ways = [(_described(None, None, DIM, made_ms), without(snapshot, posterior, rng))]
    for m, p in sizes.shapes:
        numbers = DIM + p * m
        posterior, made_ms = _posterior(numbers)
        context = Context(Encoding(ContextRule(dim=m)), bilinear.directions(gram, p), 0)
        decide = within(snapshot, posterior, context, rng)
        ways.append((_described(m, p, numbers, made_ms), decide))
    us, cpu_us = take_turns([decide for _, decide in ways], contexts, sizes.turn)
    middle, cpu = np.median(us, axis=2), np.median(cpu_us, axis=2)
    return [
        {
            **described,
            "p50_us": float(np.median(us[place])),
            "p99_us": float(np.quantile(us[place], 0.99)),
            "ratio": float(np.median(middle[place] / middle[0])),
            "extra_ms": float(np.median(middle[place] - middle[0]) / 1e3),
            "cpu_ratio": float(np.median(cpu[place] / cpu[0])),
            "cpu_extra_ms": float(np.median(cpu[place] - cpu[0]) / 1e3),
        }
        for place, (described, _) in enumerate(ways)
    ]


def take_turns(ways: list[Decide], contexts: list[Numbers], size: int) -> NDArray[np.float64]:
    """Microseconds of every decision of every way, by the clock and of the processor, ``size`` in a turn.

    Shape: (2, ways, turns, size).
    """
    turns = len(contexts) // size
    us = np.empty((2, len(ways), turns, size))
    for turn in progress(range(turns), "turns of decisions"):
        for place, decide in enumerate(ways):
            for number, context in enumerate(contexts[turn * size : (turn + 1) * size]):
                started, cpu_started = time.perf_counter(), time.thread_time()
                decide(context)
                us[1, place, turn, number] = (time.thread_time() - cpu_started) * 1e6
                us[0, place, turn, number] = (time.perf_counter() - started) * 1e6
    return us


def _described(m: int | None, p: int | None, numbers: int, made_ms: float) -> dict[str, Any]:
    return {"m": m, "p": p, "D": numbers, "posterior_ms": made_ms}


def _posterior(numbers: int) -> tuple[Posterior, float]:
    """The posterior of a learner with as many rewards as numbers, and how long it takes to make."""
    rng = np.random.default_rng((SEED, numbers))
    features = rng.standard_normal((numbers, numbers))
    sums = ridge_sums.add(
        ridge_sums.empty(numbers), features, np.zeros(numbers), np.ones(numbers, dtype=np.bool_)
    )
    seconds = []
    for _ in range(REMAKES):
        started = time.perf_counter()
        posterior = ridge.posterior(sums, ridge=RIDGE)
        seconds.append(time.perf_counter() - started)
    return posterior, min(seconds) * 1e3


def without(snapshot: Snapshot, posterior: Posterior, rng: np.random.Generator) -> Decide:
    """Decisions of a bandit that has no context."""

    def decide(_numbers: Numbers) -> object:
        return sub_ts.choose(posterior, snapshot, k=1, exploration=EXPLORATION, rng=rng)

    return decide


def within(snapshot: Snapshot, posterior: Posterior, context: Context, rng: np.random.Generator) -> Decide:
    """Decisions of a bandit in a context, which are the first m of the numbers. ``posterior`` has D."""
    m = context.encoding.dim

    def decide(numbers: Numbers) -> object:
        given = context.given(posterior, context.encoding.encode(numbers[:m]))
        return sub_ts.choose(given, snapshot, k=1, exploration=EXPLORATION, rng=rng)

    return decide
