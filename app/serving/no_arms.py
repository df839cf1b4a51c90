"""Why no arm is eligible for a choice: which constraint left none."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.filtering.filtered_snapshots import FilteredSnapshots, no_arms
from app.platform.errors import NoArms
from app.selection.selection import SelectionRequest
from app.serving.constraints.base import Applied, combined

NONE_IS_ELIGIBLE = "no arm of the catalogue is eligible"


async def refusal(
    filtered: FilteredSnapshots,
    request: SelectionRequest,
    group: str | None,
    applied: Sequence[Applied],
    eligible: int | None,
) -> NoArms:
    """The refusal names the first of the constraints ``applied`` after which no arm was left; none: the
    policy's.

    ``request``: within all of them. ``eligible``: the number of arms left by filters and quotas, if known.
    Cost: O(K) for each constraint. Raises Unavailable.
    """
    catalogue, rule = request.bandit.catalogue, request.bandit.record.holdout
    proposed = request.candidates
    if eligible and group == "holdout" and rule is not None and rule.is_list and rule.or_else != "random":
        detail = (
            f"no arm of the holdout's list is eligible, {eligible:,} others may be: the bandit's holdout can "
            'have "else": "random"'
        )
        return no_arms(catalogue, request.arm_filter, detail)
    # an engine does not tell the number of arms
    if catalogue.resident is not None or proposed is not None:
        left = msgspec.structs.replace(request, arm_filter=None, exclude=(), limits=(), quotas=None)
        if proposed is None and not len(catalogue.index):
            return no_arms(catalogue, None)
        for item in applied:
            left = combined(left, item.view)
            if not await _is_any_left(filtered, left):
                if proposed is not None:
                    text = f"none of the {proposed.size:,} candidates that are known is eligible"
                    return NoArms(f"{text}: {item.constraint.leaves_none}")
                reason = f"{NONE_IS_ELIGIBLE}: {item.constraint.leaves_none}"
                return no_arms(catalogue, left.arm_filter, reason)
    return no_arms(catalogue, request.arm_filter, NONE_IS_ELIGIBLE)


async def _is_any_left(filtered: FilteredSnapshots, request: SelectionRequest) -> bool:
    if not request.exclude and not request.limits:
        return (await request.eligible(filtered)).size > 0
    return len(await request.first_rows(filtered)) > 0
