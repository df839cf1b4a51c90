"""The holdout: a share of the keys, or of the decisions, that is served without the policy."""

from __future__ import annotations

from typing import Literal

from app.bandits.settings import HoldoutRule
from app.platform.ids import is_in_share

Group = Literal["policy", "holdout"]


def group_of(bandit: str, unit: str, rule: HoldoutRule) -> Group:
    """The group of a unit. Cost: one HMAC-SHA256, about a microsecond.

    The holdout is a share of the keys, or of the decisions of a global bandit, served without the policy, for
    comparison. A unit of the holdout stays there while the share is the same or grows, on every process and
    after restarts: the group is a hash of the bandit's name and of the unit, computable by anybody
    (docs/changing.md).

        scope       unit
        per_key     the key
        global      the event_id; without one the seed; without either the id of the decision, which is random
    """
    return "holdout" if is_in_share(bandit.encode(), unit, rule.share) else "policy"
