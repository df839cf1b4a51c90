"""Filters, exclusions, ``at_most`` and pins: demands of request and bandit, without counting.

    filter      of the bandit and of the request: an arm is eligible if both let it in
    exclude     ids of arms which are not eligible
    distinct    ids of arms which earlier requests of the batch show: not eligible either
    at_most     a rule of the request: at most so many arms of its list share a value of a field
    pin         a rule of the request: an arm stands at a place of the list

A pinned arm need not pass filters, and exclusions do not remove it; quotas and frequency caps do. The policy
chooses for the other places, before pins are put in theirs.
"""

from __future__ import annotations

import msgspec
import numpy as np

from app.platform.errors import Invalid
from app.policies.fixed import CERTAIN
from app.replication.sync import Sync
from app.selection.request import ChooseRequest
from app.selection.selection import Selection, SelectionRequest
from app.serving.constraints.base import Constraint, View
from shortlist.types import TopK


class Filters(Constraint):
    """The filter of the bandit, and the filter of the request."""

    is_in_row = True
    leaves_none = "none matches the filter"

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        return View(arm_filter=request.bandit.filter_with(choice.arm_filter))


class Exclusions(Constraint):
    """Arms excluded by the request."""

    is_in_row = True
    leaves_none = "exclude names all that are left"

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        return View(exclude=choice.exclude)


class DistinctRows(Constraint):
    """Arms shown by earlier requests of a batch with ``distinct``."""

    is_in_row = True
    leaves_none = "distinct leaves none, since the requests before it show all that are left"

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        return View(exclude=choice.shown)


class AtMostRules(Constraint):
    """The rules ``at_most`` of the request."""

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        return View(limits=choice.rules.at_most)


class Pins(Constraint):
    """The pins of the request. ``sync`` finds arms just written by another process."""

    is_in_row = True

    def __init__(self, sync: Sync) -> None:
        self._sync = sync

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        """All of them. Raises Invalid, naming every pinned id which is no arm, or no candidate."""
        pinned = choice.rules.pinned
        if request.candidates is None:
            missing, why = await self._sync.missing(request.bandit.catalogue, pinned), "no arm has this id"
        else:
            missing = {arm for arm in pinned if request.candidates.table.row_of(arm) < 0}
            why = "no candidate has this id"
        if missing:
            raise Invalid.many(
                [
                    (("rules", "pin", position, "arm"), why)
                    for position, arm in enumerate(pinned)
                    if arm in missing
                ]
            )
        return View(pins=choice.rules.pins)


def with_pins(request: SelectionRequest, selection: Selection) -> Selection:
    """The selection with the pinned arms, scored by their estimated rewards.

    A pin beyond the end of a short list stands at its end. An arm deleted meanwhile is left out.
    """
    snapshot, hits = selection.snapshot, selection.hits
    all_arms = snapshot.arms.plain.whole
    rows, scores = hits.rows.tolist(), hits.scores.tolist()
    propensities = None if selection.propensities is None else list(selection.propensities)
    # from the first place on: each insertion moves everything behind it
    for pin in sorted(request.pins, key=lambda pin: pin.place):
        pinned_row = all_arms.rows_of([pin.arm])
        if not len(pinned_row):
            continue
        # By the estimate, whatever the policy draws: nobody chose this arm by a draw.
        (score,) = snapshot.arms.features_of(pinned_row) @ snapshot.posterior.theta
        rows.insert(pin.place - 1, int(pinned_row[0]))
        scores.insert(pin.place - 1, float(score))
        if propensities is not None:
            propensities.insert(pin.place - 1, CERTAIN)
    merged = TopK(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float64), hits.exact)
    return msgspec.structs.replace(selection, hits=merged, propensities=propensities)
