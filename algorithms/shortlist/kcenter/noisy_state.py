"""The state of a k-center campaign whose distances come from outside, with noise: a frozen, plain value.

Notation
    n, k, p     number of points, of centres to find, of centres found so far
    S           the centres found; pair (v, s) is a point v outside S and a centre s
    number      0, 1, 2, ...: the name of a query; every query asks for the distance of one pair, once

The next step depends on nothing but a state and the generator that is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.kcenter.center_set import check_count, first_center
from shortlist.types import Matrix

NoisyMethod = Literal["ns_ts", "ns_ucb", "ns_tands"]
Noise = Literal["gaussian", "bernoulli"]
Threshold = Literal["proven", "heuristic"]

# Degrees of freedom of a variance that is estimated: its upper bound is then about 1.2 times the estimate.
CALIBRATION = 128


class NoisyOptions(TypedDict):
    """The settings of a campaign that every method takes.

    ``n`` points, ``k`` centres, ``delta`` the probability of an error.
    ``noise`` "gaussian": answers are d(v, s) + N(0, noise_std^2), noise_std None if unknown; "bernoulli":
    answers lie in [0, 1] and have mean d(v, s). ``epsilon`` None is a tenth of the noise, see ``noise``.
    What may be left out has the default of ``NoisySettings``.
    """

    n: int
    k: int
    delta: float
    epsilon: NotRequired[float | None]
    noise: NotRequired[Noise]
    noise_std: NotRequired[float | None]


@dataclass(frozen=True, slots=True)
class NoisySettings:
    """``NoisyOptions`` and a method's own settings: ``mix`` is z of NS-TS, ``threshold`` is of NS-TandS."""

    method: NoisyMethod
    n: int
    k: int
    delta: float
    epsilon: float | None = None
    noise: Noise = "gaussian"
    noise_std: float | None = None
    mix: float = 0.0
    threshold: Threshold = "proven"

    @property
    def is_estimated(self) -> bool:
        """True if the variance of the answers has to be learned."""
        return self.noise == "gaussian" and self.noise_std is None


@dataclass(frozen=True, slots=True, eq=False)
class NoisyState:
    """A campaign after some answers; all arrays are read-only.

    ``counts`` and ``sums`` (k, n) are the number and the sum of the answers of pair (v, centers[row]).
    ``open`` (3, q) are the queries that wait for an answer, in ascending order: numbers, points, rows of
    ``counts``. ``calibration`` (3, c) holds count, mean and sum of squared residuals of the first answers of
    c fixed pairs with the first centre. ``issued`` counts queries, ``asks`` calls of ``ask``, ``observed``
    answers.
    """

    settings: NoisySettings
    centers: tuple[int, ...]
    counts: NDArray[np.int64]
    sums: Matrix
    open: NDArray[np.int64]
    calibration: Matrix
    issued: int
    asks: int
    observed: int

    def __post_init__(self) -> None:
        for array in (self.counts, self.sums, self.open, self.calibration):
            array.setflags(write=False)

    @property
    def done(self) -> bool:
        """True if all centres are found."""
        return len(self.centers) == self.settings.k


def check_options(options: NoisyOptions) -> None:
    """Raise InvalidParameter, naming the option that is missing, or that there is not."""
    checks.options(NoisySettings, options, but=("method", "mix", "threshold"))


def begin(settings: NoisySettings, first: int | None, rng: np.random.Generator) -> NoisyState:
    """Return the state before any query. Raises InvalidParameter, naming the setting that is out of range."""
    n, k = settings.n, settings.k
    checks.in_range("n", n, least=1, whole=True)
    check_count(k, n)
    checks.delta(settings.delta)
    if settings.epsilon is not None:
        checks.in_range("epsilon", settings.epsilon, least=0.0)
    checks.in_range("mix", settings.mix, least=0.0, most=1.0)
    if settings.noise_std is not None:
        checks.in_range("noise_std", settings.noise_std, above=0.0)
    _one_of("noise", settings.noise, ("gaussian", "bernoulli"))
    _one_of("threshold", settings.threshold, ("proven", "heuristic"))
    start = first_center(first, n, rng)
    pairs = min(n - 1, CALIBRATION) if settings.is_estimated else 0
    return NoisyState(
        settings=settings,
        centers=(start,),
        counts=np.zeros((k, n), dtype=np.int64),
        sums=np.zeros((k, n)),
        open=np.zeros((3, 0), dtype=np.int64),
        calibration=np.zeros((3, pairs)),
        issued=0,
        asks=0,
        observed=0,
    )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidParameter(f"{name} must be one of {', '.join(allowed)}", argument=name)
