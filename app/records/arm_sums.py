"""Rewards of arms beyond their features: the pair of numbers in a token, and the sums of an arm.

A token has two numbers of each shown arm, and of each signal: the expected reward of the arm, x.E of the
key's learner, and the served effect. As float32 both have the same value in a choice, in its token, and in
the entries of its rewards.
"""

from __future__ import annotations

import math
from struct import Struct, unpack
from typing import NamedTuple

import msgspec
import numpy as np

from shortlist.types import Matrix

NUMBER_BYTES = 4
_ONE_NUMBER = Struct("<f")
MOST_PAIRS = 4_096  # of arms and signals, in one token


class ArmClock(msgspec.Struct, frozen=True):
    """The time by which sums of arms fade. Its rate follows from the present half-life, and is 0 without one:
    so a change of the half-life changes nothing from before.

    ``half_life_s``          of all sums of a bandit, by this clock
    ``since_ms``, ``at_ms``  a time, and the clock's time then
    ``rate``                 its milliseconds in a millisecond; 0: the clock stands still
    """

    half_life_s: float
    since_ms: int = 0
    at_ms: int = 0
    rate: float = 1.0

    def at(self, ms: int) -> int:
        """The clock's time at ``ms`` since 1970; before ``since_ms`` as if it had always run at this rate."""
        return self.at_ms + round(self.rate * (ms - self.since_ms))

    def of_half_life(self, half_life_s: float | None, now_ms: int) -> ArmClock:
        """The clock from now on with another half-life; None: nothing fades."""
        rate = 0.0 if half_life_s is None else self.half_life_s / half_life_s
        return ArmClock(self.half_life_s, now_ms, self.at(now_ms), rate)


class ArmTime(NamedTuple):
    """When an arm was chosen, by the clock of the arms of its bandit. ``half_life_s`` 0: nothing fades."""

    half_life_s: float
    time_ms: int


class ArmSums(msgspec.Struct, frozen=True, array_like=True):
    """The sums of one arm, of the rewards of one partition and of the features of one revision: see
    ``shortlist.linear.arm_effects``.

    ``version``      number of entries added since these features came
    ``decisions``    number of decisions in the sums: without any there are no sums
    ``space``, ``revision``   the move and the features of the arm to which they belong: later ones begin anew
    ``time_ms``      with a half-life: when the newest decision was made, by the ``ArmClock``; the sums are
                     discounted to it
    ``n``, ``F``     of all signals together; ``R``, ``Q`` of each
    ``R_error``, ``Q_error``   subtracted from ``R`` and ``Q``, as in ``RidgeSums``: rewards of a forgotten
                               key go without a trace, however large
    ``half_life_s``  of the ``ArmClock``, where an entry has named it

    R and Q of fewer signals are 0 in the others.
    """

    version: int = 0
    decisions: int = 0
    space: int = 0
    revision: int = 0
    time_ms: int = 0
    n: float = 0.0
    F: float = 0.0
    R: tuple[float, ...] = ()
    Q: tuple[float, ...] = ()
    R_error: tuple[float, ...] = ()
    Q_error: tuple[float, ...] = ()
    half_life_s: float | None = None


class MergedSums(msgspec.Struct, frozen=True, array_like=True):
    """Sums of an arm over revisions which no token names any more, of one partition, merged by a fit.

    As ``ArmSums``, of each signal by itself, faded to the features of ``revision``.
    """

    decisions: int
    space: int
    revision: int
    time_ms: int
    n: tuple[float, ...]
    F: tuple[float, ...]
    R: tuple[float, ...]
    Q: tuple[float, ...]


class EffectPair(NamedTuple):
    """``expected`` and ``served`` of one arm, of each signal, float32: see ``RewardEntry``."""

    expected: bytes
    served: bytes


def pairs_to_bytes(expected: Matrix, served: Matrix | None) -> bytes:
    """The pairs of some arms; ``served`` None: 0 of all. Shapes: (n, J) both. 8 J bytes for each arm."""
    pairs = np.zeros((len(expected), 2, expected.shape[1]), dtype="<f4")  # np.stack takes three times as long
    pairs[:, 0] = expected
    if served is not None:
        pairs[:, 1] = served
    return pairs.tobytes()


def pair_at(data: bytes, number: int, arms: int) -> EffectPair:
    """The pair of one of so many arms."""
    size = len(data) // (8 * arms) * NUMBER_BYTES  # what stands after the pairs is shorter than one
    begin = 2 * size * number
    return EffectPair(data[begin : begin + size], data[begin + size : begin + 2 * size])


def taken_off(pair: EffectPair | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """``served`` and ``expected`` of a ``RewardEntry``; None: the decision was made without arm effects.

    Where the store had no space for further sums ``expected`` is no number: then the arm learns nothing.
    """
    if pair is None:
        return (), ()
    expected = numbers_of(pair.expected)
    return numbers_of(pair.served), expected if all(map(math.isfinite, expected)) else ()


def numbers_of(data: bytes) -> tuple[float, ...]:
    """Numbers of a pair, of each signal: exactly those of the token."""
    # Not by numpy, which takes ten times as long for one number, of which there are two in each reward.
    return _ONE_NUMBER.unpack(data) if len(data) == NUMBER_BYTES else unpack(f"<{len(data) // 4}f", data)
