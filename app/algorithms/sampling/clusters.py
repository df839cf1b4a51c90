"""Racing-Normal over clusters: every arm has a population of its own, of its own size.

Notation
    D           number of clusters
    N_i, T_i    size of cluster i, factors read of it so far
    S_i         sum of all log f of cluster i + log_prior_i + g_i; the arm of largest S is a draw
    l_i,n       N_i log f_n(i): its mean is S_i, up to what is known
    s_i         standard deviation of the l_i,n read so far, divided by T_i
    t*          number of looks of the largest cluster
    B           Phi^-1(1 - delta / ((D - 1)(t* - 1))), Equation 27: a union over arms and looks

Arms are read at factors of their own, so the variance of a difference is the sum of two:
G = (s_i^2 / T_i (1 - (T_i-1)/(N_i-1)) + s_j^2 / T_j (1 - (T_j-1)/(N_j-1)))^(1/2) B.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Appendix C.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from app.algorithms import checks
from app.algorithms.sampling.factors import Draws, RandomOrder
from app.algorithms.types import Rows, Vector
from app.errors import InvalidParameter

FIRST = 3
_SHARE = 10


@dataclass(frozen=True, slots=True)
class Cluster:
    """``log_factors(indices (w,)) -> (w,)`` for indices in 0..size-1; an empty cluster has size 0."""

    size: int
    log_factors: Callable[[Rows], Vector]


def racing_clusters(
    clusters: Sequence[Cluster],
    *,
    delta: float,
    rng: np.random.Generator,
    log_prior: Vector | None = None,
    first: int = FIRST,
) -> Draws:
    """Return one draw of a cluster, p(i) proportional to exp(log_prior_i + sum of its log factors).

    For Gaussian means its distribution is within ``delta`` of p in total variation. The default first batch
    of 3 is the print's, and bends that assumption; give more where clusters are large.
    Shapes: log_prior (D,) -> rows (1,). Cost: at most sum N_i reads.
    Raises: InvalidShape, NonFinite, InvalidParameter (no clusters, delta not in (0, 1), first < 2).
    """
    if not clusters:
        raise InvalidParameter("clusters must not be empty", loc=("clusters",))
    checks.in_range("delta", delta, above=0.0, below=1.0)
    checks.in_range("first", first, least=2)
    prior = np.zeros(len(clusters)) if log_prior is None else log_prior
    checks.shape("log_prior", prior, (len(clusters),))
    checks.finite("log_prior", prior)
    arms = [_Arm(cluster, rng) for cluster in clusters]
    offsets = prior + rng.gumbel(size=len(clusters))
    row = _race(arms, offsets, delta, first)
    most = sum(cluster.size for cluster in clusters)
    return Draws(np.array([row]), sum(len(arm.values) for arm in arms), most, raced=1)


def schedule(size: int, first: int) -> tuple[int, ...]:
    """The looks of a cluster: ``first``, a tenth of the rest more, then doubled up to its size."""
    looks = [min(first, size)]
    if looks[-1] < size:
        # DEVIATION (Appendix C.3): the larger of a tenth and 1; the print's minimum would always be 1.
        looks.append(min(size, looks[-1] + max(1, (size - first) // _SHARE)))
    while looks[-1] < size:
        looks.append(min(2 * looks[-1], size))
    return tuple(looks)


class _Arm:
    """What has been read of one cluster; lives for one draw."""

    def __init__(self, cluster: Cluster, rng: np.random.Generator) -> None:
        self._cluster = cluster
        self._order = RandomOrder(cluster.size, rng)
        self.values: Vector = np.empty(0)

    def looks(self, first: int) -> tuple[int, ...]:
        return schedule(self._cluster.size, first)

    def read_to(self, t: int) -> None:
        if t > len(self.values):
            indices = self._order.take(len(self.values), t)
            found = np.asarray(self._cluster.log_factors(indices), dtype=np.float64)
            checks.shape("log_factors", found, (len(indices),))
            checks.finite("log_factors", found)
            self.values = np.concatenate((self.values, found))

    def total(self) -> float:
        """The estimate of the sum of all factors: N_i times the mean."""
        return self._cluster.size * float(self.values.mean()) if len(self.values) else 0.0

    def variance(self) -> float:
        """The variance of ``total``; 0 when everything was read."""
        t, size = len(self.values), self._cluster.size
        if t == size:
            return 0.0
        return (size * float(self.values.std())) ** 2 / t * (1.0 - (t - 1) / (size - 1))


def _race(arms: Sequence[_Arm], offsets: Vector, delta: float, first: int) -> int:
    looks = [arm.looks(first) for arm in arms]
    last = max(map(len, looks))
    bound = -float(ndtri(delta / (max(1, len(arms) - 1) * max(1, last - 1))))
    left = list(range(len(arms)))
    for turn in range(last):
        if len(left) == 1:
            break
        for arm in left:
            arms[arm].read_to(looks[arm][min(turn, len(looks[arm]) - 1)])
        totals = np.array([arms[arm].total() for arm in left]) + offsets[left]
        variances = np.array([arms[arm].variance() for arm in left])
        leader = int(totals.argmax())
        # DEVIATION (Eq. 26): variances, not deviations, and the power +1/2.
        widths = np.sqrt(variances[leader] + variances) * max(bound, 0.0)
        stay = totals[leader] - totals <= widths
        left = [arm for arm, stays in zip(left, stay.tolist(), strict=True) if stays]
    if len(left) == 1:
        return left[0]
    return left[int(totals[stay].argmax())]
