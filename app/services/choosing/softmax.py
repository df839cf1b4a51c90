"""Choices by Boltzmann exploration: every eligible arm is scored, so that propensities are exact.

Notation
    K, d        eligible arms of a snapshot, dimension
    theta^      estimate of the learner (d,)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.algorithms.linear import softmax
from app.algorithms.types import NO_ROWS, Rows, TopK, Vector
from app.indexes.snapshot import Snapshot, scores_of


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Arms in the order they were drawn, with x.theta^ as scores. Shapes: propensities (m,)."""

    found: TopK
    propensities: Vector


def draw(
    view: Snapshot,
    theta: Vector,
    *,
    k: int,
    temperature: float,
    rng: np.random.Generator,
    exclude: Rows = NO_ROWS,
) -> Drawn:
    """Draw min(k, K) arms. Cost: K d multiplications and O(K) more: a scan, whatever the index."""
    rows = view.eligible(exclude)
    scores = scores_of(view.view, rows, theta)
    drawn = softmax.choose(scores, k=k, temperature=temperature, rng=rng)
    found = TopK(rows[drawn.places], scores[drawn.places], exact=True)
    return Drawn(found, drawn.propensities)
