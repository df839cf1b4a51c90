"""The state of a slate campaign: a frozen, plain value that holds everything the next step depends on.

Notation
    n, k        number of arms, size of a slate
    A, b        sum of chi chi' (n, n), sum of total * chi (n,), over the results
    look        a test whether the campaign can stop
    t_j         number of results at which the j-th look is taken, fixed in advance
    pull        0, 1, 2, ...: the name of one showing of a slate; ``allocation`` says of which

Source: Kuroki et al., Algorithms 2 to 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.slates.allocation import Allocation, Design, design_of
from shortlist.slates.matroids import Matroid, PartitionMatroid, UniformMatroid, check
from shortlist.slates.widths import Bound
from shortlist.types import Matrix, Vector

SlateMethod = Literal["saqm", "sa_foa", "icb", "exhaustive"]

# The first look is taken after this many results an arm, each further one after this many times more.
_FIRST_LOOK = 2
_GROWTH = 1.1


class SlateOptions(TypedDict):
    """The parameters of a campaign.

    ``noise_std`` is sigma, the sub-Gaussian parameter of the noise of one total. ``reach``, if known, is how
    far a total can be from its mean. ``bound`` "paper" keeps the printed constants and tests. ``matroid``
    says which sets of k arms are slates; None: all. Optional ones have the defaults of ``SlateSettings``.
    """

    n: int
    k: int
    epsilon: float
    delta: float
    noise_std: float
    reach: NotRequired[float | None]
    allocation: NotRequired[Allocation]
    bound: NotRequired[Bound]
    seed: NotRequired[int]
    matroid: NotRequired[PartitionMatroid | None]


@dataclass(frozen=True, slots=True)
class SlateSettings:
    """``SlateOptions`` and the method."""

    method: SlateMethod
    n: int
    k: int
    epsilon: float
    delta: float
    noise_std: float
    reach: float | None = None
    allocation: Allocation = "uniform"
    bound: Bound = "certified"
    seed: int = 0
    matroid: PartitionMatroid | None = None

    @property
    def slates(self) -> Matroid:
        """The matroid whose bases are the slates."""
        return self.matroid or UniformMatroid(self.n, self.k)


@dataclass(frozen=True, slots=True, eq=False)
class SlateReport:
    """The report of the last look, after ``observed`` results.

    ``best`` (k,) ascending, ``theta`` (n,) estimated means. The mean total of ``best`` is in [lower, upper],
    no slate exceeds it by more than ``excess``; each holds with probability 1 - delta over all looks.
    ``more_pulls`` is about how many results are still missing; ``spread`` the mean squared residual;
    ``tolerance`` the largest residual explained by the noise, None if the noise may be of any size.
    """

    observed: int
    best: NDArray[np.int64]
    theta: Vector
    lower: float
    upper: float
    excess: float
    more_pulls: int
    spread: float
    tolerance: float | None


@dataclass(frozen=True, slots=True, eq=False)
class SlateState:
    """A campaign after some results; all arrays are read-only.

    Shapes: A (n, n), b (n,); told (bytes,) has bit i % 8 of byte i // 8 set when pull i was told. ``squares``
    is the sum of squared totals, ``looks`` counts looks, ``next_look`` is t_j of the next. ``outside`` counts
    totals beyond ``reach``. ``stopped`` means: A, b and ``report`` are final, and later results are only
    counted.
    """

    settings: SlateSettings
    design: Design
    A: Matrix
    b: Vector
    squares: float
    told: NDArray[np.uint8]
    issued: int
    observed: int
    looks: int
    next_look: int
    outside: int
    stopped: bool
    report: SlateReport | None

    @property
    def done(self) -> bool:
        """True if the best slate is found."""
        return self.stopped


def begin(method: SlateMethod, /, **options: Unpack[SlateOptions]) -> SlateState:
    """Return the state before any pull. Raises InvalidParameter, naming an option out of range, a missing, or
    an unknown one.
    """
    checks.options(SlateSettings, options, but=("method",))
    settings = SlateSettings(method, **options)
    n, k = settings.n, settings.k
    checks.in_range("n", n, least=2, whole=True)
    checks.in_range("k", k, least=1, most=n, whole=True)
    if k == n:
        text = "k must be less than the number of arms: with one slate only, no design tells arms apart"
        raise InvalidParameter(text, argument="k")
    checks.in_range("epsilon", settings.epsilon, above=0.0)
    checks.delta(settings.delta)
    checks.in_range("noise_std", settings.noise_std, above=0.0)
    checks.in_range("seed", settings.seed, least=0, whole=True)
    if settings.reach is not None:
        checks.in_range("reach", settings.reach, above=0.0)
    _one_of("method", method, ("saqm", "sa_foa", "icb", "exhaustive"))
    _one_of("allocation", settings.allocation, ("uniform", "g", "xy"))
    _one_of("bound", settings.bound, ("certified", "paper"))
    if settings.matroid is not None:
        check(settings.matroid, n, k)
    return SlateState(
        settings=settings,
        design=design_of(settings.allocation, settings.slates, settings.seed),
        A=np.zeros((n, n)),
        b=np.zeros(n),
        squares=0.0,
        told=np.zeros(0, dtype=np.uint8),
        issued=0,
        observed=0,
        looks=0,
        next_look=first_look(n),
        outside=0,
        stopped=False,
        report=None,
    )


def first_look(n: int) -> int:
    """Return t_1 = 2 n."""
    return _FIRST_LOOK * n


def next_look(look: int) -> int:
    """Return t_(j+1) = ceil(1.1 t_j)."""
    # DEVIATION (Alg. 2 to 5, stopping condition): looked at after t_1, t_2, ... results, not after each.
    return math.ceil(_GROWTH * look)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidParameter(f"{name} must be one of {', '.join(allowed)}", argument=name)
