"""What the token of a row's decision says beside the row: the request, and the revisions of its arms."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from app.decision_log.rows import Row
from app.learning.tokens import decision_of, raw_of
from app.records.logged import LoggedRequest, asked_of


def asked_in(row: Row) -> LoggedRequest | None:
    """What the request of a decision asked for, by its token; None: it was too large to be kept.

    Of a token that does not say, the filter of the row counts, and nothing was excluded.
    """
    try:
        logged = decision_of(raw_of(row.decision)).logged
    except (ValueError, msgspec.DecodeError):
        logged = None
    if logged is None:
        return LoggedRequest(filter=None if row.filter is None else dict(row.filter))
    return asked_of(logged.asked)


def revisions_in(row: Row) -> Mapping[str, int]:
    """Which features each arm had when it was shown, by the token of the decision, if it says so."""
    try:
        decision = decision_of(raw_of(row.decision))
    except (ValueError, msgspec.DecodeError):
        return {}
    return dict(zip(decision.arms, decision.revisions, strict=False))
