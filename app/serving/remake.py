"""What a token stores so that a choice can be made again from the log, and how it is made again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.settings import BY_ARM
from app.decision_log.reading import LoggedChoice
from app.filters.filter import none_of, parse
from app.policies.computing import generator
from app.policies.selection import Selection, SelectionRequest
from app.records.left_out import NOT_KEPT, NOTHING_BARRED, Barred
from app.records.logged import LoggedRequest, LogPart
from app.serving.choice import ChosenArm
from app.serving.constraints import ConstrainedSelection
from app.serving.frequency_caps import pinned
from app.serving.request import ChooseRequest
from app.serving.selector import Selector

KEPT_MORE_MS = 2 * 86_400_000  # what was left out, beyond the rows that name it
MOST_LOGGED_HAD = 50  # arms that a key had too often, in the row of a decision


def log_part(
    request: ChooseRequest,
    allowed: ConstrainedSelection,
    arms: Sequence[ChosenArm],
    *,
    eligible: int | None,
    seed: int,
    group: str | None,
    keep_ms: int,
) -> LogPart:
    """``arms``: of the answer. ``seed``: of the request, or drawn. ``keep_ms``: how long the row is kept."""
    snapshot = allowed.selection.snapshot
    return LogPart(
        policy=allowed.request.bandit.record.policy,
        learner_version=snapshot.learner_version,
        catalogue_version=snapshot.catalogue_version,
        numbers=_numbers(allowed.selection),
        seed=seed,
        seeded=request.seed is not None,
        eligible=eligible,
        group=group,
        pinned=[place for place, arm in enumerate(arms) if arm.pinned],
        asked=request.logged(),
        left_out=_left_out(allowed, keep_ms + KEPT_MORE_MS),
        had=list(allowed.had) if len(allowed.had) <= MOST_LOGGED_HAD else [],
        prior_version=allowed.request.bandit.prior_version,
    )


def _left_out(allowed: ConstrainedSelection, ttl_ms: int) -> str:
    """The arms that quotas left out, as the row names them."""
    request, rule = allowed.request, allowed.request.bandit.record.repeats
    is_list = len(allowed.selection.hits.rows) > 1
    is_hard = rule is not None and rule.counts == "shown" and rule.by != BY_ARM and bool(allowed.spent.shown)
    if request.few is not None or (is_list and is_hard) or len(allowed.had) > MOST_LOGGED_HAD:
        return NOT_KEPT
    return "" if request.quotas is None else request.quotas.left_out(ttl_ms=ttl_ms)


def _numbers(selection: Selection) -> bytes:
    """The scores, then the propensities where the policy knows them."""
    numbers = np.asarray(selection.hits.scores, "<f8").tobytes()
    if selection.propensities is not None:
        numbers += np.array(selection.propensities, "<f8").tobytes()
    return numbers


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
    """The request, without the arms that quotas and frequency caps blocked then."""
    arm_filter = request.arm_filter
    if barred.filters:
        others = none_of([parse(dict(each)) for each in barred.filters])
        arm_filter = others if arm_filter is None else arm_filter.both(others)
    exclude = [*request.exclude, *barred.arms]
    return msgspec.structs.replace(request, arm_filter=arm_filter, exclude=exclude)
