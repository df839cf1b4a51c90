"""What learners and arms are made of: their sums, how parts add up, and how they are stored.

from shortlist_service.learners import LearnerState, bytes_to_state, merged

whole = merged(bytes_to_state(one), bytes_to_state(other))
"""

from app.bandits.bandit import GLOBAL_LEARNER
from app.bandits.spaces import SpaceMap, Spaces
from app.learning.learner_sums import RewardRows, merged, state_of
from app.records.arm_sums import ArmSums
from app.records.records import LearnerState, bytes_to_state, state_to_bytes

__all__ = [
    "GLOBAL_LEARNER",
    "ArmSums",
    "LearnerState",
    "RewardRows",
    "SpaceMap",
    "Spaces",
    "bytes_to_state",
    "merged",
    "state_of",
    "state_to_bytes",
]
