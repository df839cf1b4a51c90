"""Racing-Normal over clusters: every arm has a population of its own, of its own size.

Notation
    D           number of clusters
    N_i, T_i    size of cluster i, factors read of it so far
    S_i         sum of all log f of cluster i + log_prior_i + g_i; the arm of largest S is a draw
    l_i,n       N_i log f_n(i): its mean is S_i, up to known terms
    s_i         standard deviation of the l_i,n read so far, divided by T_i - 1
    t*          number of checks of the largest cluster
    B           Student's quantile at 1 - delta / ((D - 1)(t* - 1)), with min(T_i, T_j) - 1 degrees of freedom

At each check arm i is compared with the leader j, the arm of largest estimate. Arm i leaves if it is behind
by more than G = (s_i^2 / T_i (1 - T_i / N_i) + s_j^2 / T_j (1 - T_j / N_j))^(1/2) B. The two variances add
up, for the two arms are read independently. A cluster read to the end has no error: it adds nothing to G, and
its T is not counted in the degrees of freedom.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Appendix C.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.sampling.factors import Draws, RandomOrder
from shortlist.sampling.racing_normal import FIRST
from shortlist.types import Rows, Vector

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
    # DEVIATION (Appendix C.3, first batch): 50, as elsewhere in the paper; three factors say little of s.
    first: int = FIRST,
) -> Draws:
    """Return one draw of a cluster, p(i) proportional to exp(log_prior_i + sum of its log factors).

    Its distribution is within ``delta`` of p in total variation if the factors of each cluster are like
    independent draws from a Gaussian of its own. That holds for every ``first``; the proof is in
    docs/papers/racing-samplers.md. Other factors need Gaussian means, and a standard deviation visible in the
    first batch. So give a larger ``first`` where factors are rare and large.

    ``first`` is the size of the first batch; clusters that are no larger are read to the end.
    Shapes: log_prior (D,) -> rows (1,). Cost: at most sum N_i reads.
    Raises: InvalidShape, NonFinite, InvalidParameter (no clusters, delta not in [1e-100, 1), first < 2).
    """
    if not clusters:
        raise InvalidParameter("clusters must not be empty", argument="clusters")
    checks.delta(delta)
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
    """Return the factors read by each check: ``first``, a tenth of the rest more, then doubled."""
    reads = [min(first, size)]
    if reads[-1] < size:
        # DEVIATION (Appendix C.3, second batch): the larger of a tenth and 1; the print's is always 1.
        reads.append(min(size, reads[-1] + max(1, (size - first) // _SHARE)))
    while reads[-1] < size:
        reads.append(min(2 * reads[-1], size))
    return tuple(reads)


def quantile(tail: float, freedom: Vector) -> Vector:
    """Return the values that Student's t exceeds with probability ``tail``, at least 0.

    Shapes: freedom (m,), degrees of freedom, at least 1; infinity where there is no error -> (m,).
    """
    # DEVIATION (Eq. 27): Student's quantile, for s is estimated, in the first batch from few factors.
    quantiles: Vector = np.asarray(
        -stdtrit(np.where(np.isinf(freedom), 1.0, freedom), tail), dtype=np.float64
    )
    return np.where(np.isinf(freedom), 0.0, np.maximum(quantiles, 0.0))


def share_of_a_comparison(delta: float, clusters: int, looks: int) -> float:
    """Return delta / ((D - 1)(t* - 1)): the best is compared with all others at every check but the last."""
    return delta / (max(1, clusters - 1) * max(1, looks - 1))


def widths(variances: Vector, freedom: Vector, leader: int, tail: float) -> Vector:
    """Return G of every cluster beside the ``leader``, a position. ``tail``: probability of one comparison.

    ``variances`` are those of the estimated sums S, ``freedom`` their degrees of freedom. Shapes: (m,) each.
    """
    # DEVIATION (Eq. 26): variances, not deviations, and the power +1/2.
    errors = np.sqrt(variances[leader] + variances)
    all_widths: Vector = errors * quantile(tail, np.minimum(freedom, freedom[leader]))
    return all_widths


class _Arm:
    """The sums read of one cluster, for one draw."""

    def __init__(self, cluster: Cluster, rng: np.random.Generator) -> None:
        self._cluster = cluster
        self._order = RandomOrder(cluster.size, rng)
        self.values: Vector = np.empty(0)

    def schedule(self, first: int) -> tuple[int, ...]:
        return schedule(self._cluster.size, first)

    def read_to(self, t: int) -> None:
        if t > len(self.values):
            indices = self._order.take(len(self.values), t)
            log_factors = np.asarray(self._cluster.log_factors(indices), dtype=np.float64)
            checks.shape("log_factors", log_factors, (len(indices),))
            checks.finite("log_factors", log_factors)
            self.values = np.concatenate((self.values, log_factors))

    def total(self) -> float:
        """The estimate of the sum of all factors: N_i times the mean."""
        return self._cluster.size * float(self.values.mean()) if len(self.values) else 0.0

    @property
    def complete(self) -> bool:
        """True if everything was read."""
        return len(self.values) == self._cluster.size

    def variance(self) -> float:
        """Return the estimated variance of ``total``; 0 when everything was read."""
        t, size = len(self.values), self._cluster.size
        if self.complete:
            return 0.0
        return (size * float(self.values.std(ddof=1))) ** 2 / t * (1.0 - t / size)

    def freedom(self) -> float:
        """Return the degrees of freedom of ``variance``; infinity when everything was read."""
        return np.inf if self.complete else len(self.values) - 1.0


def _race(arms: Sequence[_Arm], offsets: Vector, delta: float, first: int) -> int:
    schedules = [arm.schedule(first) for arm in arms]
    last = max(map(len, schedules))
    tail = share_of_a_comparison(delta, len(arms), last)
    left = list(range(len(arms)))
    for turn in range(last):
        if len(left) == 1:
            break
        for arm in left:
            arms[arm].read_to(schedules[arm][min(turn, len(schedules[arm]) - 1)])
        totals = np.array([arms[arm].total() for arm in left]) + offsets[left]
        variances = np.array([arms[arm].variance() for arm in left])
        freedom = np.array([arms[arm].freedom() for arm in left])
        leader = int(totals.argmax())
        stay = totals[leader] - totals <= widths(variances, freedom, leader, tail)
        left = [arm for arm, stays in zip(left, stay.tolist(), strict=True) if stays]
    if len(left) == 1:
        return left[0]
    return left[int(totals[stay].argmax())]
