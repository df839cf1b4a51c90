"""Plain types of the store. No file here imports Redis."""

from __future__ import annotations

from app.storage.types.arms import (
    OF_REQUEST,
    ArmChanges,
    ArmWrite,
    Deleted,
    Followed,
    Position,
    StoredArm,
    StoredArms,
    Upserted,
)
from app.storage.types.decisions import (
    UID_LENGTH,
    Activated,
    ArmId,
    DecisionId,
    DefaultWrite,
    Due,
    Exposures,
    LearnerId,
    LoggedReward,
    RowWrite,
    StoredRow,
    StoredRows,
)
from app.storage.types.learners import (
    NOT_DECIDED,
    Appended,
    CarriedWrite,
    DeadLetter,
    FoldedCounts,
    Knew,
    Lag,
    LearnerChanges,
    LogEntry,
    RewardWrite,
    SignalWrite,
    StoredLearner,
    Trimmed,
    entry_order,
)
from app.storage.types.quotas import (
    QuotaAnswer,
    QuotaChange,
    QuotaChanges,
    QuotaCount,
    QuotaEvent,
    QuotasNow,
    QuotaTerms,
    QuotaWindow,
)
from app.storage.types.registry import (
    BanditChange,
    KeptJob,
    MoveWrite,
    Registry,
    StoredEventLog,
    StoredJob,
)
