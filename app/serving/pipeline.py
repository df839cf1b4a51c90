"""The pipeline of a choice: arms are selected within the constraints, the decision is signed, and logged.

For a learner in memory nothing is awaited, unless quotas, frequency caps or an ``event_id`` need the store; a
search that is known to be long goes to a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.encoding import Numbers32
from app.decision_log.buffer import RowBuffer
from app.learning.decisions import Decisions, row_of
from app.learning.learned_priors import LearnedPriors
from app.learning.learners import Learners
from app.learning.tokens import Decision, TokenSigner, decision_of, new_decision_id, raw_of, text_of
from app.platform.answers import hold
from app.platform.deadlines import caller, check, yield_to_others
from app.platform.errors import EventUsed, NoArms, within
from app.platform.ids import is_logged
from app.policies.computing import draw_seed, generator
from app.records.records import context_to_bytes
from app.replication.sync import Sync
from app.serving.choice import ARM_BYTES, Choice, answers, arms_of, choice_of, described, record_of
from app.serving.constraints import NOTHING, Allowance, Charges
from app.serving.remake import log_part
from app.serving.request import ChooseRequest
from app.serving.selector import group_of_choice
from app.storage.store import Store
from app.storage.types import LearnerId, RowWrite

LOGGED_TOGETHER = 100


class SignedChoice(msgspec.Struct, frozen=True):
    """A choice, what it has taken, and its row in the decision log: None of one that is not logged now."""

    choice: Choice
    row: RowWrite | None
    spent: Charges = NOTHING


class Choosing:
    """The decisions of all bandits. ``grouped`` is told the group of each that is logged, for metrics."""

    def __init__(
        self,
        store: Store,
        learners: Learners,
        allowance: Allowance,
        signer: TokenSigner,
        decisions: Decisions,
        *,
        priors: LearnedPriors,
        sync: Sync,
        token_ttl_ms: int,
        rows: RowBuffer,
        grouped: Callable[[str], None],
    ) -> None:
        self._store = store
        self._learners = learners
        self._allowance = allowance
        self._signer = signer
        self._decisions = decisions
        self._sync = sync
        self._priors = priors
        self._token_ttl_ms = token_ttl_ms
        self._rows = rows
        self._grouped = grouped
        self._rng = np.random.default_rng()

    async def choose(self, bandit: Bandit, request: ChooseRequest) -> Choice:
        """Choose, and wait for rewards where the bandit does.

        Raises NoArms, Invalid (key against scope, context), EventUsed (the event is of another request),
        Unavailable (a learner that is not in memory).
        """
        made = await self._choice(bandit, request)
        if request.include:
            try:
                (made,) = await self._described(bandit, [made], [request])
            # also when the caller has gone: nobody will see the choice, so it must not count
            except BaseException:
                await self._give_back([made], [request])
                raise
        if made.row is not None or request.event_id is not None or bandit.record.reward.wait_s is not None:
            await self._log(bandit, [made])
        return made.choice

    async def choose_batch(self, bandit: Bandit, requests: Sequence[ChooseRequest]) -> list[Choice]:
        """``choose`` for each, all or none: an error names the position of its request."""
        made: list[SignedChoice] = []
        try:
            for position, request in enumerate(requests):
                await yield_to_others()  # a choice from memory awaits nothing
                check(caller())
                with within(("requests", position)):
                    made.append(await self._choice(bandit, request))
            if any(request.include for request in requests):
                made = await self._described(bandit, made, requests)
        except BaseException:
            await self._give_back(made, requests)
            raise
        await self._log(bandit, made)
        return [each.choice for each in made]

    async def _choice(self, bandit: Bandit, request: ChooseRequest) -> SignedChoice:
        """A new choice, or the one that was made for this event before."""
        hold(request.k * ARM_BYTES)
        learner, context = bandit.learner_for(request.key), bandit.encoded(request.context)
        if bandit.record.prior == "learned":
            bandit = self._priors.cached(bandit) or await self._priors.serving(bandit)
        if request.weights is not None:
            bandit = bandit.weighed(request.weights)
        if request.event_id is None:
            return await self._new_choice(bandit, learner, request, context)
        digest = request.digest(context)
        kept = await self._store.choices.get_event(learner, request.event_id)
        await yield_to_others()  # one read of the store may bring what many choices waited for
        if kept is None:
            try:
                made = await self._new_choice(bandit, learner, request, context)
            except NoArms:  # those that were left may have just been shown for this event
                kept = await self._store.choices.get_event(learner, request.event_id)
                if kept is None:
                    raise
        if kept is None:
            record = record_of(made.choice, digest)
            # of two choices for one event the first that is stored is the answer to both
            kept = await self._store.choices.put_event(
                learner, request.event_id, record, ttl_ms=self._token_ttl_ms
            )
            if kept == record:
                return made
            await self._allowance.give_back(made.spent)  # another one was made for the event meanwhile
        if not answers(kept, digest):
            message = "this event_id was sent before with another request; a repeat must have the same fields"
            raise EventUsed(message, path=("event_id",))
        return _made_before(bandit, choice_of(kept))

    async def _described(
        self, bandit: Bandit, made: Sequence[SignedChoice], requests: Sequence[ChooseRequest]
    ) -> list[SignedChoice]:
        """The choices with what their requests want to come with the arms."""
        lists, includes = [each.choice.arms for each in made], [request.include for request in requests]
        replace = msgspec.structs.replace
        return [
            replace(each, choice=replace(each.choice, arms=arms))
            for each, arms in zip(
                made, await described(self._store.arms, bandit.catalogue.uid, lists, includes), strict=True
            )
        ]

    async def _new_choice(
        self, bandit: Bandit, learner: LearnerId, request: ChooseRequest, context: Numbers32 | None
    ) -> SignedChoice:
        """Select arms by the bandit's policy, and sign the decision."""
        # A process that has not polled for a second asks the store first. If that does not answer, the choice
        # is made all the same, and says how old its knowledge is.
        stale_s = self._sync.stale_s() and await self._sync.confirm()
        decision_id = new_decision_id()
        group = group_of_choice(bandit, request, decision_id)
        seed, rule = request.seed, bandit.record.log
        if rule is not None and not is_logged(decision_id, rule.share):
            rule = None
        if rule is not None and seed is None:
            seed = draw_seed()  # so that the choice can be made again
        rng = self._rng if seed is None else generator(seed, bandit.name, request.key)
        asked = request.selection(bandit, learner, context, rng)
        now_ms = time.time_ns() // 1_000_000
        expires_ms = now_ms + self._token_ttl_ms
        allowed = await self._allowance.select(
            asked,
            group,
            request.visitor,
            decision_id,
            own_rng=seed is not None,
            deferred_ms=None if request.activate else expires_ms,
        )
        selection, spent = allowed.selection, allowed.spent
        snapshot, rows = selection.snapshot, selection.hits.rows.tolist()
        ids = list(map(snapshot.arms.id_of, rows))
        arms = arms_of(asked, selection, ids)
        eligible = None if asked.arm_filter is None else snapshot.arms.plain.eligible_count
        part = None
        if rule is not None and seed is not None:
            part = log_part(
                request, allowed, arms, eligible=eligible, seed=seed, group=group, keep_ms=rule.keep_ms
            )
            if group is not None:
                self._grouped(group)
        decision = Decision(
            bandit_uid=learner.bandit_uid,
            learner=learner.name,
            id=decision_id,
            issued_ms=now_ms,
            expires_ms=expires_ms,
            arms=ids,
            revisions=list(map(snapshot.arms.revision_of, rows)),
            deferred=not request.activate,
            known_entry=self._learners.newest_entry(learner),
            bandit_version=bandit.version.number,
            context=None if context is None else context_to_bytes(context),
            logged=part,
            visitor=request.visitor,
            weights=None if bandit.weighing is None else bandit.weights,
        )
        raw = self._signer.sign_raw(decision)
        choice = Choice(
            decision=text_of(raw),
            arms=arms,
            policy=bandit.record.policy,
            learner_version=snapshot.learner_version,
            catalogue_version=snapshot.catalogue_version,
            exact=selection.hits.exact,
            stale_s=round(stale_s, 3) or None,
            eligible=eligible,
            bandit_version=bandit.version.number,
            group=group,
            weights=decision.weights,
            prior_version=None if bandit.record.prior != "learned" else bandit.prior_version,
        )
        row = None if decision.deferred or part is None else row_of(bandit, decision, raw)
        return SignedChoice(choice, row, spent)

    async def _give_back(self, made: Sequence[SignedChoice], requests: Sequence[ChooseRequest]) -> None:
        """These choices are shown to nobody, but what is kept for its event: that is answered again."""
        for each, request in zip(made, requests, strict=False):
            if request.event_id is None:
                await self._allowance.give_back(each.spent)

    async def _log(self, bandit: Bandit, made: Sequence[SignedChoice]) -> None:
        """Keep the decisions that wait for rewards, before anybody sees them, and their rows with them.

        Other rows are written later. A choice that was made for an event before waits as it did by the
        version that made it.
        """
        number, waits = bandit.version.number, bandit.record.reward.wait_s is not None
        choices = [each.choice for each in made if waits or each.choice.bandit_version != number]
        for start in range(0, len(choices), LOGGED_TOGETHER):
            together = choices[start : start + LOGGED_TOGETHER]
            await asyncio.gather(*(self._decisions.log(choice.decision) for choice in together))
        # a decision that waits was stored together with its row
        if not waits:
            for each in made:
                if each.row is not None:
                    self._rows.add(each.row)


def _made_before(bandit: Bandit, choice: Choice) -> SignedChoice:
    """A choice that was made for the event before. Its row may have been lost: it is written again."""
    if bandit.record.log is None:
        return SignedChoice(choice, None)
    raw = raw_of(choice.decision)
    decision = decision_of(raw)
    return SignedChoice(choice, None if decision.deferred else row_of(bandit, decision, raw))
