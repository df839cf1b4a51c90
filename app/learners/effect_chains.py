"""The sums of arms for their features of now, from those of their revisions: see ``arm_effects.chain``.

An arm has sums of each revision of its features that a token can name, and merged sums of earlier ones. Each
fit adds all, oldest first, by the learned prior of the time. Sums merged in several partitions for several
revisions are steps of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from app.learners.effect_totals import Step, Totals, by_signal
from shortlist.linear import arm_effects
from shortlist.linear.arm_effects import NOTHING, EffectFit, EffectSums
from shortlist.types import Matrix, Rows, Vector

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
        """``before``: the fits of the version before, of its signals. ``centres``: as of
        ``arm_effects.fit_chain``. Cost: O(P).
        """
        starts = [*before, *(NOTHING,) * len(self.sums)]
        fitted_signals = [
            arm_effects.fit_chain(
                sums, self.places, added, start=start, discounted=discounted, centres=centres
            )
            for sums, added, start in zip(self.sums, self.added, starts, strict=False)
        ]
        return Chained(
            [fit for fit, _, _ in fitted_signals],
            [own for _, own, _ in fitted_signals],
            [f for _, _, f in fitted_signals],
        )


@dataclass(frozen=True, eq=False)
class Chained:
    """The fit of each signal, the sums of all arms (K,), and the factors of ``arm_effects.chain`` (P,)."""

    fits: Sequence[EffectFit]
    sums: Sequence[EffectSums]
    factors: Sequence[Vector]


def steps_of(totals: Totals, current: Mapping[str, int]) -> Sequence[Step]:
    """The steps of all arms in order, with one for the features of now where those are newer.

    ``current``: the revision of each arm that is there.
    """
    steps = list(totals.places)
    newest = dict[str, int]()
    for arm, revision, _ in steps:
        newest[arm] = max(revision, newest.get(arm, 0))
    steps += [
        Step(arm, current[arm])
        for arm, newest_revision in newest.items()
        if current.get(arm, 0) > newest_revision
    ]
    return sorted(steps)


def changes_of(steps: Sequence[Step]) -> Mapping[tuple[int, int], str]:
    """The revisions of an arm between which its features changed, as ``Drifts`` has them, and the arm."""
    return {
        (before.revision, after.revision): after.arm
        for before, after in pairwise(steps)
        if before.arm == after.arm and before.revision != after.revision
    }


def chains_of(totals: Totals, steps: Sequence[Step], drifts: Drifts | None) -> Chains:
    """The chains of these steps. ``drifts`` None: as if no features had changed. Cost: O(P)."""
    names, revisions, places = list[str](), list[int](), list[int]()
    changes, arm_before, signals = list[tuple[int, int, int]](), None, totals.numbers.shape[1]
    for position, (arm, revision, _) in enumerate(steps):
        if arm != arm_before:
            names.append(arm)
            revisions.append(revision)
            arm_before = arm
        elif revision != revisions[-1]:
            changes.append((position, revisions[-1], revision))
            revisions[-1] = revision
        places.append(len(names) - 1)
    added = np.zeros((signals, len(steps)))
    if changes and drifts is not None:
        unknown = np.full(signals, np.inf)
        known_drifts = [drifts.get((before, after), unknown) for _, before, after in changes]
        added[:, [position for position, _, _ in changes]] = np.array(known_drifts).T
    # Of a step that no partition has there is nothing: the last column.
    with_nothing = np.concatenate((totals.numbers, np.zeros((4, signals, 1))), axis=2)
    columns = with_nothing[:, :, [totals.places.get(step, -1) for step in steps]]
    return Chains(names, revisions, steps, np.array(places, dtype=np.int64), by_signal(columns), added)
