"""The state of an elimination algorithm: living arms in stages by width, and the threshold of elimination.

Notation
    K, d            arms of the catalogue, dimension
    V, theta^       precision and estimate of ridge regression, see ``ridge``; V only ever grows
    radius          beta of the paper, or the bandit's exploration: multiplies every width
    w               radius * ||x||_{V^-1}, the width of an arm (n,)
    place           to compute x.theta^ and w of an arm, and to put it into the stage of its width
    stage           min(floor(-log2 w), s_max) when the arm was placed, so w <= 2^-stage from then on
    bound           x.theta^ + w when the arm was placed, an upper bound of its mean reward
    r, setter       the threshold, max over placed arms of x.theta^ - w, and the row of its arm
    living          the arms whose bound reaches r; a row of the catalogue is never used for a second arm
    watched         the most uncertain arms when they were placed, at most 128, for ``most_uncertain_arm``

A state is a value: every function returns another one, so a pass may run in a thread while choices are made
from the state before it. Its size is K bits, and 16 to 32 bytes for each living arm.

    >>> # state = start(prior, all rows)      every arm in the stage of its own width
    >>> # state = add(state, posterior, new)  r may rise, arms of any stage may be eliminated
    >>> # state = advance(state, posterior)   places the lowest stage again, or all arms when few live
    >>> # state = delete(state, [setter])     the arm of r is deleted, so the state is stale
    >>> # state = start(posterior, all rows)  readmission afterwards; a restart does the same

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", Algorithm 3. The guarantee
under deletions is proved in docs/papers/sublinear-bandits.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from shortlist import checks
from shortlist.linear.heap_arms import HeapArms
from shortlist.linear.living_arms import NO_ARMS, LivingArms
from shortlist.linear.ridge import Posterior, widths
from shortlist.types import NO_ROWS, Matrix, Rows, Vector

FeaturesOf = Callable[[Rows], Matrix]
Measured = tuple[Vector, Vector]
_MOST_BLOCK_ROWS, _BLOCK_NUMBERS = 8_192, 1 << 17
WATCHED = 128


@dataclass(frozen=True, slots=True)
class EliminationRules:
    """The constant rules of a learner.

    ``radius`` multiplies the widths. ``last_stage`` is s_max. A proposed arm is good when its width is at
    least ``share`` 2^-s, s the lowest stage. When at most ``few`` arms live, every choice compares all of
    them exactly; with ``few`` = 0 there is no exact comparison, as in the paper.
    """

    radius: float
    last_stage: int
    share: float
    few: int


def rules(*, radius: float, eta: float, share: float = 0.5, few: int = 256) -> EliminationRules:
    """Return the rules with s_max = ceil(log2(1 / (8 eta))).

    ``radius`` multiplies ||x||_{V^-1}. ``eta`` is the accuracy that the paper calls eta(T). ``share`` is at
    most 1/2; the paper's is 1/4. ``few`` is a number of arms.

    Raises: InvalidParameter (radius <= 0, eta <= 0, share not in (0, 1/2], few < 0).
    """
    checks.in_range("radius", radius, above=0.0)
    checks.in_range("eta", eta, above=0.0)
    checks.in_range("share", share, above=0.0, most=0.5)
    checks.in_range("few", few, least=0)
    return EliminationRules(radius, math.ceil(-math.log2(8 * eta)), share, few)


@dataclass(frozen=True, slots=True, eq=False)
class Elimination:
    """The state of one learner; see the module.

    ``stages`` ascend; the first has a living arm if any arm lives. ``present`` counts the arms of the
    catalogue, eliminated ones too. ``stale``: r cannot be trusted, for its arm was deleted, or r is above the
    bound of every arm. ``tombstoned`` is at least the number of entries of deleted arms still in a stage.
    ``few`` holds all living rows, ascending, when there are at most ``rules.few``; else it is empty.
    ``watched_spans`` are the widths of ``watched`` when they were placed.
    """

    rules: EliminationRules
    stages: tuple[HeapArms, ...] = ()
    living: LivingArms = NO_ARMS
    present: int = 0
    threshold: float = -math.inf
    setter: int = -1
    stale: bool = False
    tombstoned: int = 0
    few: Rows = field(default_factory=lambda: NO_ROWS)
    watched: Rows = field(default_factory=lambda: NO_ROWS)
    watched_spans: Vector = field(default_factory=lambda: np.empty(0))

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        stages = sum(heap.nbytes for heap in self.stages)
        return stages + self.living.bits.nbytes + self.watched.nbytes + self.watched_spans.nbytes

    @property
    def capped(self) -> bool:
        """True if all living arms are in stage s_max. There must be a living arm."""
        return self.stages[0].stage >= self.rules.last_stage

    @property
    def pass_size(self) -> int:
        """The number of arms read by ``advance``."""
        lowest = len(self.stages[0]) if self.stages else 0
        return len(self.few) or lowest

    def sizes(self) -> list[tuple[int, int]]:
        """Return (stage, number of living arms) of every stage that has one."""
        counts = [(heap.stage, int(np.count_nonzero(self.living.mask(heap.rows)))) for heap in self.stages]
        return [(stage, count) for stage, count in counts if count]


def start(posterior: Posterior, rows: Rows, features_of: FeaturesOf, limits: EliminationRules) -> Elimination:
    """Place all ``rows`` by their own widths: at the beginning, after a restart, and to readmit arms.

    Shapes: rows (K,) distinct; features_of maps rows (m,) to (m, d). Cost: O(K d^2 + K log K).
    Raises: NonFinite.
    """
    # DEVIATION (Alg. 3, line 5): every arm starts in the stage of its own width, not in stage 0.
    return add(Elimination(limits), posterior, rows, features_of)


def add(state: Elimination, posterior: Posterior, rows: Rows, features_of: FeaturesOf) -> Elimination:
    """Add new arms (lines 7 to 12). Shapes: rows (m,) distinct, never used before. Raises: NonFinite."""
    grown = replace(state, present=state.present + len(rows))
    measured = measure(posterior, rows, features_of, state.rules.radius)
    if state.living.count and not state.stale:
        hopeful = measured[0] + measured[1] >= state.threshold
        if not hopeful.any():
            return grown  # an arm that is below r when it comes never lives
        rows, measured = rows[hopeful], (measured[0][hopeful], measured[1][hopeful])
    return _placed(replace(grown, living=state.living.with_rows(rows)), rows, measured)


def delete(state: Elimination, rows: Rows) -> Elimination:
    """Take arms out of the catalogue. If one of them set r the state is ``stale``: ``start`` readmits.

    Shapes: rows (m,) distinct, all present. Cost: O(m) amortised, and K / 8 bytes of copying.
    """
    # DEVIATION (Alg. 3, section 5.2): the paper's elimination cannot delete; readmission keeps its guarantee.
    gone = state.living.among(rows)
    return _tidied(
        replace(
            state,
            living=state.living.without(gone),
            present=state.present - len(rows),
            stale=state.stale or bool((rows == state.setter).any()),
            tombstoned=state.tombstoned + len(gone),
        )
    )


def advance(state: Elimination, posterior: Posterior, features_of: FeaturesOf) -> Elimination:
    """Place the arms of the lowest stage again (lines 20 to 24), or all living arms when they are few.

    Afterwards each of them is in the stage of its width now, with the bound it has now, and r is at least
    the largest x.theta^ - w among them. Cost: O(n d^2 + n log n) for n = ``state.pass_size`` arms.
    """
    if not state.stages:
        return state
    if len(state.few):
        measured = measure(posterior, state.few, features_of, state.rules.radius)
        return _placed(replace(state, stages=(), tombstoned=0), state.few, measured)
    rows = state.living.among(state.stages[0].rows)
    if (rows[1:] < rows[:-1]).any():
        rows = np.sort(rows)  # in the order of memory
    measured = measure(posterior, rows, features_of, state.rules.radius)
    return _placed(replace(state, stages=state.stages[1:]), rows, measured)


def measure(posterior: Posterior, rows: Rows, features_of: FeaturesOf, radius: float) -> Measured:
    """Return x.theta^ and w of ``rows``. Shapes: (m,) -> (m,), (m,). Raises: NonFinite."""
    estimates, spans = np.empty(len(rows)), np.empty(len(rows))
    length = min(_MOST_BLOCK_ROWS, _BLOCK_NUMBERS // len(posterior.theta) + 1)
    for first in range(0, len(rows), length):
        block = slice(first, first + length)
        features = features_of(rows[block])
        with np.errstate(invalid="ignore", over="ignore"):
            estimates[block] = features @ posterior.theta
            spans[block] = radius * widths(posterior, features)
    checks.finite("features", estimates)
    checks.finite("features", spans)
    return estimates, spans


def stage_of(spans: Vector, last_stage: int) -> Rows:
    """Return min(floor(-log2 w), last_stage), exactly. Shapes: (m,) -> (m,)."""
    # DEVIATION (Alg. 3, lines 8 and 21): the print rounds up, which puts 2^-s below the width.
    mantissa, exponent = np.frexp(spans)
    floors = np.where(mantissa == 0.5, 1 - exponent, -exponent)
    return np.where(spans > 0, np.minimum(floors, last_stage), last_stage).astype(np.int64)


def _placed(state: Elimination, rows: Rows, measured: Measured) -> Elimination:
    """Put living arms that are in no stage where they belong, raise r, and eliminate."""
    if not len(rows):
        return _tidied(state)
    estimates, spans = measured
    heaps = {heap.stage: heap for heap in state.stages}
    bounds = estimates + spans
    stages = stage_of(spans, state.rules.last_stage)
    for stage in np.unique(stages).tolist():
        here = stages == stage
        # DEVIATION (Alg. 2, line 8): the bound has the width of the arm, not 2^-s, which is up to twice that.
        heaps[stage] = heaps.get(stage, HeapArms(stage)).push(rows[here], bounds[here])
    lower = estimates - spans
    best = int(lower.argmax())
    if lower[best] > state.threshold:
        state = replace(state, threshold=float(lower[best]), setter=int(rows[best]))
    state = replace(state, stages=tuple(heaps[stage] for stage in sorted(heaps)))
    return _tidied(_eliminated(_watching(state, rows, spans)))


def _watching(state: Elimination, rows: Rows, spans: Vector) -> Elimination:
    """Watch the most uncertain of the arms watched so far and of those just placed."""
    keep = state.living.mask(state.watched) & ~np.isin(state.watched, rows, kind="table")
    rows = np.concatenate((state.watched[keep], rows))
    spans = np.concatenate((state.watched_spans[keep], spans))
    if len(rows) > WATCHED:
        widest = np.argpartition(-spans, WATCHED)[:WATCHED]
        rows, spans = rows[widest], spans[widest]
    return replace(state, watched=rows, watched_spans=spans)


def _eliminated(state: Elimination) -> Elimination:
    """Eliminate every arm whose bound is below r. If that is every arm, r is wrong: none is eliminated."""
    results = [heap.eliminate(state.threshold) for heap in state.stages]
    low = state.living.among(np.concatenate([rows for rows, _ in results]))
    if len(low) == state.living.count:
        return replace(state, stale=True)
    stages = tuple(heap for _, heap in results if len(heap))
    return replace(state, stages=stages, living=state.living.without(low))


def _tidied(state: Elimination) -> Elimination:
    """Update ``few``; remove entries of deleted arms if they are many or may be all of the lowest stage."""
    lowest = len(state.stages[0]) if state.stages else 0
    if state.tombstoned and (state.tombstoned >= lowest or state.tombstoned**2 > state.living.count):
        cleaned = (heap.kept(state.living) for heap in state.stages)
        state = replace(state, stages=tuple(heap for heap in cleaned if len(heap)), tombstoned=0)
    return replace(state, few=_few(state))


def _few(state: Elimination) -> Rows:
    if not 0 < state.living.count <= state.rules.few:
        return NO_ROWS
    return np.sort(state.living.among(np.concatenate([heap.rows for heap in state.stages])))
