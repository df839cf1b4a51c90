"""BoundedME: the arms of largest inner product by median elimination over sampled coordinates.

Notation
    n, N, K     number of arms, of coordinates (rewards of an arm), of arms to find
    S_l, s      arms left in round l, how many
    eps_l       share of epsilon that round l may lose; delta_l its share of delta
    R           range of the rewards of an arm
    t_l         coordinates read of every arm of S_l by the end of round l
    f           how many arms beyond K are kept, floor((s - K) / 2) as printed

Two plans. ``printed``: the paper's rounds, each of which keeps half of the arms and has its share of epsilon
and delta. ``sampled``: one round that has all of epsilon and delta and keeps few arms, which are then read to
the end. The lemma of a round is the same, and far less is read: see docs/papers/bounded-me.md.

Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from app.algorithms import checks
from app.algorithms.finite_population import sample_size
from app.algorithms.guarantee import Guarantee
from app.algorithms.mips.answer import Answer
from app.algorithms.mips.prices import Prices, beside, least_sample
from app.algorithms.mips.rewards import Rewards
from app.algorithms.mips.tally import Tally, largest, read_all
from app.errors import InvalidParameter

Plan = Literal["sampled", "printed"]

NOTHING_SAVED = "the schedule would read as much as a scan"
LEAST_DIM = 128
# Arms that the guarantee does not need are kept for this much more time: more of the best are among them.
_PATIENCE = 1.2
# A schedule that takes this share of a scan's time is not worth its randomness.
_WORTH = 0.95


class Round(NamedTuple):
    """Read ``t`` coordinates of the arms that are left, then keep the best ``kept``."""

    t: float
    kept: int


def bounded_me(rewards: Rewards, *, k: int, epsilon: float, delta: float, plan: Plan = "sampled") -> Answer:
    """Return ``k`` arms; with probability 1 - delta their k-th best mean is within epsilon of the true one.

    A mean is an inner product divided by N (or a squared distance), so is epsilon. Where the schedule saves
    nothing everything is read, and the guarantee is "exact"; where the range that was given is seen not to
    hold it is "none".
    Shapes: rewards of n arms -> rows, values (min(k, n),). Cost: at most n N reads, ``Answer.reads``.
    Raises: InvalidParameter (k < 1, epsilon <= 0, delta not in (0, 1), plan).
    """
    check(k, epsilon, delta)
    if plan not in {"sampled", "printed"}:
        raise InvalidParameter("plan must be sampled or printed", loc=("plan",))
    steps = rounds(rewards, k=k, epsilon=epsilon, delta=delta, plan=plan)
    if not saves(steps, rewards):
        return read_all(rewards, k, NOTHING_SAVED)
    return follow(steps, rewards, k, Guarantee("pac", epsilon, delta))


def follow(steps: Sequence[Round], rewards: Rewards, k: int, guarantee: Guarantee) -> Answer:
    """Read as ``rounds`` said for these rewards, and return the best ``k`` arms; arguments unchecked."""
    tally = Tally(rewards)
    for step in steps:
        if step.t == rewards.dim or tally.few_are_left():
            break
        tally.read_to(int(step.t))
        tally.keep(largest(tally.sums, step.kept))
    return tally.answer(k, guarantee)


def check(k: int, epsilon: float, delta: float) -> None:
    """Raise InvalidParameter unless k >= 1, epsilon > 0 and 0 < delta < 1."""
    checks.in_range("k", k, least=1)
    checks.in_range("epsilon", epsilon, above=0.0)
    checks.in_range("delta", delta, above=0.0, below=1.0)


def saves(steps: Sequence[Round], rewards: Rewards, *, prices: Prices | None = None) -> bool:
    """Whether the rounds take less time than a scan; ``prices`` in place of those of the rewards."""
    n, dim = rewards.size, rewards.dim
    cost = work(steps, n, dim, prices or rewards.prices) + beside(n, dim) / (n * dim)
    return not few_coordinates(rewards) and cost < _WORTH


def few_coordinates(rewards: Rewards) -> bool:
    """Whether coordinates are read faster than they are sampled."""
    return rewards.dim < LEAST_DIM


def rounds(
    rewards: Rewards,
    *,
    k: int,
    epsilon: float,
    delta: float,
    plan: Plan = "sampled",
    prices: Prices | None = None,
) -> list[Round]:
    """The rounds for these rewards, in numbers of coordinates at which reading can stop; none if n <= k.

    ``prices`` in place of those of the rewards.
    """
    n, dim, spread, noise = rewards.size, rewards.dim, rewards.bounds.spread, rewards.noise
    if plan == "printed":
        steps = list(schedule(n, dim, k=k, epsilon=epsilon, delta=delta, spread=spread, noise=noise))
    else:
        prices, epsilon = prices or rewards.prices, epsilon - 2.0 * noise
        steps = sample_once(n, dim, k=k, epsilon=epsilon, delta=delta, spread=spread, prices=prices)
    return [Round(rewards.rounded(step.t), step.kept) for step in steps]


def sample_once(
    n: int, dim: int, *, k: int, epsilon: float, delta: float, spread: float, prices: Prices
) -> list[Round]:
    """One sample of all arms, after which the best are read to the end: in about the least time."""
    least = least_sample(n, dim)
    plans = list[tuple[float, list[Round]]]()
    quickest = math.inf
    # From the fewest kept on: once picking takes too long by itself, more need not be looked at.
    for halved in range(max(n - k, 0).bit_length(), 0, -1):
        beyond = (n - k) >> halved
        # DEVIATION (Alg. 1, lines 4, 5 and 9): one round, which keeps K + f arms for any f; less is read.
        level = math.log((k + (n - k) / (beyond + 1)) / delta)
        t = max(least, math.ceil(sample_size(_u(spread, epsilon, level), dim)))
        steps = [Round(t, k + beyond), Round(dim, k)]
        time = work(steps, n, dim, prices)
        if time - t / dim > _PATIENCE * quickest:
            break
        quickest = min(quickest, time)
        plans.append((time, steps))
    # The last that is quick enough keeps most arms.
    return next((steps for time, steps in reversed(plans) if time <= _PATIENCE * quickest), [])


def schedule(
    n: int, dim: int, *, k: int, epsilon: float, delta: float, spread: float, noise: float = 0.0
) -> Iterator[Round]:
    """Yield the printed rounds, until k arms are left or all N coordinates are read; none if n <= k.

    ``spread`` is R; means are known up to ``noise``, which is taken off epsilon.
    """
    count = max(n - k, 0).bit_length()
    # DEVIATION (Alg. 1, line 4): rounding errors have a share of epsilon.
    share, rest, left = (epsilon - 2.0 * noise * count) / 4.0, delta / 2.0, n
    while left > k:
        kept = left - -(-(left - k) // 2)
        # DEVIATION (Alg. 1, line 7): K + (s-K)/(f+1) for 2(s-K)/(f+1); the print forgets K - 1 arms.
        level = math.log((k + (left - k) / (kept - k + 1)) / rest)
        yield Round(t := math.ceil(sample_size(_u(spread, share, level), dim)), kept)
        if t >= dim:
            return
        share, rest, left = 0.75 * share, rest / 2.0, kept


def _u(spread: float, share: float, level: float) -> float:
    # DEVIATION (Alg. 1, line 7): the range R of the rewards, which the print takes to be 1.
    return 2.0 * (spread / share) ** 2 * level if share > 0.0 else math.inf


def work(steps: Sequence[Round], n: int, dim: int, prices: Prices) -> float:
    """The time that the rounds take, in scans of everything."""
    total, before, left = 0.0, 0.0, n
    for step in steps:
        if step.t == dim:
            total += prices.finishing(left, before, n, dim)
        else:
            total += prices.reading(left, n) * (step.t - before)
        before, left = step.t, step.kept
    return total / (n * dim) if steps else 1.0
