"""What the token of a decision holds for the decision log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from app.services.choosing.rules import NO_RULES
from app.services.choosing.selection import Selection, SelectionRequest
from app.services.formats.logged import Asked, LogPart, asked_bytes

if TYPE_CHECKING:
    from app.services.choosing.choosing import ChooseRequest


def log_part(
    request: ChooseRequest,
    selection_request: SelectionRequest,
    selection: Selection,
    *,
    seed: int,
    group: str | None,
) -> LogPart:
    """All that the row needs besides the decision. Cost: some microseconds, and those of a large request."""
    found, snapshot = selection.hits, selection.snapshot
    numbers = np.asarray(found.scores, "<f8").tobytes()
    if selection.propensities is not None:
        numbers += np.array(selection.propensities, "<f8").tobytes()
    return LogPart(
        selection_request.bandit.record.policy,
        snapshot.learner_version,
        snapshot.catalogue_version,
        numbers,
        seed,
        request.seed is not None,
        None if selection_request.arm_filter is None else snapshot.view.size,
        group,
        _pinned_places(selection_request, selection),
        _asked(request),
    )


def _asked(request: ChooseRequest) -> bytes | None:
    arms, arm_filter, rules = request.arms, request.arm_filter, request.rules
    is_plain = request.k == 1 and not request.exclude and request.event_id is None
    if is_plain and arms is None and arm_filter is None and rules is NO_RULES:
        return None  # as ``asked_bytes`` finds too, of most requests
    return asked_bytes(
        Asked(
            request.k,
            list(request.exclude),
            request.event_id,
            None if arms is None else list(arms),
            None if arm_filter is None else dict(arm_filter.document),
            [(pin.arm, pin.place) for pin in rules.pins],
            [(limit.field, limit.count) for limit in rules.at_most],
        )
    )


def _pinned_places(selection_request: SelectionRequest, selection: Selection) -> list[int]:
    """From 0, in the order of the choice."""
    if not selection_request.rules.pins:
        return []
    pinned = set(selection_request.rules.pinned)
    rows = selection.hits.rows.tolist()
    return [place for place, row in enumerate(rows) if selection.snapshot.view.id_of(row) in pinned]
