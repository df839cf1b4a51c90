"""The holdout: a share of the keys, or of the decisions of a global bandit, that the policy does not serve.

Whoever is in it stays in it while the share is the same or grows, on every process and after restarts: the
group is a hash of the bandit's name and of the unit, which anybody can compute again (docs/changing.md).

    scope       unit
    per_key     the key
    global      the event_id; without one the seed; without either the id of the decision, which is random
"""

from __future__ import annotations

from typing import Literal

from app.services.bandits.bandit import Bandit
from app.services.bandits.settings import HoldoutRule, ServedArms
from app.services.bandits.shares import is_in_share
from app.services.choosing.baseline import FIXED
from app.services.choosing.choose_request import ChooseRequest
from app.services.choosing.policy import Policy
from app.services.choosing.uniform import UNIFORM

Group = Literal["policy", "holdout"]


def group_of(bandit: str, unit: str, rule: HoldoutRule) -> Group:
    """The group of a unit. Cost: one HMAC-SHA256, about a microsecond."""
    return "holdout" if is_in_share(bandit.encode(), unit, rule.share) else "policy"


def group_of_choice(bandit: Bandit, request: ChooseRequest, decision_id: str) -> Group | None:
    """None without a holdout, and of a baseline that the caller asked for."""
    rule = bandit.record.holdout
    if rule is None or request.arms is not None:
        return None
    if request.key is not None:
        return group_of(bandit.name, request.key, rule)
    unit = request.event_id or (decision_id if request.seed is None else f"seed {request.seed}")
    return group_of(bandit.name, unit, rule)


def serving(rule: HoldoutRule) -> Policy:
    """How the holdout is served."""
    return FIXED if isinstance(rule.serve, ServedArms) else UNIFORM
