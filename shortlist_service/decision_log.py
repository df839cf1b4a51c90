"""The decision log: its rows, and by which terms rewards count.

``RouteDependencies.decision_log`` reads it.
"""

from app.decision_log.reading import DecisionLog, row_of
from app.decision_log.rows import NO_LOG
from app.measuring.outcomes import Terms, counted_rewards
from app.storage.types import StoredRow

__all__ = ["NO_LOG", "DecisionLog", "StoredRow", "Terms", "counted_rewards", "row_of"]
