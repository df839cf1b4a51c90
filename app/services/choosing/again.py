"""A choice of before, made again: what its request selects now, from the seed of then."""

from __future__ import annotations

import msgspec

from app.filters.filter import none_of, parse
from app.services.bandits.bandit import Bandit
from app.services.choosing.choose_request import ChooseRequest
from app.services.choosing.repeats import pinned
from app.services.choosing.seeds import generator
from app.services.choosing.selection import Selection, SelectionRequest
from app.services.choosing.selector import Selector
from app.services.decision_log.decision_log import LoggedChoice
from app.services.formats.left_out import NOTHING_BARRED, Barred
from app.services.formats.logged import LoggedRequest, LogPart


async def selected_again(
    selector: Selector, bandit: Bandit, logged: LoggedChoice, part: LogPart, asked: LoggedRequest
) -> tuple[SelectionRequest, Selection]:
    """The request of a logged choice, and what it selects now. Nothing is decided.

    ``bandit``: as it was then. It must not warm up new keys: that would take a slot. ``asked``: what the log
    says of the request. Raises NoArms, Invalid (a pinned arm is gone), Unavailable.
    """
    decision, barred = logged.decision, logged.row.barred or NOTHING_BARRED
    key = decision.learner if bandit.record.scope == "per_key" else None
    request = ChooseRequest.of(asked, key=key, seed=part.seed if part.seeded else None).selection(
        bandit.weighed(decision.weights),
        decision.identity.learner,
        decision.encoded_context,
        generator(part.seed, bandit.name, key),
        dry_run=True,
    )
    stood = {arm.id for arm in logged.row.arms if arm.pinned}
    pins = [pin for pin in request.rules.pins if pin.arm in stood]
    request = _without(pinned(request, pins), barred)
    return request, await selector.select(request, part.group)


def _without(request: SelectionRequest, barred: Barred) -> SelectionRequest:
    """The request, without what quotas and repeats did not allow."""
    arm_filter = request.arm_filter
    if barred.filters:
        others = none_of([parse(dict(each)) for each in barred.filters])
        arm_filter = others if arm_filter is None else arm_filter.both(others)
    exclude = [*request.exclude, *barred.arms]
    return msgspec.structs.replace(request, arm_filter=arm_filter, exclude=exclude)
