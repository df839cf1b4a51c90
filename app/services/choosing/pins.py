"""Pinned arms: they stand where they were asked for, and the policy's choices fill the other places."""

from __future__ import annotations

import msgspec
import numpy as np

from app.services.choosing.baseline import CERTAIN
from app.services.choosing.selection import Selection, SelectionRequest
from shortlist.types import TopK


def with_pins(request: SelectionRequest, selection: Selection) -> Selection:
    """The selection with the pinned arms in it, scored by their estimated rewards.

    A pin beyond the end of a short list stands at its end. An arm that was deleted meanwhile is left out.
    """
    snapshot, hits = selection.snapshot, selection.hits
    whole = snapshot.arms.plain.whole
    rows, scores = hits.rows.tolist(), hits.scores.tolist()
    propensities = None if selection.propensities is None else list(selection.propensities)
    for pin in sorted(request.rules.pins, key=lambda pin: pin.place):
        own = whole.rows_of([pin.arm])
        if not len(own):
            continue
        scored = TopK(own, snapshot.arms.features_of(own) @ snapshot.posterior.theta, exact=True)
        estimate = request.bandit.observed(scored)
        rows.insert(pin.place - 1, int(own[0]))
        scores.insert(pin.place - 1, float(estimate.scores[0]))
        if propensities is not None:
            propensities.insert(pin.place - 1, CERTAIN)
    merged = TopK(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float64), hits.exact)
    return msgspec.structs.replace(selection, hits=merged, propensities=propensities)
