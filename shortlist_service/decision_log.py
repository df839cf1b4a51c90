"""The decision log: its rows, and by which terms rewards count.

    async for rows in decision_log.pages(bandit, from_ms=None, to_ms=None):
        for row in rows:
            value, was_sent = value_of(row, terms[row.bandit_version])

``RouteDependencies.decision_log`` reads it. ``asked_in`` is what a request asked for, ``revisions_in`` which
features its arms had, ``carried_of`` what requests said of arms. ``entries_of`` rewards are what learners
learn. A log tells of an ``evaluable_policy``; of ``drawn_policy`` draws tell propensities.
"""

from app.decision_log.reading import LATEST_MS, DecisionLog, row_of
from app.decision_log.row_tokens import asked_in, candidates_in_row, revisions_in
from app.decision_log.rows import (
    NO_LOG,
    NOTHING_BARRED,
    Barred,
    LoggedArm,
    LoggedReward,
    Row,
    ThinnedRow,
)
from app.measuring.learned_rows import (
    ShownArms,
    TimedReward,
    carried_of,
    check_contexts,
    counted_in,
    entries_of,
    learner_of,
)
from app.measuring.outcomes import (
    Bounds,
    Terms,
    bounds_of,
    bounds_of_rule,
    counted_rewards,
    terms_by_version,
    terms_of,
    terms_of_rule,
    value_of,
)
from app.policies.log_propensities import drawn_policy, evaluable_policy, no_propensities, unknown_past
from app.records.encoding import Encoding
from app.serving.constraints.base import ConstraintRow
from app.serving.constraints.order import STATELESS
from app.storage.types import StoredRow

__all__ = [
    "LATEST_MS",
    "NOTHING_BARRED",
    "NO_LOG",
    "STATELESS",
    "Barred",
    "Bounds",
    "ConstraintRow",
    "DecisionLog",
    "Encoding",
    "LoggedArm",
    "LoggedReward",
    "Row",
    "ShownArms",
    "StoredRow",
    "Terms",
    "ThinnedRow",
    "TimedReward",
    "asked_in",
    "bounds_of",
    "bounds_of_rule",
    "candidates_in_row",
    "carried_of",
    "check_contexts",
    "counted_in",
    "counted_rewards",
    "drawn_policy",
    "entries_of",
    "evaluable_policy",
    "learner_of",
    "no_propensities",
    "revisions_in",
    "row_of",
    "terms_by_version",
    "terms_of",
    "terms_of_rule",
    "unknown_past",
    "value_of",
]
