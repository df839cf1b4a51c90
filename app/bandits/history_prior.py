"""The first learned prior of a bandit, from the history of its catalogue.

A bandit has one if its prior is learned, and there is neither a context nor ``match``, of which no history
tells anything. Its history is the catalogue's; else, after a move from a catalogue with a history, the mapped
one (``MoveRecord.history``).
"""

from __future__ import annotations

from app.bandits.prior_version import bytes_to_prior, version_of, version_to_bytes
from app.bandits.settings import BanditRecord
from app.bandits.spaces import MoveRecord
from app.records.history_prior import HistoryPriorRecord
from shortlist.linear.learned_prior import LearnedPrior


def first_prior(record: BanditRecord, history: HistoryPriorRecord | None) -> LearnedPrior | None:
    """The prior of a bandit without keys, from its catalogue's history; None: the bandit begins without.

    Cost: O(D^3).
    """
    if history is None or not takes_history(record) or (record.intercept and record.constant is None):
        return None
    return history.prior().first(record.constant if record.intercept else None, signals=record.signal_count)


def takes_history(record: BanditRecord) -> bool:
    return record.prior == "learned" and record.context is None and record.match is None


def begins_with(
    record: BanditRecord, history: HistoryPriorRecord | None, last: MoveRecord | None
) -> LearnedPrior | None:
    """As ``first_prior``, of a bandit whose last move was ``last``; None: the bandit was never moved."""
    if history is not None or last is None or not last.history or not takes_history(record):
        return first_prior(record, history)
    return bytes_to_prior(last.history).of_signals(record.signal_count).learned


def history_to_bytes(history: LearnedPrior) -> bytes:
    """The prior as bytes, to be kept with a move."""
    return version_to_bytes(version_of(1, 0, history))
