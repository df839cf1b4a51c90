"""What the services need of a store, by concern; ``store`` implements it.

Notation
    uid          random identifier of one incarnation of a catalogue or bandit: a name that was
                 deleted and made again gets a new one, so nothing old can be mistaken for it
    revision     number of one version of one arm's features, ascending within a catalogue
    partition    0 <= partition < ``partitions``; a learner belongs to exactly one (``LearnerId.partition``)
    entry id     position in the reward log of a partition: a Redis stream id, "<ms>-<n>"
    watermark    entry id up to which the log has been folded into the states of a partition
    checkpoint   whole state of a learner at some entry
    tail         entries that were folded into a learner since its checkpoint
    dedupe key   names a write: of two writes with the same key only the first takes effect

Consistency: what holds for every method that does not say otherwise
    durable       a write is on the primary when the call returns, and on its disk if that has
                  ``appendfsync always``; a failover to a replica may lose it, since replicas lag behind
    atomic        a write takes effect as a whole or not at all; one that is made in steps says so
    linearizable  calls on one catalogue, campaign or partition, or on the registry, take effect one after
                  the other, each between its start and its end; reads go to the primary
    monotonic     versions, revisions, entry ids and watermarks only grow, unless the store has lost writes
    idempotent    a write that is repeated with the same arguments changes nothing more: a caller whose
                  reply was lost may repeat the call

Between two catalogues, campaigns or partitions no order is promised. A call that cannot reach the store
raises ``Unavailable``; whether its write was made is then not known.
"""

from __future__ import annotations

from typing import Protocol

from app.storage.types.arms import (
    ArmChanges,
    ArmStore,
    ArmWrite,
    Deleted,
    DescribedArm,
    Followed,
    FollowedArms,
    Position,
    StoredArm,
    StoredArms,
    Upserted,
)
from app.storage.types.campaigns import CampaignStore, JobStore, KeptJob, StoredCampaign, StoredJob
from app.storage.types.decisions import (
    Activated,
    Choices,
    DecisionRows,
    DefaultWrite,
    Due,
    Had,
    LoggedReward,
    RowWrite,
    StoredRow,
    StoredRows,
    WaitingDecisions,
)
from app.storage.types.learner_id import UID_LENGTH, DecisionId, LearnerId
from app.storage.types.learners import (
    FoldedCounts,
    Knew,
    LearnerChanges,
    LearnerSideData,
    LearnerStates,
    PriorStore,
    PriorWrite,
    StoredLearner,
)
from app.storage.types.quotas import (
    LEAVES,
    Confirmed,
    Held,
    QuotaChanges,
    QuotaStore,
    QuotaTerms,
    Share,
    ShareAsked,
)
from app.storage.types.registry import (
    KINDS,
    BanditChange,
    Kind,
    Registry,
    RegistryStore,
    Usage,
    WorkerLeases,
    WriteOnce,
)
from app.storage.types.reward_log import (
    Appended,
    DeadLetter,
    Lag,
    LogEntry,
    RewardLog,
    RewardWrite,
    SignalWrite,
    Trimmed,
    entry_order,
)


class Store(Protocol):
    """All that a store does, by concern. Learners are spread over ``partitions`` partitions, for good."""

    partitions: int
    arms: ArmStore
    followed_arms: FollowedArms
    registry: RegistryStore
    rewards: RewardLog
    learners: LearnerStates
    side_data: LearnerSideData
    waiting: WaitingDecisions
    rows: DecisionRows
    choices: Choices
    campaigns: CampaignStore
    quotas: QuotaStore
    jobs: JobStore
    priors: PriorStore
    write_once: WriteOnce
    leases: WorkerLeases
    usage: Usage

    async def ping(self) -> None:
        """Return when the store answers."""

    async def durability(self) -> str:
        """When writes reach the disk: "always", "everysec", "no", "off" (no append-only file), "unknown"."""
        ...

    async def close(self) -> None:
        """Wait for what was asked, then let go of all connections."""
