"""Intervals of a mean reward where the unit is the key, at looks that are rarer and rarer.

The decisions of one key earn alike, so 1,000 decisions of one key tell less than one of each of 1,000 keys.
Keys are the draws here, and a mean reward is the ratio of two sums over keys. The sums of a key go on
growing, so they are no sequence of independent draws, and no sequence for such draws holds. Instead there are
looks: one whenever the number of decisions has doubled, and nothing changes between two of them.

Notation
    n_k, s_k    decisions of key k, and the sum of their rewards
    K           keys of the group
    r           sum of s_k / sum of n_k: the mean reward of a decision
    e_k         the part of key k in the error of r, linearised: (s_k - r n_k) / sum of n
    v           variance of r: K / (K - 1) sum of e_k^2
    j           how many intervals were given, this one counted
    alpha       probability of any failure of all intervals

The j-th interval is r +- sqrt(v) t, with t the quantile of Student's distribution at 1 - a_j / 2, and

    a_j = alpha 6 / (pi^2 j^2)

These sum to alpha, so all intervals hold together with probability 1 - alpha whatever their dependence
(Boole), as far as each holds at its own level, which is the better the more keys there are, and the more
alike they weigh. So there is no interval below ``MIN_KEYS`` keys, nor while one key makes more than
``LARGEST`` of the sum of all e_k^2: a condition like Lindeberg's. Simulations chose it:
tests/statistical/test_lift_of_keys.py.

For a difference of two groups variances are added, and the degrees of freedom, K - 1 of each, are joined as
Welch and Satterthwaite do.

Where the share of the groups changed (``stages``), r is the weighted sum of the r of the stages, and e_k the
weighted sum of its parts in each. A key which came to the other group meanwhile is in both, so

    variance of the difference = v + v' - 2 sum of e_k e'_k over the keys of both

The jackknife over keys, or what is the same here, CR3 of Bell and McCaffrey (2002), makes no difference where
there is an interval: no key weighs much then.

Source: Cochran, "Sampling Techniques" (1977), chapter 6 (the linearised ratio); Welch, "The generalization of
Student's problem when several different population variances are involved" (1947).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from shortlist import checks
from shortlist.evaluation.asymptotic_confidence_sequence import Missing
from shortlist.types import Rows, Vector

MIN_KEYS = 30  # keys of a group
LARGEST = 1 / 5  # part of the sum of all e_k^2 that one key may make
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of the keys of one group. ``variance``: v; 0 if all keys have earned the same.

    ``variance``: v; 0 if all keys have earned the same. ``largest``: the largest part of one key in the sum
    of all e_k^2; 0 for a sum of 0.
    """

    keys: int = 0
    mean: float = 0.0
    variance: float = 0.0
    largest: float = 0.0

    @property
    def missing(self) -> Missing | None:
        """Why there is no interval; None where there is one."""
        if self.keys < MIN_KEYS:
            return "few"
        if self.variance <= 0.0:
            return "alike"
        return "uneven" if self.largest > LARGEST else None

    @property
    def needed(self) -> int | None:
        """The least number of keys for an interval, by those so far; None where there is one, or none
        tell.
        """
        match self.missing:
            case "few":
                return MIN_KEYS
            case "uneven":
                return math.ceil(self.keys * self.largest / LARGEST)
        return None


@dataclass(frozen=True, slots=True)
class Looks:
    """The results of the looks so far. ``given``: j. ``interval``: at the last look; None without one."""

    given: int = 0
    interval: tuple[float, float] | None = None


class KeyTable(NamedTuple):
    """Keys of a group in one stage, each once in ascending order, with n_k and s_k. Shapes: (K,) of each."""

    keys: Rows
    counts: Vector
    sums: Vector


class Errors(NamedTuple):
    """A group over its stages: keys, each once in ascending order, and their e_k. Shapes: (K,), (K,)."""

    summary: Summary
    keys: Rows
    errors: Vector


