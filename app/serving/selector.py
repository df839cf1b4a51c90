"""Who selects the arms of a choice (the policy, the holdout or the caller), and the pins among them.

The holdout is a share of the keys, or of the decisions of a global bandit, that is served without the policy,
to compare with. A unit that is in it stays in it while the share is the same or grows, on every process and
after restarts: the group is a hash of the bandit's name and of the unit, which anybody can compute
(docs/changing.md).

    scope       unit
    per_key     the key
    global      the event_id; without one the seed; without either the id of the decision, which is random
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.settings import HoldoutRule, ServedArms
from app.filtering.filtered_snapshots import no_arms
from app.platform.errors import Invalid
from app.platform.ids import is_in_share
from app.policies.base import Policy, PolicyDependencies
from app.policies.elimination_state import Sets
from app.policies.fixed import BASELINE, CERTAIN, FIXED
from app.policies.registry import POLICIES
from app.policies.selection import Selection, SelectionRequest
from app.policies.uniform import UNIFORM
from app.replication.sync import Sync
from app.serving.request import ChooseRequest
from app.storage.types import LearnerId
from shortlist.types import TopK


def with_pins(request: SelectionRequest, selection: Selection) -> Selection:
    """The selection with the pinned arms in it, scored by their estimated rewards.

    A pin beyond the end of a short list stands at its end. An arm that was deleted meanwhile is left out.
    """
    snapshot, hits = selection.snapshot, selection.hits
    whole = snapshot.arms.plain.whole
    rows, scores = hits.rows.tolist(), hits.scores.tolist()
    propensities = None if selection.propensities is None else list(selection.propensities)
    # from the first place on: each insertion moves everything behind it
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


class Selector:
    """Selects arms, from what this process knows of the store."""

    def __init__(self, dependencies: PolicyDependencies, sync: Sync) -> None:
        self._dependencies = dependencies
        self._sync = sync

    async def select(self, request: SelectionRequest, group: str | None) -> Selection:
        """The arms for a choice of this group. Raises NoArms, Invalid, Unavailable."""
        own, rule = POLICIES[request.bandit.record.policy], request.bandit.record.holdout
        policy: Policy = own if request.arms is None else BASELINE
        if request.rules.diverse is not None and not policy.lists_by_score:
            what = f"the policy {own.name}" if request.arms is None else "a baseline"
            reason = "its lists have propensities, or are not in the order of scores"
            raise Invalid(f"diverse cannot be combined with {what}: {reason}", path=("rules", "diverse"))
        if rule is not None and group == "holdout":
            policy = serving(rule)
        if request.rules.pins:
            await self._check_pins(request)
            if not request.k:
                # Every place is taken. A policy that knows propensities says that they are 1.
                is_known = group is not None or policy.has_propensities
                policy, request = FIXED if is_known else BASELINE, msgspec.structs.replace(request, arms=())
        if not request.bandit.is_settled:
            # There was no arm when it began.
            raise no_arms(request.bandit.catalogue, request.arm_filter, "no arm of the catalogue is eligible")
        selection = await policy.choose(self._dependencies, request)
        if not len(selection.hits.rows) and not request.rules.pins and await self._sync.poll_for_news():
            # Another process may have just written the arms.
            selection = await policy.choose(self._dependencies, request)
        if request.rules.pins:
            selection = with_pins(request, selection)
        if not len(selection.hits.rows):
            what = "no arm of the catalogue is eligible"
            raise no_arms(request.bandit.catalogue, request.arm_filter, what)
        return selection

    async def sets(self, bandit: Bandit, learner: LearnerId) -> Sets:
        """What the policy has left of the arms for a learner. Raises NotFound: it eliminates none."""
        return await POLICIES[bandit.record.policy].sets(self._dependencies, bandit, learner)

    async def _check_pins(self, request: SelectionRequest) -> None:
        """Raise Invalid, naming every pinned arm that is not in the catalogue."""
        catalogue, pinned = request.bandit.catalogue, request.rules.pinned
        missing = await self._sync.missing(catalogue, pinned)
        if missing:
            raise Invalid.many(
                [
                    (("rules", "pin", position, "arm"), "no arm has this id")
                    for position, arm in enumerate(pinned)
                    if arm in missing
                ]
            )
