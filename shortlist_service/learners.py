"""What learners and arms are made of: their sums, how parts add up, and how they are stored.

    from shortlist_service.learners import LearnerState, bytes_to_state, merged

    whole = merged(bytes_to_state(one), bytes_to_state(other))

``learned`` is the one function from rewards to learners. ``LearnedPriors`` and ``ServedEffects`` have the
versions of a bandit's prior and arm effects; ``prior_of`` makes one of learners, and ``effects_of`` of sums
of arms, which ``arms_after`` has after some rewards.
"""

from app.bandits.bandit import GLOBAL_LEARNER
from app.bandits.effect_version import EffectVersion
from app.bandits.history_prior import begins_with
from app.bandits.prior_version import PriorVersion, imported
from app.bandits.spaces import SpaceMap, Spaces
from app.fold.fold import States, learned
from app.fold.learner_sums import RewardRows, merged, state_of
from app.learners.effects_of_rows import SumsOfArms, arms_after, effects_of
from app.learners.learned_priors import LearnedPriors
from app.learners.learner_copies import checked_state
from app.learners.prior_fits import prior_of
from app.learners.served_effects import ServedEffects
from app.records.arm_sums import ArmSums
from app.records.log_entries import Item
from app.records.records import LearnerState, bytes_to_state, state_to_bytes

__all__ = [
    "GLOBAL_LEARNER",
    "ArmSums",
    "EffectVersion",
    "Item",
    "LearnedPriors",
    "LearnerState",
    "PriorVersion",
    "RewardRows",
    "ServedEffects",
    "SpaceMap",
    "Spaces",
    "States",
    "SumsOfArms",
    "arms_after",
    "begins_with",
    "bytes_to_state",
    "checked_state",
    "effects_of",
    "imported",
    "learned",
    "merged",
    "prior_of",
    "state_of",
    "state_to_bytes",
]
