"""What keys teach the arms, computed again with the features that arms have in another catalogue.

A surprise is a reward less what the learner of its key expected of the arm. Decisions of a key are read in
the order in which they were made. Of each, what was expected is what the learner expects that has the new
features, the learned prior of after the move, and the rewards of all earlier decisions of the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from app.bandits.bandit import Bandit
from app.learning.arm_sums import add_entry
from app.learning.entry_rows import Item
from app.learning.fold import learned, merged
from app.learning.learners import thetas_of
from app.records.arm_sums import ArmSums
from app.records.records import LearnerState
from shortlist.linear import ridge_sums
from shortlist.linear.signals import SignalPosteriors
from shortlist.types import Vector

MOST_TERMS = 200_000_000_000  # of the factorisations of a partition, D^3 each: some minutes


class RewardedArm(NamedTuple):
    """A reward that teaches an arm, with the features of that in its context (D,)."""

    item: Item
    arm: str
    revision: int
    features: Vector


@dataclass(slots=True)
class RecomputedArms:
    """Of the decisions of one partition. ``moved``: the bandit as it will be, with its learned prior."""

    moved: Bandit
    _sums: dict[str, dict[str, ArmSums]] = field(default_factory=dict)
    _states: dict[str, LearnerState] = field(default_factory=dict)
    _terms: int = 0

    def add(self, name: str, items: Sequence[Item], taught: Sequence[RewardedArm]) -> None:
        """Add the rewards of the next decision of a learner. ``taught``: those that teach their arms.

        Cost: D^3 for a decision that teaches any.
        """
        if taught:
            self._terms += self.moved.learner_dim**3
        if not self.is_whole:
            return
        state = self._states.get(name)
        if taught:
            self._teach(name, state, taught)
        (learned_here,) = learned(items).values()
        if learned_here is not None:
            self._states[name] = merged(state, learned_here)

    @property
    def is_whole(self) -> bool:
        """False once that takes too long; then arms begin anew."""
        return self._terms <= MOST_TERMS

    def of(self, name: str) -> Mapping[str, ArmSums] | None:
        """What a learner has taught arms, by their ids; None: it is not known."""
        return self._sums.get(name, {}) if self.is_whole else None

    def _teach(self, name: str, state: LearnerState | None, taught: Sequence[RewardedArm]) -> None:
        sums = ridge_sums.empty(self.moved.learner_dim) if state is None else state.sums
        posterior = self.moved.known(sums)
        if not isinstance(posterior, SignalPosteriors) and self.moved.has_own_unit(posterior.sigma):
            return
        thetas, arm_sums = thetas_of(self.moved, posterior), self._sums.setdefault(name, {})
        for (entry, payload), arm, revision, features in taught:
            if payload.effect is None:
                continue
            # As a token has it.
            expected = (thetas @ features).astype("<f4").tobytes()
            effect = msgspec.structs.replace(payload.effect, expected=expected, arm=arm, revision=revision)
            added = add_entry(arm_sums.get(arm), entry, payload, effect)
            if added is not None:
                arm_sums[arm] = added
