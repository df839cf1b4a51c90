"""Who selects the arms of a choice: the policy, the holdout or the caller; pinned arms stand among them."""

from __future__ import annotations

import msgspec

from app.errors import Invalid, NotFound
from app.services.bandits.bandit import Bandit
from app.services.catalogues.filtered_snapshots import no_arms
from app.services.choosing.baseline import baseline
from app.services.choosing.elimination_state import Sets
from app.services.choosing.holdout import named, serving
from app.services.choosing.pins import with_pins
from app.services.choosing.policies import POLICIES
from app.services.choosing.policy import PolicyDependencies, Select
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
        policy, rule = POLICIES[request.bandit.record.policy], request.bandit.record.holdout
        select: Select = policy.choose if request.arms is None else baseline
        if request.rules.diverse is not None and not (policy.diverse and request.arms is None):
            what = f"the policy {policy.name}" if request.arms is None else "a baseline"
            reason = "its lists have propensities, or are not in the order of scores"
            raise Invalid(f"diverse does not go with {what}: {reason}", path=("rules", "diverse"))
        if rule is not None and group == "holdout":
            select = serving(rule)
        if request.rules.pins:
            await self._check_pins(request)
            if not request.k:
                # Every place is taken. A policy that knows propensities says that they are 1.
                is_known = group is not None or (request.arms is None and policy.propensities)
                select, request = named if is_known else baseline, msgspec.structs.replace(request, arms=())
        if not request.bandit.is_settled:
            # There was no arm when it began.
            raise no_arms(request.bandit.catalogue, request.arm_filter, "no arm of the catalogue is eligible")
        selection = await select(self._dependencies, request)
        if not len(selection.hits.rows) and not request.rules.pins and await self._sync.poll_for_news():
            # Another process may have just written the arms.
            selection = await select(self._dependencies, request)
        if request.rules.pins:
            selection = with_pins(request, selection)
        if not len(selection.hits.rows):
            what = "no arm of the catalogue is eligible"
            raise no_arms(request.bandit.catalogue, request.arm_filter, what)
        return selection

    async def sets(self, bandit: Bandit, learner: LearnerId) -> Sets:
        """What the policy has left of the arms for a learner. Raises NotFound: it eliminates none."""
        sets = POLICIES[bandit.record.policy].sets
        if sets is None:
            raise NotFound(f"not found: the policy {bandit.record.policy} eliminates no arms")
        return await sets(self._dependencies, bandit, learner)

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
