"""Elimination without stages in the tables: the fastest exact one that we can write in numpy, a baseline.

Notation
    n, d        living arms, dimension
    m, w        x.theta^ and radius * ||x||_{V^-1} of every living arm (n,)
    r           the largest m - w so far; an arm with m + w < r is eliminated, at once and for good
    u, s^2      V^-1 x and 1 + x.u of the arm x that was played

After a reward theta^ moves along u, and w^2 falls by radius^2 (x.u)^2 / s^2: one float32 product x.u of all
living arms keeps both, so a step costs n d multiply-adds and about ten passes over n numbers. It has no index
and no bounds from the past; it loses less than Algorithm 3, which eliminates by the widths of the last pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.index.table import aligned_empty
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix, Rows, Vector
from studies.experiments.synthetic import Environment

_MOST_DEAD = 0.1
_FEW = 2_000


class ExactElim:
    """See the module. The arrays hold ``count`` arms: all that live, and ``dead`` ones not yet taken out."""

    def __init__(self, environment: Environment, *, radius: float) -> None:
        self._features = environment.arms
        size, dim = environment.arms.shape
        self._working = aligned_empty(size, dim)
        self._rows = np.empty(size, dtype=np.int64)
        self._squares, self._means, self._first, self._second = np.empty((4, size), dtype=np.float32)
        self._low = np.empty(size, dtype=np.bool_)
        self._radius = np.float32(radius)
        self._threshold = np.float32(-np.inf)
        self._count = self._dead = 0
        self._played: tuple[Vector, Vector, float] | None = None

    def start(self, rows: Rows, posterior: Posterior) -> None:
        self._add(rows, posterior)

    def change(self, came: Rows, left: Rows, posterior: Posterior) -> None:
        if len(left):
            raise NotImplementedError("the tables delete no arm under elimination")
        self._follow(posterior)
        self._add(came, posterior)

    def upkeep(self) -> None:
        """Nothing is kept up in the background."""

    def learned(self, arm: int, before: Posterior) -> None:
        features = self._features[arm]
        turned = features @ before.root
        self._played = before.theta, before.root @ turned, 1.0 + float(turned @ turned)

    def choose(self, posterior: Posterior, _rng: np.random.Generator) -> int:
        self._follow(posterior)
        count = self._count
        spans, bound, means = self._first[:count], self._second[:count], self._means[:count]
        np.sqrt(self._squares[:count], out=spans)
        np.multiply(spans, self._radius, out=spans)
        np.subtract(means, spans, out=bound)
        self._threshold = max(self._threshold, bound[bound.argmax()])
        np.add(means, spans, out=bound)
        low = self._low[:count]
        np.less(bound, self._threshold, out=low)
        dead = int(np.count_nonzero(low))
        if self._dead < dead < count:
            spans = self._buried(low, dead, spans)
        return int(self._rows[spans.argmax()])

    def scans(self, _posterior: Posterior) -> dict[str, Callable[[], object]]:
        """Nothing of it is a scan alone."""
        return {}

    def _add(self, came: Rows, posterior: Posterior) -> None:
        new = slice(self._count, self._count + len(came))
        features: Matrix = self._features[came]
        turned = features @ posterior.root
        self._rows[new], self._working[new] = came, features
        self._means[new] = features @ posterior.theta
        self._squares[new] = np.einsum("ij,ij->i", turned, turned)
        self._count += len(came)

    def _follow(self, posterior: Posterior) -> None:
        """Take in the reward of the last step, if that has not been done."""
        if self._played is None:
            return
        theta, towards, spread = self._played
        self._played = None
        count = self._count
        shared, moved = self._first[:count], self._second[:count]
        np.dot(self._working[:count], towards.astype(np.float32), out=shared)
        step = ((posterior.theta - theta) @ towards) / (towards @ towards)
        np.multiply(shared, np.float32(step), out=moved)
        self._means[:count] += moved
        np.multiply(shared, shared, out=shared)
        np.multiply(shared, np.float32(1.0 / spread), out=shared)
        self._squares[:count] -= shared

    def _buried(self, low: NDArray[np.bool_], dead: int, spans: NDArray[Any]) -> NDArray[Any]:
        """Take dead arms out, or make them harmless while they are few; returns the widths that are left."""
        count = self._count
        if dead <= _MOST_DEAD * count and count >= _FEW:
            self._squares[:count][low], self._means[:count][low] = 0.0, -np.inf
            self._working[:count][low] = spans[low] = 0.0
            self._dead = dead
            return spans
        kept = np.flatnonzero(~low)
        for array in (self._working, self._rows, self._squares, self._means):
            array[: len(kept)] = array[kept]
        self._count, self._dead = len(kept), 0
        left: NDArray[Any] = spans[kept]
        return left
