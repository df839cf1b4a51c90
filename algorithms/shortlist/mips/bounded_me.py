"""BoundedME: the arms of largest inner product by median elimination over sampled coordinates.

Notation
    n, N, K     number of arms, of coordinates (rewards of an arm), of arms to find
    S_l, s      arms left in round l, how many
    eps_l       share of epsilon for round l; delta_l its share of delta
    R           range of the rewards of an arm
    t_l         coordinates read of every arm of S_l by the end of round l
    f           how many arms beyond K are kept, floor((s - K) / 2) as printed

There are two plans. ``printed``: the paper's rounds, each of which keeps half of the arms and has its share
of epsilon and delta. ``sampled``: one round with all of epsilon and delta and few arms kept, which are then
read to the end. The lemma of a round is the same, and far less is read: see docs/papers/bounded-me.md. How
many arms it keeps follows from what reads cost (``rewards.costs``): see ``ReadCosts``.

Source: Liu, Wu, Mozafari, "A Bandit Approach to Maximum Inner Product Search", Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.finite_population import sample_size
from shortlist.guarantee import Guarantee
from shortlist.mips.answer import Answer
from shortlist.mips.partial_sums import PartialSums, largest, read_all
from shortlist.mips.read_costs import ReadCosts
from shortlist.mips.rewards import CoordinateRewards

RoundPlan = Literal["sampled", "printed"]

NOTHING_SAVED = "the schedule would read as much as a scan"
# With fewer coordinates everything is read: they are not sampled in runs (``blocked.grain_of``), but singly.
LEAST_DIM = 128
# More arms are kept than the guarantee needs, as long as the plan costs at most this many times the cheapest
# one: more of the best arms are among them.
_PATIENCE = 1.2
# A plan that costs this share of a scan is not worth its randomness.
_WORTH = 0.95


class Round(NamedTuple):
    """Read ``t`` coordinates of the arms that are left, then keep the best ``kept``."""

    t: float
    kept: int


def bounded_me(
    rewards: CoordinateRewards, *, k: int, epsilon: float, delta: float, plan: RoundPlan = "sampled"
) -> Answer:
    """Return ``k`` arms; with probability 1 - delta their k-th best mean is within epsilon of the true one.

    A mean is an inner product (or a squared distance) divided by N; epsilon is in the same unit. Where the
    plan saves nothing everything is read, and the guarantee is "exact". Where a term was read outside of the
    range that was given it is "none".

    ``rewards``: a query and its arms, see ``CoordinateRewards``. ``plan``: see the module.
    Shapes: rewards of n arms -> rows, values (min(k, n),). Cost: at most n N reads, ``Answer.reads``.
    Raises: InvalidParameter (k < 1, epsilon <= 0, delta not in [1e-100, 1), plan).
    """
    check_arguments(k, epsilon, delta)
    if plan not in {"sampled", "printed"}:
        raise InvalidParameter("plan must be sampled or printed", argument="plan")
    steps = rounds(rewards, k=k, epsilon=epsilon, delta=delta, plan=plan)
    if not saves(steps, rewards):
        return read_all(rewards, k, NOTHING_SAVED)
    return follow(steps, rewards, k, Guarantee("pac", epsilon, delta))


def follow(steps: Sequence[Round], rewards: CoordinateRewards, k: int, guarantee: Guarantee) -> Answer:
    """Read as ``rounds`` said for these rewards, and return the best ``k`` arms; arguments unchecked."""
    partial = PartialSums(rewards)
    for step in steps:
        if step.t == rewards.dim or partial.few_are_left():
            break
        partial.read_to(int(step.t))
        partial.keep(largest(partial.sums, step.kept))
    return partial.answer(k, guarantee)


def check_arguments(k: int, epsilon: float, delta: float) -> None:
    """Raise InvalidParameter unless k >= 1, epsilon > 0 and MIN_DELTA <= delta < 1."""
    checks.in_range("k", k, least=1)
    checks.in_range("epsilon", epsilon, above=0.0)
    checks.delta(delta)


def saves(steps: Sequence[Round], rewards: CoordinateRewards) -> bool:
    """Return whether the rounds cost clearly less than a scan."""
    n, dim = rewards.size, rewards.dim
    cost = work(steps, n, dim, rewards.costs) + rewards.costs.overhead(n, dim) / (n * dim)
    return not few_coordinates(rewards) and cost < _WORTH


def is_quicker(rewards: CoordinateRewards, *, k: int, epsilon: float, delta: float) -> bool:
    """Return whether ``bounded_me`` would cost clearly less than a scan; known before anything is read."""
    return saves(rounds(rewards, k=k, epsilon=epsilon, delta=delta), rewards)


def few_coordinates(rewards: CoordinateRewards) -> bool:
    """Return whether there are too few coordinates to sample."""
    return rewards.dim < LEAST_DIM


def rounds(
    rewards: CoordinateRewards,
    *,
    k: int,
    epsilon: float,
    delta: float,
    plan: RoundPlan = "sampled",
) -> list[Round]:
    """Return the rounds for these rewards, none if n <= k; arguments as of ``bounded_me``, unchecked.

    Every t is a number of coordinates at which reading can stop.
    """
    n, dim, spread, noise = rewards.size, rewards.dim, rewards.bounds.spread, rewards.noise
    if plan == "printed":
        steps = list(schedule(n, dim, k=k, epsilon=epsilon, delta=delta, spread=spread, noise=noise))
    else:
        epsilon -= 2.0 * noise
        steps = sample_once(n, dim, k=k, epsilon=epsilon, delta=delta, spread=spread, costs=rewards.costs)
    return [Round(rewards.rounded(step.t), step.kept) for step in steps]


def sample_once(
    n: int, dim: int, *, k: int, epsilon: float, delta: float, spread: float, costs: ReadCosts
) -> list[Round]:
    """Return the plan of one sample of all arms, after which the best are read to the end.

    ``spread`` is R. It costs at most 1.2 times as much as the cheapest such plan, and keeps as many arms as
    that allows.
    """
    least = costs.least_sample(n, dim)
    plans = list[tuple[float, list[Round]]]()
    cheapest = math.inf
    # From the fewest kept on. Once finishing alone costs too much, keeping more arms costs even more.
    for halved in range(max(n - k, 0).bit_length(), 0, -1):
        beyond = (n - k) >> halved
        # DEVIATION (Alg. 1, lines 4, 5 and 9): one round, which keeps K + f arms for any f; less is read.
        level = math.log((k + (n - k) / (beyond + 1)) / delta)
        t = max(least, math.ceil(sample_size(_u(spread, epsilon, level), dim)))
        steps = [Round(t, k + beyond), Round(dim, k)]
        cost = work(steps, n, dim, costs)
        if cost - t / dim > _PATIENCE * cheapest:
            break
        cheapest = min(cheapest, cost)
        plans.append((cost, steps))
    # The last plan that is cheap enough keeps most arms.
    return next((steps for cost, steps in reversed(plans) if cost <= _PATIENCE * cheapest), [])


def schedule(
    n: int, dim: int, *, k: int, epsilon: float, delta: float, spread: float, noise: float = 0.0
) -> Iterator[Round]:
    """Yield the printed rounds, until k arms are left or all N coordinates are read; none if n <= k.

    ``spread`` is R. ``noise`` bounds the rounding error of a mean, and is taken off epsilon.
    """
    count = max(n - k, 0).bit_length()
    # DEVIATION (Alg. 1, line 4): rounding errors have a share of epsilon.
    share, delta_left, left = (epsilon - 2.0 * noise * count) / 4.0, delta / 2.0, n
    while left > k:
        survivors = left - -(-(left - k) // 2)
        # DEVIATION (Alg. 1, line 7): K + (s-K)/(f+1) for 2(s-K)/(f+1); the print forgets K - 1 arms.
        level = math.log((k + (left - k) / (survivors - k + 1)) / delta_left)
        yield Round(t := math.ceil(sample_size(_u(spread, share, level), dim)), survivors)
        if t >= dim:
            return
        share, delta_left, left = 0.75 * share, delta_left / 2.0, survivors


def _u(spread: float, share: float, level: float) -> float:
    # DEVIATION (Alg. 1, line 7): the range R of the rewards, which the print takes to be 1.
    return 2.0 * (spread / share) ** 2 * level if share > 0.0 else math.inf


def work(steps: Sequence[Round], n: int, dim: int, costs: ReadCosts) -> float:
    """Return what the reads of the rounds cost, as a share of a scan."""
    total, before, left = 0.0, 0.0, n
    for step in steps:
        if step.t == dim:
            total += costs.finishing(left, before, n, dim)
        else:
            total += costs.reading(left, n) * (step.t - before)
        before, left = step.t, step.kept
    return total / (n * dim) if steps else 1.0
