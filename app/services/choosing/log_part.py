"""What the token of a decision holds for the decision log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from app.services.choosing.ask import Ask, Selection
from app.services.choosing.rules import NO_RULES
from app.services.formats.logged import Asked, LogPart, asked_bytes

if TYPE_CHECKING:
    from app.services.choosing.choosing import ChooseRequest


def log_part(
    request: ChooseRequest, ask: Ask, selection: Selection, *, seed: int, group: str | None
) -> LogPart:
    """All that the row needs besides the decision. Cost: some microseconds, and those of a large request."""
    found, moment = selection.found, selection.moment
    numbers = np.asarray(found.scores, "<f8").tobytes()
    if selection.propensities is not None:
        numbers += np.array(selection.propensities, "<f8").tobytes()
    return LogPart(
        ask.bandit.record.policy,
        moment.learner_version,
        moment.catalogue_version,
        numbers,
        seed,
        request.seed is not None,
        None if ask.wanted is None else moment.view.size,
        group,
        _pinned_places(ask, selection),
        _asked(request),
    )


def _asked(request: ChooseRequest) -> bytes | None:
    arms, wanted, rules = request.arms, request.wanted, request.rules
    is_plain = request.k == 1 and not request.exclude and request.event_id is None
    if is_plain and arms is None and wanted is None and rules is NO_RULES:
        return None  # as ``asked_bytes`` finds too, of most requests
    return asked_bytes(
        Asked(
            request.k,
            list(request.exclude),
            request.event_id,
            None if arms is None else list(arms),
            None if wanted is None else dict(wanted.document),
            [(pin.arm, pin.place) for pin in rules.pins],
            [(limit.field, limit.count) for limit in rules.at_most],
        )
    )


def _pinned_places(ask: Ask, selection: Selection) -> list[int]:
    """From 0, in the order of the choice."""
    if not ask.rules.pins:
        return []
    pinned = set(ask.rules.pinned)
    rows = selection.found.rows.tolist()
    return [place for place, row in enumerate(rows) if selection.moment.view.id_of(row) in pinned]
