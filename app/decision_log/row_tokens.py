"""What the token of a row's decision says beside the row: the request, revisions and numbers of its arms."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.decision_log.rows import Row
from app.records.logged import LoggedRequest, asked_of
from app.records.logged_candidates import LoggedCandidates
from app.rewards.tokens import Decision, decision_of, raw_of


def decision_in(row: Row) -> Decision | None:
    """What the token of a row says; None: nothing, since it is not a token of the service."""
    try:
        return decision_of(raw_of(row.decision))
    except (ValueError, msgspec.DecodeError):
        return None


def asked_in(row: Row) -> LoggedRequest | None:
    """What the request of a decision asked for, by its token; None: it was too large to be kept.

    Of a token that does not say, the filter of the row counts, and nothing was excluded.
    """
    decision = decision_in(row)
    if decision is None or decision.logged is None:
        return LoggedRequest(filter=None if row.filter is None else dict(row.filter))
    return asked_of(decision.logged.asked)


def candidates_in_row(row: Row, match_dim: int) -> LoggedCandidates | None:
    """The candidates of a decision, without documents; None: its request named none, or they are not kept.

    ``match_dim``: of the bandit.
    """
    if not row.candidates:
        return None
    features = {
        place: each.features for place, each in enumerate(row.candidates) if each.features is not None
    }
    match = {place: each.match for place, each in enumerate(row.candidates) if each.match is not None}
    numbers, said = (
        b"".join([np.array(each, dtype="<f4").tobytes() for each in of.values()]) for of in (features, match)
    )
    ids = [candidate.id for candidate in row.candidates]
    return LoggedCandidates(ids, list(features), numbers, [], list(match), said, match_dim)


def revisions_in(row: Row) -> Mapping[str, int]:
    """Which features each arm had when it was shown, by the token of the decision, if it says so."""
    decision = decision_in(row)
    return {} if decision is None else dict(zip(decision.arms, decision.revisions, strict=False))


def carried_in(row: Row) -> Mapping[str, NDArray[np.float64]]:
    """The numbers that the token carries of arms, as ``Decision.carried`` has them."""
    decision = decision_in(row)
    if decision is None:
        return {}
    each = ((arm, decision.carried_at(position)) for position, arm in enumerate(decision.arms))
    return {arm: numbers for arm, numbers in each if numbers is not None}
