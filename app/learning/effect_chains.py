"""The sums of arms for their features of now, from those of their revisions: see ``arm_effects.chain``.

An arm has sums of each revision of its features that a token can name, and what was merged of those before.
Each fit adds them, oldest first, with the learned prior of then. Sums of an arm that were merged in several
partitions for several revisions are steps of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from app.records.arm_sums import ArmSums, MergedSums
from app.records.records import unpack
from app.storage.arm_effects import MERGED
from shortlist.linear import arm_effects
from shortlist.linear.arm_effects import NOTHING, EffectFit, EffectSums
from shortlist.linear.sum_algebra import weight
from shortlist.types import Matrix, Rows, Vector


class Step(NamedTuple):
    """Sums of one revision of an arm. ``is_merged``: they are ``MergedSums``."""

    arm: str
    revision: int
    is_merged: bool = False


def step_of(arm: str, sums: ArmSums | MergedSums) -> Step:
    return Step(arm, sums.revision, isinstance(sums, MergedSums))


NO_SUMS = ArmSums()

Totals = dict[Step, ArmSums | MergedSums]
Drifts = Mapping[tuple[int, int], Vector]
"""v of each signal (J,), by two revisions of one arm; inf where features are not known any more."""


@dataclass(frozen=True, eq=False)
class Chains:
    """The steps of all arms, side by side in the order of their ids, as of one time.

    ``places``: the number of the arm of each step (P,). ``sums``, ``added``: of each signal, (P,) each.
    """

    names: Sequence[str]
    revisions: Sequence[int]
    steps: Sequence[Step]
    places: Rows
    sums: Sequence[EffectSums]
    added: Matrix

    def fit(self, before: Sequence[EffectFit], *, discounted: bool, centres: bool = False) -> Chained:
        """``before``: the fits of the version before, where it has those signals. ``centres``: as of
        ``arm_effects.fit_chain``. Cost: O(P).
        """
        starts = [*before, *(NOTHING,) * len(self.sums)]
        found = [
            arm_effects.fit_chain(
                sums, self.places, added, start=start, discounted=discounted, centres=centres
            )
            for sums, added, start in zip(self.sums, self.added, starts, strict=False)
        ]
        return Chained([fit for fit, _, _ in found], [own for _, own, _ in found], [f for _, _, f in found])


@dataclass(frozen=True, eq=False)
class Chained:
    """Of each signal the fit, the sums of all arms (K,), and the factors of ``arm_effects.chain`` (P,)."""

    fits: Sequence[EffectFit]
    sums: Sequence[EffectSums]
    factors: Sequence[Vector]


def sums_of(revision: int, data: bytes) -> ArmSums | MergedSums:
    """The sums that are stored under a revision."""
    return unpack(data, MergedSums) if revision == MERGED else unpack(data, ArmSums)


def steps_of(totals: Totals, current: Mapping[str, int]) -> Sequence[Step]:
    """The steps of all arms in order, with one for the features of now where those are newer.

    ``current``: the revision of each arm that is there.
    """
    steps = list(totals)
    newest = dict[str, int]()
    for arm, revision, _ in steps:
        newest[arm] = max(revision, newest.get(arm, 0))
    steps += [Step(arm, current[arm]) for arm, own in newest.items() if current.get(arm, 0) > own]
    return sorted(steps)


def changes_of(steps: Sequence[Step]) -> Mapping[tuple[int, int], str]:
    """The revisions of an arm between which its features changed, as ``Drifts`` has them, and the arm."""
    return {
        (before.revision, now.revision): now.arm
        for before, now in pairwise(steps)
        if before.arm == now.arm and before.revision != now.revision
    }


def chains_of(
    totals: Totals,
    steps: Sequence[Step],
    drifts: Drifts | None,
    *,
    signals: int,
    half_life_s: float | None = None,
    now_ms: int = 0,
) -> Chains:
    """The chains of these steps; faded to ``now_ms``. ``drifts`` None: as if no features had changed.

    Cost: O(P).
    """
    names, revisions, places = list[str](), list[int](), list[int]()
    changes, arm_before = list[tuple[int, int, int]](), None
    for place, (arm, revision, _) in enumerate(steps):
        if arm != arm_before:
            names.append(arm)
            revisions.append(revision)
            arm_before = arm
        elif revision != revisions[-1]:
            changes.append((place, revisions[-1], revision))
            revisions[-1] = revision
        places.append(len(names) - 1)
    added = np.zeros((signals, len(steps)))
    if changes and drifts is not None:
        unknown = np.full(signals, np.inf)
        found = [drifts.get((before, now), unknown) for _, before, now in changes]
        added[:, [place for place, _, _ in changes]] = np.array(found).T
    owns = [totals.get(step, NO_SUMS) for step in steps]
    n, F, R, Q = (columns([getattr(own, name) for own in owns], signals) for name in ("n", "F", "R", "Q"))
    if half_life_s is not None:
        times = np.array([own.time_ms for own in owns], dtype=float)
        w = np.exp2(np.minimum(times - now_ms, 0.0) / (1_000.0 * half_life_s))
        n, F, R, Q = w * n, w**2 * F, w * R, w**2 * Q
    sums = [EffectSums(n[j], R[j], Q[j], F[j]) for j in range(signals)]
    return Chains(names, revisions, steps, np.array(places, dtype=np.int64), sums, added)


def columns(numbers: Sequence[float | tuple[float, ...]], signals: int) -> Matrix:
    """Of each signal; of one that came later than some sums these have nothing. Shape: (J, P)."""
    kinds = {len(own) if isinstance(own, tuple) else -1 for own in numbers}
    if kinds == {-1}:
        return np.tile(np.array(numbers, dtype=float), (signals, 1))
    if kinds == {signals}:
        return np.array(numbers, dtype=float).T
    columns = [_by_signal(own, signals) for own in numbers]
    return np.array(columns, dtype=float).reshape(-1, signals).T


def merged_steps(
    owns: Mapping[Step, ArmSums | MergedSums],
    steps: Sequence[Step],
    factors: Sequence[Sequence[float]],
    count: int,
    *,
    half_life_s: float | None,
) -> MergedSums:
    """What the first ``count`` steps of an arm and all that was merged before are together, in one partition.

    At the revision of the next step, or a later one at which sums were merged.

    ``owns``: of the partition. ``steps``: of the arm, in order, more than ``count``. ``factors``: of each
    signal, for each step.
    """
    goal = max([steps[count].revision, *(step.revision for step in owns if step.is_merged)])
    zeros = (0.0,) * len(factors)
    merged = MergedSums(0, 0, goal, 0, zeros, zeros, zeros, zeros)
    for place, step in enumerate(steps):
        if step.revision > goal:
            break
        merged = _faded(merged, np.array([own[place] for own in factors]))
        if step in owns and (step.is_merged or place < count):
            merged = added_merged(merged, owns[step], half_life_s)
    return msgspec.structs.replace(merged, revision=goal)


def added_merged(merged: MergedSums, own: ArmSums | MergedSums, half_life_s: float | None) -> MergedSums:
    """Merged sums with others added, at the revision of those, discounted to the later of their times."""
    time_ms, old, new, signals = max(merged.time_ms, own.time_ms), 1.0, 1.0, len(merged.n)
    if half_life_s is not None:
        old, new = (weight(time_ms - each.time_ms, half_life_s) for each in (merged, own))

    def added(name: str, power: int) -> tuple[float, ...]:
        mine, theirs = (_by_signal(getattr(each, name), signals) for each in (merged, own))
        return tuple((old**power * mine + new**power * theirs).tolist())

    return MergedSums(
        merged.decisions + own.decisions, own.space, own.revision, time_ms,
        added("n", 1), added("F", 2), added("R", 1), added("Q", 2),
    )  # fmt: skip


def _faded(merged: MergedSums, factors: Vector) -> MergedSums:
    once, twice = factors, factors**2
    n, F, R, Q = (
        tuple((f * np.array(own)).tolist())
        for f, own in ((once, merged.n), (twice, merged.F), (once, merged.R), (twice, merged.Q))
    )
    return msgspec.structs.replace(merged, n=n, F=F, R=R, Q=Q)


def _by_signal(numbers: float | tuple[float, ...], signals: int) -> Vector:
    """Of each signal; of one that came later there is nothing. Shape: (J,)."""
    if not isinstance(numbers, tuple):
        return np.full(signals, numbers)
    padded = np.zeros(signals)
    padded[: len(numbers)] = numbers[:signals]
    return padded
