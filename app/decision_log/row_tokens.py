"""The data of a decision in its row's token: the request, revisions and numbers of its arms."""

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
    """The decision in the token of a row; None for a token of another system."""
    try:
        return decision_of(raw_of(row.decision))
    except (ValueError, msgspec.DecodeError):
        return None


def asked_in(row: Row) -> LoggedRequest | None:
    """The request of a decision, by its token; None: too large to be kept.

    For a token without one, the filter of the row counts, and nothing was excluded.
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
        position: one.features for position, one in enumerate(row.candidates) if one.features is not None
    }
    match = {position: one.match for position, one in enumerate(row.candidates) if one.match is not None}
    numbers, match_numbers = (
        b"".join([np.array(one, dtype="<f4").tobytes() for one in of.values()]) for of in (features, match)
    )
    ids = [candidate.id for candidate in row.candidates]
    return LoggedCandidates(ids, list(features), numbers, [], list(match), match_numbers, match_dim)


def revisions_in(row: Row) -> Mapping[str, int]:
    """The revision of each arm when it was shown, by the token of the decision, if the token has them."""
    decision = decision_in(row)
    return {} if decision is None else dict(zip(decision.arms, decision.revisions, strict=False))


def carried_in(row: Row) -> Mapping[str, NDArray[np.float64]]:
    """The token's numbers of arms, as ``Decision.carried`` has them."""
    decision = decision_in(row)
    if decision is None:
        return {}
    numbers_by_arm = ((arm, decision.carried_at(position)) for position, arm in enumerate(decision.arms))
    return {arm: numbers for arm, numbers in numbers_by_arm if numbers is not None}
