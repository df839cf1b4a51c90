"""Who selects the arms of a choice: the policy, the holdout or the caller; pinned arms stand among them."""

from __future__ import annotations

import msgspec

from app.errors import Invalid
from app.services.bandits.bandit import Bandit
from app.services.catalogues.filtered_snapshots import no_arms
from app.services.choosing.baseline import BASELINE, FIXED
from app.services.choosing.elimination_state import Sets
from app.services.choosing.holdout import serving
from app.services.choosing.pins import with_pins
from app.services.choosing.policies import POLICIES
from app.services.choosing.policy import Policy, PolicyDependencies
from app.services.choosing.selection import Selection, SelectionRequest
from app.services.replicas.sync import Sync
from app.storage.protocol import LearnerId


class Selector:
    """Selects arms, from what this process has heard of the store."""

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
            raise Invalid(f"diverse does not go with {what}: {reason}", path=("rules", "diverse"))
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
                    (("rules", "pin", position, "arm"), "no arm of this id")
                    for position, arm in enumerate(pinned)
                    if arm in missing
                ]
            )
