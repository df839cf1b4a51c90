"""The pipeline of a choice.

    candidates  the arms of the catalogue, or of the request, as the learner sees them
    views       the arms left by each constraint
    ranking     the policy's, of the remaining arms; the holdout, or the caller, may stand in its place
    charges     the list about to be shown is counted by all constraints, or by none: then once more
    decision    signed, and logged: ``choosing.py``

Choices, dry runs and choices made again from the log take their arms from ``Pipeline``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.catalogues.candidates import CandidateArms
from app.filtering.filtered_snapshots import no_arms
from app.platform.answer_memory import hold
from app.platform.errors import Invalid, NoArms, NotFound, Unavailable
from app.policies.base import Chooser, Policy, PolicyDependencies
from app.policies.elimination import EliminationPolicy
from app.policies.elimination_state import Sets
from app.policies.fixed import Baseline, FixedList
from app.policies.registry import POLICIES
from app.policies.uniform import Uniform
from app.replication.sync import Sync
from app.selection.request import ChooseRequest
from app.selection.selection import Selection, SelectionRequest
from app.serving.choice import RankedCandidate
from app.serving.constraints.base import (
    Applied,
    Constraint,
    ConstraintRow,
    Shown,
    View,
    charged,
    combined,
    narrowed,
)
from app.serving.constraints.requested import with_pins
from app.serving.no_arms import refusal
from app.serving.turns import Turns
from app.storage.types import LearnerId

BASELINE, FIXED_LIST, UNIFORM = Baseline(), FixedList(), Uniform()
RANKED_BYTES = 300  # of a candidate in a ranking, with its JSON
TRIES = 100  # to choose arms that no constraint refuses meanwhile, as often as others choose faster


class Allowed(msgspec.Struct, frozen=True, eq=False):
    """A selection within all constraints: ``request`` as left by them, ``applied`` with their charges.

    ``shown``: the charged list; None: no constraint applies.
    """

    selection: Selection
    request: SelectionRequest
    applied: Sequence[Applied] = ()
    shown: Shown | None = None


class Pipeline:
    """Selects arms within the constraints, from what this process knows of the store."""

    def __init__(
        self,
        dependencies: PolicyDependencies,
        sync: Sync,
        constraints: Sequence[ConstraintRow],
        candidates: CandidateArms,
    ) -> None:
        self._dependencies = dependencies
        self._candidates = candidates
        self._sync = sync
        self.constraints = constraints
        self._turns = Turns()

    async def select(
        self,
        choice: ChooseRequest,
        request: SelectionRequest,
        group: str | None,
        decision: str,
        *,
        own_rng: Callable[[], np.random.Generator] | None,
        deferred: bool,
    ) -> Allowed:
        """Select arms, which count as shown by this decision from now on.

        ``request``: the part of ``choice`` for the policy. ``own_rng`` makes its generator, of no other use,
        so the choice can begin again. ``deferred``: shown only if activated later. Raises NoArms, Invalid,
        Unavailable.
        """
        request = await self._within_candidates(choice, request, group)
        constraints = self._applying(choice, request.bandit)
        # without constraints a choice pays nothing for them
        if not constraints:
            return Allowed(await self._selected(request, group), request)
        keys = (constraint.turn_of(choice, request) for constraint in constraints)
        key = next(filter(None, keys), None)
        async with self._turns.of(key):
            for number in range(TRIES):
                # Of a hundred choices at once with the same best arm, whose quota has one left, each would
                # else begin again a hundred times.
                async with self._turns.of(LearnerId("", request.bandit.uid) if number > 1 else None):
                    # Anew in each try: what refused the last one is known to its view now.
                    left, applied = await narrowed(constraints, choice, request)
                    try:
                        selection = await self._selected(left, group, applied)
                    except NoArms:
                        if number or key is None:
                            raise
                        # Another process may have erased what this one remembers of the key.
                        for constraint in constraints:
                            constraint.forget(key)
                    else:
                        all_arms, rows = selection.snapshot.arms.plain.whole, selection.hits.rows.tolist()
                        shown = Shown(left, all_arms, rows, decision, deferred)
                        if await charged(applied, shown):
                            return Allowed(selection, left, applied, shown)
                if own_rng is not None:  # as if there had been no other try
                    request = msgspec.structs.replace(request, rng=own_rng())
        raise Unavailable("quotas or what the key was shown changed too often meanwhile; try again")

    async def preview(
        self, choice: ChooseRequest, request: SelectionRequest, group: str | None
    ) -> tuple[SelectionRequest, Selection]:
        """The selection which ``select`` would make now, and its request within all constraints. ``request``:
        a dry run's.
        """
        request = await self._within_candidates(choice, request, group)
        left, applied = await narrowed(self._applying(choice, request.bandit), choice, request)
        return left, await self._selected(left, group, applied)

    async def remade(
        self, choice: ChooseRequest, request: SelectionRequest, group: str | None, logged: View
    ) -> tuple[SelectionRequest, Selection]:
        """``preview`` of a choice made before. ``logged``: the view of counting constraints of then."""
        request = await self._within_candidates(choice, request, group)
        constraints = self._applying(choice, request.bandit)
        left, _ = await narrowed(
            [constraint for constraint in constraints if not constraint.counts], choice, request
        )
        left = combined(left, logged)
        return left, await self._selected(left, group)

    async def ranking(
        self, request: SelectionRequest, selection: Selection, group: str | None, rng: np.random.Generator
    ) -> list[RankedCandidate]:
        """All candidates of a request, of which ``selection`` was made, the largest score first.

        ``rng``: repeats the draws of the selection. Cost: as a choice of all candidates. Raises Unavailable.
        """
        record, all_arms = request.bandit.record, request.whole
        hold(RANKED_BYTES * all_arms.size)
        # A list of the holdout says nothing of other arms: their estimates do.
        ranker: Policy = UNIFORM
        if group != "holdout" and isinstance(policy := POLICIES[record.policy], Policy):
            ranker = policy
        every = msgspec.structs.replace(
            request,
            k=all_arms.size,
            exclude=(),
            arm_filter=None,
            quotas=None,
            limits=(),
            pins=(),
            diverse=None,
            rng=rng,
            dry_run=True,
        )
        ranked = await ranker.choose(self._dependencies, every)
        first = dict[int, float]()
        if record.holdout is None or record.holdout.serve == "random" or group != "holdout":
            propensities = await ranker.first_propensities(self._dependencies, request, selection.snapshot)
            if propensities is not None:
                first = dict(zip(propensities[0].tolist(), propensities[1].tolist(), strict=True))
        if ranker.has_propensities and (top := [pin.arm for pin in request.pins if pin.place == 1]):
            first = dict.fromkeys(all_arms.rows_of(top).tolist(), 1.0)
        pinned = all_arms.rows_of(request.pinned)
        allowed = {*(await request.first_rows(self._dependencies.filtered)).tolist(), *pinned.tolist()}
        order = np.lexsort((ranked.hits.rows, -ranked.hits.scores))  # equal ones as they were sent
        return [
            RankedCandidate(
                all_arms.id_of(row), score, first.get(row, 0.0) if first else None, row in allowed
            )
            for row, score in zip(
                ranked.hits.rows[order].tolist(), ranked.hits.scores[order].tolist(), strict=True
            )
        ]

    async def agreement(
        self, request: SelectionRequest, selection: Selection, rng: np.random.Generator
    ) -> tuple[bool, float] | None:
        """The agreement of ``selection``, in the caller's order, with the policy's list drawn by ``rng``.

        Whether the first arm is the same, and the common share of the longer list. Pinned arms are in neither
        list. None: no arm is left besides them, or too much waits to rank.
        """
        if not request.k:
            return None
        asked = msgspec.structs.replace(request, arms=None, rng=rng, dry_run=True)
        try:
            ranked = await POLICIES[request.bandit.record.policy].choose(self._dependencies, asked)
        except Unavailable:
            return None  # what is shown does not depend on it
        pinned = set(request.whole.rows_of(request.pinned).tolist())
        shown = [row for row in selection.hits.rows.tolist() if row not in pinned]
        best = ranked.hits.rows.tolist()
        if not shown or not best:
            return None
        return shown[0] == best[0], len({*shown} & {*best}) / max(len(shown), len(best))

    async def _within_candidates(
        self, choice: ChooseRequest, request: SelectionRequest, group: str | None
    ) -> SelectionRequest:
        """The request for the candidates of ``choice`` alone, where it has some.

        Raises Invalid (its policy takes none; its holdout serves them, and there are none), NoArms.
        """
        candidates, bandit = choice.candidates, request.bandit
        is_served = serves_candidates(bandit, group)
        if candidates is None:
            if is_served:
                message = "the holdout of this bandit is served the candidates of the request: name them"
                raise Invalid(message, path=("candidates",))
            return request
        policy, catalogue = POLICIES[bandit.record.policy], bandit.catalogue
        if not policy.takes_candidates:
            reason = f"cannot be combined with the policy {policy.name}: it eliminates arms of the catalogue"
            raise Invalid(f"candidates {reason}", path=("candidates",))
        snapshot = await self._candidates.of(catalogue, candidates)
        # another process may have just written the arms
        if not snapshot.size and await self._sync.poll_for_news():
            snapshot = await self._candidates.of(catalogue, candidates)
        if not snapshot.size:
            raise NoArms("no candidate is an arm of the catalogue: all of them are unknown")
        arms = candidates.ids if is_served else request.arms
        return msgspec.structs.replace(request, candidates=snapshot, arms=arms)

    def is_counted(self, choice: ChooseRequest, bandit: Bandit) -> bool:
        """True if some constraint of a choice counts the shown arms."""
        return any(constraint.counts for constraint in self._applying(choice, bandit))

    def _applying(self, choice: ChooseRequest, bandit: Bandit) -> Sequence[Constraint]:
        """The constraints of a choice."""
        return [constraint for constraint, applies in self.constraints if applies(choice, bandit)]

    async def sets(self, bandit: Bandit, learner: LearnerId) -> Sets:
        """The arms left by the policy for a learner. Raises NotFound: the policy eliminates none."""
        policy = POLICIES[bandit.record.policy]
        if not isinstance(policy, EliminationPolicy):
            raise NotFound(f"not found: the policy {policy.name} eliminates no arms")
        return await policy.sets(self._dependencies, bandit, learner)

    async def _selected(
        self, request: SelectionRequest, group: str | None, applied: Sequence[Applied] = ()
    ) -> Selection:
        """The arms of ``who_chooses``, pins among them.

        ``applied``: the constraints of the request. Raises NoArms, Invalid, Unavailable.
        """
        chooser, substitute = who_chooses(request, group)
        if not request.bandit.is_settled:
            # There was no arm at the beginning.
            raise no_arms(request.bandit.catalogue, None)
        selection = await chooser.choose(self._dependencies, request)
        if request.pins:
            selection = with_pins(request, selection)
        elif not len(selection.hits.rows):
            # Another process may have just written the arms. A poll costs a round trip, nearly always in vain
            # where arms are found.
            if await self._sync.poll_for_news():
                selection = await chooser.choose(self._dependencies, request)
            if substitute is not None and not len(selection.hits.rows):
                selection = await substitute.choose(self._dependencies, request)
        if not len(selection.hits.rows):
            eligible = selection.snapshot.arms.plain.eligible_count
            raise await refusal(self._dependencies.filtered, request, group, applied, eligible)
        return selection


def serves_candidates(bandit: Bandit, group: str | None) -> bool:
    """True if a choice of this group shows the first candidates of its request."""
    return group == "holdout" and bandit.record.holdout is not None and bandit.record.holdout.is_of_caller


def who_chooses(request: SelectionRequest, group: str | None) -> tuple[Chooser, Chooser | None]:
    """The chooser for a request of this group, and its substitute where no arm is found; None: nobody.

    The caller's baseline, the holdout or the policy chooses. Raises Invalid: ``diverse`` does not go with the
    chooser.
    """
    rule, policy = request.bandit.record.holdout, POLICIES[request.bandit.record.policy]
    is_baseline = request.arms is not None and group is None
    asked: Chooser = BASELINE if is_baseline else policy
    if request.diverse is not None and not asked.lists_by_score:
        what = "a baseline" if is_baseline else f"the policy {policy.name}"
        reason = "its lists have propensities, or are not in the order of scores"
        raise Invalid(f"diverse cannot be combined with {what}: {reason}", path=("rules", "diverse"))
    if serves_candidates(request.bandit, group):
        # What the caller has shown is no draw: even a pinned arm has no propensity there.
        return BASELINE, None
    if not request.k:
        # Pins take every place. A policy with propensities says 1.
        return FIXED_LIST if group is not None or asked.has_propensities else BASELINE, None
    if rule is None or group != "holdout":
        return asked, None
    if not rule.is_list:
        return UNIFORM, None
    return FIXED_LIST, UNIFORM if rule.or_else == "random" else None
