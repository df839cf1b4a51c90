"""What the token of a decision holds so that the choice can be explained, and made again, by the log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.services.bandits.settings import BY_ARM
from app.services.choosing.allowance import Allowed
from app.services.choosing.choice import ChosenArm
from app.services.choosing.choose_request import ChooseRequest
from app.services.choosing.selection import Selection
from app.services.formats.left_out import NOT_KEPT
from app.services.formats.logged import LogPart

KEPT_MORE_MS = 2 * 86_400_000  # what was left out, beyond the rows that name it
MOST_LOGGED_HAD = 50  # arms that a key had too often, in the row of a decision


def log_part(
    request: ChooseRequest,
    allowed: Allowed,
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


def _left_out(allowed: Allowed, ttl_ms: int) -> str:
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