def is_look(decisions: int) -> bool:
    """Return whether the number of decisions has doubled since the last look: a power of two."""
    return decisions > 0 and decisions & (decisions - 1) == 0


def summary(counts: Vector, sums: Vector) -> Summary:
    """Summarise a group. ``counts``: n_k >= 1. Shapes: (K,), (K,). Cost: O(K).

    Raises: InvalidShape, NonFinite, InvalidParameter (counts).
    """
    checks.shape("counts", counts, (None,))
    checks.shape("sums", sums, counts.shape)
    checks.finite("sums", sums)
    if not len(counts):
        return Summary()
    checks.in_range("counts", float(counts.min()), least=1.0)
    return _summary(*_linearised(counts, sums))


def joined(stages: Sequence[KeyTable], weights: Vector) -> Errors:
    """A group over several stages. ``weights``: sum to 1; a stage of weight 0 is left out.

    Shapes: weights (S,). Cost: O(K log K), and O(K) for one stage.
    """
    mean, keys, errors = 0.0, list[Rows](), list[Vector]()
    for stage, weight in zip(stages, weights.tolist(), strict=True):
        if weight > 0.0 and len(stage.keys):
            linearised, apart = _linearised(stage.counts, stage.sums)
            mean += weight * linearised
            keys.append(stage.keys)
            errors.append(weight * apart)
    if not keys:
        return Errors(Summary(), np.empty(0, dtype=np.int64), np.empty(0))
    if len(keys) == 1:
        return Errors(_summary(mean, errors[0]), keys[0], errors[0])
    distinct, places = np.unique(np.concatenate(keys), return_inverse=True)
    of_keys = np.bincount(places, np.concatenate(errors), len(distinct)).astype(np.float64)
    return Errors(_summary(mean, of_keys), distinct, of_keys)


def covariance(one: Errors, other: Errors) -> float:
    """The covariance of the means of two groups: from the keys in both. Cost: O(K log K)."""
    _, places, others = np.intersect1d(one.keys, other.keys, assume_unique=True, return_indices=True)
    return float(one.errors[places] @ other.errors[others])


def _linearised(counts: Vector, sums: Vector) -> tuple[float, Vector]:
    """r, and the e_k: 0 where all keys have earned the same but for rounding."""
    decisions = float(counts.sum())
    mean = float(sums.sum()) / decisions
    apart = sums - mean * counts
    if np.abs(apart).max() <= _ROUNDING * np.abs(sums).max():
        return mean, np.zeros(len(counts))
    return mean, apart / decisions


def _summary(mean: float, errors: Vector) -> Summary:
    keys, squares = len(errors), np.square(errors)
    total = float(squares.sum())
    if keys < 2 or not total:
        return Summary(keys, mean)
    return Summary(keys, mean, keys / (keys - 1) * total, float(squares.max()) / total)


def look(
    past: Looks,
    group: Summary,
    other: Summary | None = None,
    *,
    level: float = 0.95,
    covariance: float = 0.0,
) -> Looks:
    """Look once more, at the mean of ``group``, or at that less the mean of ``other``.

    ``covariance``: of both means. Cost: O(1). Raises: InvalidParameter (level).
    """
    checks.in_range("level", level, above=0.0, below=1.0)
    groups = (group,) if other is None else (group, other)
    if any(each.missing for each in groups):
        return Looks(past.given)
    looks = past.given + 1
    centre = group.mean - (0.0 if other is None else other.mean)
    variance = sum(each.variance for each in groups)
    freedom = variance**2 / sum(each.variance**2 / (each.keys - 1) for each in groups)
    half = math.sqrt(max(variance - 2.0 * covariance, 0.0)) * _quantile(alpha_of(looks, 1.0 - level), freedom)
    return Looks(looks, (centre - half, centre + half))


def alpha_of(look: int, alpha: float) -> float:
    """a_j: what the ``look``-th interval may fail with."""
    return alpha * 6.0 / (math.pi * look) ** 2


def _quantile(alpha: float, freedom: float) -> float:
    return -float(stdtrit(freedom, alpha / 2.0))
