"""Choices: decisions made of the selections of ``Pipeline``, signed and logged.

Also for an ``event_id``, which is answered once, and in batches. For a learner in memory nothing is awaited,
unless quotas, frequency caps or an ``event_id`` need the store; a search known to be long goes to a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.spaces import BanditMoved
from app.decision_log.buffer import RowBuffer
from app.learners.effect_pairs import EffectPairs
from app.learners.learned_priors import LearnedPriors
from app.learners.served_effects import ServedEffects
from app.platform.answer_memory import hold
from app.platform.deadlines import caller, check, yield_to_others
from app.platform.errors import EventUsed, Invalid, NoArms, ShortlistError, within
from app.platform.ids import is_logged
from app.platform.metrics import Metrics
from app.records.age_sums import NOTHING_ADDED
from app.records.arm_sums import MOST_PAIRS
from app.records.encoding import Numbers32
from app.records.kept_choice import KeptChoice
from app.records.logged import LogPart
from app.records.logged_candidates import candidates_bytes
from app.records.records import context_to_bytes, pack, unpack
from app.replication.sync import Sync
from app.rewards.decisions import Decisions, row_of
from app.rewards.tokens import Decision, TokenSigner, decision_of, new_decision_id, raw_of, text_of
from app.selection.computing import draw_seed, generator
from app.selection.request import ChooseRequest
from app.selection.selection import Selection
from app.serving.choice import ARM_BYTES, Choice, ChosenArm, arms_of, choice_of, described, kept_choice
from app.serving.constraints.base import (
    Applied,
    LogRecord,
    recorded,
    refund,
)
from app.serving.pipeline import Allowed, Pipeline, serves_candidates
from app.storage.store import Store
from app.storage.types import OF_REQUEST, LearnerId, RowWrite
from shortlist.errors import InvalidArgument

LOGGED_TOGETHER = CHOSEN_TOGETHER = 100
LONG_LIST = 50  # places: about a millisecond, far more than a turn of the loop

T = TypeVar("T")
Refusal = ShortlistError | InvalidArgument
"""Why there is no choice for a request."""


class BatchRequest(NamedTuple):
    """A request of a batch, and its bandit."""

    bandit: Bandit
    request: ChooseRequest


class SignedChoice(msgspec.Struct, frozen=True):
    """A choice of a bandit, its charges, and its row in the decision log: None without one for now."""

    bandit: Bandit
    choice: Choice
    row: RowWrite | None
    charges: Sequence[Applied] = ()

    @property
    def waits(self) -> bool:
        """True if the decision waits for its reward."""
        return self.bandit.record.reward.wait_s is not None


class Choosing:
    """The decisions of all bandits."""

    def __init__(
        self,
        store: Store,
        pipeline: Pipeline,
        signer: TokenSigner,
        decisions: Decisions,
        *,
        priors: LearnedPriors,
        sync: Sync,
        token_ttl_ms: int,
        effects: ServedEffects,
        rows: RowBuffer,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._effects = effects
        self._pairs = EffectPairs(store.effects, metrics)
        self._pipeline = pipeline
        self._signer = signer
        self._decisions = decisions
        self._sync = sync
        self._priors = priors
        self._token_ttl_ms = token_ttl_ms
        self._rows = rows
        self._metrics = metrics
        self._rng = np.random.default_rng()

    async def choose(self, bandit: Bandit, request: ChooseRequest) -> Choice:
        """Choose, and wait for rewards where the bandit does.

        Raises NoArms, Invalid (key against scope, context), EventUsed (the event is of another request),
        Unavailable (a learner missing in memory).
        """
        signed = await self._choice(bandit, request)
        if request.include:
            try:
                (signed,) = await self._described([signed], [request])
            # also when the caller has gone: nobody will see the choice, so the choice must not count
            except BaseException:
                await refund(signed.charges)
                raise
        if signed.row is not None or request.event_id is not None or bandit.record.reward.wait_s is not None:
            await self._log([signed])
        return signed.choice

    async def choose_batch(
        self, asked: Sequence[BatchRequest | Refusal], *, partial: bool = False, distinct: bool = False
    ) -> list[Choice | Refusal]:
        """``choose`` for each, all or none: an error names the position of its request.

        ``partial``: each by itself; then an error stands in its place, as does an error given in place of a
        request. Errors of all choices together, such as of their ``include``, are still errors of all.
        ``distinct``: one after the other, each without the arms shown by those before.
        """
        outcomes: list[SignedChoice | BaseException] = []
        try:
            await self._attempt_all(asked, outcomes, partial=partial, distinct=distinct)
            signed = [outcome for outcome in outcomes if isinstance(outcome, SignedChoice)]
            served = [
                item.request
                for item, outcome in zip(asked, outcomes, strict=True)
                if isinstance(item, BatchRequest) and isinstance(outcome, SignedChoice)
            ]
            if any(request.include for request in served):
                signed = await self._described(signed, served)
        except BaseException:
            charges = [outcome.charges for outcome in outcomes if isinstance(outcome, SignedChoice)]
            # Where nothing was charged, nothing is waited for: what this answer holds is free at once.
            await asyncio.gather(*map(refund, filter(None, charges)))
            raise
        await self._log(signed)
        choices = iter(signed)
        return [
            outcome.with_traceback(None) if isinstance(outcome, Refusal) else next(choices).choice
            for outcome in outcomes
        ]

    async def _attempt_all(
        self,
        asked: Sequence[BatchRequest | Refusal],
        outcomes: list[SignedChoice | BaseException],
        *,
        partial: bool,
        distinct: bool,
    ) -> None:
        """Append a choice for each of these, or the error without one: then raise the error, unless
        ``partial``.
        """
        shown: list[str] = []  # ids that a later request may not show
        together = 1 if distinct else self._chosen_together(asked)
        for start in range(0, len(asked), together):
            of_turn = enumerate(asked[start : start + together], start)
            attempts = [self._attempt(number, item, shown) for number, item in of_turn]
            await _end_all(attempts, outcomes)
            for outcome in outcomes[start:]:
                is_alone = partial and isinstance(outcome, Refusal)
                # After a move the batch is tried again as a whole.
                if isinstance(outcome, BaseException) and (not is_alone or isinstance(outcome, BanditMoved)):
                    raise outcome
                if distinct and isinstance(outcome, SignedChoice):
                    shown += [arm.id for arm in outcome.choice.arms]

    def _chosen_together(self, asked: Sequence[BatchRequest | Refusal]) -> int:
        """The number of a batch's requests which are answered side by side.

        Counted choices wait for the store: then one call counts many of them. The first request of
        each bandit tells.
        """
        first = {item.bandit.uid: item for item in reversed(asked) if isinstance(item, BatchRequest)}
        is_counted = any(self._pipeline.is_counted(item.request, item.bandit) for item in first.values())
        return CHOSEN_TOGETHER if is_counted else 1

    async def _attempt(
        self, number: int, asked: BatchRequest | Refusal, shown: Sequence[str]
    ) -> SignedChoice:
        """The choice for a request of a batch, without the arms ``shown``; its error is of that request."""
        await yield_to_others()  # a choice from memory awaits nothing
        check(caller())
        if not isinstance(asked, BatchRequest):
            raise asked
        with within(("requests", number)):
            return await self._choice(asked.bandit, asked.request.without(shown))

    async def _choice(self, bandit: Bandit, request: ChooseRequest) -> SignedChoice:
        """A new choice, or the one made for this event before."""
        hold(request.k * ARM_BYTES)
        # Simultaneous calls would else be computed in one turn of the loop, hundreds of long lists.
        if request.k >= LONG_LIST:
            await yield_to_others()
        learner, context = bandit.learner_for(request.key), bandit.encoded(request.context)
        if bandit.record.prior == "learned":
            bandit = self._priors.cached(bandit) or await self._priors.serving(bandit)
        if bandit.record.arm_effects == "auto":
            bandit = self._effects.cached(bandit) or await self._effects.serving(bandit)
            check_pairs(bandit, request)
        if request.weights is not None:
            bandit = bandit.weighed(request.weights)
        event = request.event
        if event is None:
            return await self._new_choice(bandit, learner, request, context)
        # Of the encoded context: the same context is often sent in another form, such as with fields in
        # another order.
        digest = request.digest(context)
        # Read before anything is chosen: a repeated request must charge nothing.
        stored = await self._store.choices.get_event(learner, event)
        await yield_to_others()  # one read of the store may bring what many choices waited for
        if stored is None:
            try:
                signed = await self._new_choice(bandit, learner, request, context)
            except NoArms:  # those that were left may have just been shown for this event
                stored = await self._store.choices.get_event(learner, event)
                if stored is None:
                    raise
        if stored is None:
            record = pack(kept_choice(signed.choice, digest))
            # of two choices for one event the first stored one is the answer to both
            stored = await self._store.choices.put_event(learner, event, record, ttl_ms=self._token_ttl_ms)
            if stored == record:
                # The stored choice will be answered again, whoever sees it now: nothing is given back.
                return msgspec.structs.replace(signed, charges=())
            await refund(signed.charges)  # another one was made for the event meanwhile
        kept_choice_of_event = unpack(stored, KeptChoice)
        if kept_choice_of_event.asked != digest:
            message = "this event_id was sent before with another request; a repeat must have the same fields"
            raise EventUsed(message, path=("event_id",))
        return _made_before(bandit, choice_of(kept_choice_of_event))

    async def _described(
        self, signed: Sequence[SignedChoice], requests: Sequence[ChooseRequest]
    ) -> list[SignedChoice]:
        """The choices with what their requests want to come with the arms."""
        uids = [signed_choice.bandit.catalogue.uid for signed_choice in signed]
        lists = [signed_choice.choice.arms for signed_choice in signed]
        replace = msgspec.structs.replace
        return [
            replace(signed_choice, choice=replace(signed_choice.choice, arms=arms))
            for signed_choice, arms in zip(
                signed, await described(self._store.arms, uids, lists, requests), strict=True
            )
        ]

    async def _new_choice(
        self, bandit: Bandit, learner: LearnerId, request: ChooseRequest, context: Numbers32 | None
    ) -> SignedChoice:
        """Select arms by the bandit's policy, and sign the decision."""
        # A process without a poll for a second asks the store first. Without an answer the choice is made all
        # the same, with the age of its knowledge.
        stale_s = self._sync.stale_s() and await self._sync.confirm()
        decision_id = new_decision_id()
        group = request.group(bandit, decision_id)
        seed, rule = request.seed, bandit.record.log
        if rule is not None and not is_logged(decision_id, rule.share):
            rule = None
        if seed is None and (rule is not None or request.ranks):
            seed = draw_seed()  # so that the choice can be made again
        own_rng = None if seed is None else partial(generator, seed, bandit.name, request.key)
        now_ms = time.time_ns() // 1_000_000
        rng = self._rng if own_rng is None else own_rng()
        asked = request.selection(bandit, learner, context, rng, time_ms=now_ms)
        expires_ms = now_ms + self._token_ttl_ms
        allowed = await self._pipeline.select(
            request,
            asked,
            group,
            decision_id,
            own_rng=own_rng,
            deferred=not request.activate,
        )
        selection = allowed.selection
        snapshot, rows = selection.snapshot, selection.hits.rows.tolist()
        ids = list(map(snapshot.arms.id_of, rows))
        revisions = list(map(snapshot.arms.revision_of, rows))
        arms = arms_of(allowed.request, selection, ids)
        unknown, carried, ranking = 0, None, None
        if request.candidates is not None:
            unknown = len(request.candidates.ids) - allowed.request.whole.size
            carried = request.candidates.carried(ids, revisions)
        if request.ranks and own_rng is not None:
            ranking = await self._pipeline.ranking(allowed.request, selection, group, own_rng())
        eligible = None if allowed.request.arm_filter is None else snapshot.arms.plain.eligible_count
        part = None
        if rule is not None and seed is not None:
            agreement = None
            # Beside each logged decision, not one in some: the caller's order is not ranked, so this costs
            # hardly more than a choice of the policy, and the share of the log thins them out.
            if own_rng is not None and serves_candidates(bandit, group):
                agreement = await self._pipeline.agreement(allowed.request, selection, own_rng())
            part = _log_part(
                request, allowed, arms, eligible=eligible, seed=seed, group=group, agreement=agreement
            )
            if group is not None:
                self._metrics.group_decisions.labels(group).inc()
        decision = Decision(
            bandit_uid=learner.bandit_uid,
            learner=learner.name,
            id=decision_id,
            issued_ms=now_ms,
            expires_ms=expires_ms,
            arms=ids,
            revisions=revisions,
            deferred=not request.activate,
            known_entry=snapshot.known_entry,
            bandit_version=bandit.version.number,
            context=None if context is None else context_to_bytes(context),
            logged=part,
            visitor=request.visitor,
            weights=None if bandit.weighing is None else bandit.weights,
            owner=request.owner,
            effects=self._effect_pairs(bandit, selection, ids, now_ms),
            carried=carried,
            places=bandit.places_of_token(len(ids)),
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
            effects_version=bandit.effects_version,
            unknown=unknown,
            ranking=ranking,
        )
        row = None
        if part is not None and not decision.deferred:
            row = row_of(bandit, decision, raw, _logged_candidates(request, allowed))
        return SignedChoice(bandit, choice, row, allowed.applied)

    def _effect_pairs(
        self, bandit: Bandit, selection: Selection, ids: Sequence[str], now_ms: int
    ) -> bytes | None:
        """The token's numbers of the effect and the age of each arm; None where arms learn nothing now."""
        expected = selection.snapshot.expected(selection.hits.rows)
        if expected is None:
            return None
        snapshot, served = selection.snapshot, None
        if snapshot.effects is not None and bandit.weighing is None:
            served = snapshot.effects.worth(snapshot.arms, selection.hits.rows)[:, None]
        elif bandit.effects is not None:
            served = bandit.effects.served(ids, bandit.record.signal_count)
        # An arm of the request has no effect, and learns none.
        if snapshot.arms.plain.whole.is_of_one_request:
            is_own = snapshot.arms.plain.table.revisions[selection.hits.rows] == OF_REQUEST
            expected[is_own] = np.nan
            if served is not None:
                served[is_own] = 0.0
        pairs = self._pairs.of(bandit, expected, served, sigma=snapshot.posterior.sigma)
        return pairs + _ages_of(bandit, selection, now_ms) if bandit.learns_ages else pairs

    async def _log(self, signed: Sequence[SignedChoice]) -> None:
        """Keep the decisions waiting for rewards, before anybody sees them, and their rows with them.

        Other rows are written later. A choice made for an event before waits by the version of then.
        """
        choices = [
            (
                signed_choice.choice.decision,
                b"" if signed_choice.row is None else signed_choice.row.candidates,
            )
            for signed_choice in signed
            if signed_choice.waits
            or signed_choice.choice.bandit_version != signed_choice.bandit.version.number
        ]
        for start in range(0, len(choices), LOGGED_TOGETHER):
            together = choices[start : start + LOGGED_TOGETHER]
            await asyncio.gather(*(self._decisions.log(*choice) for choice in together))
        # a waiting decision was stored together with its row
        for signed_choice in signed:
            if signed_choice.row is not None and not signed_choice.waits:
                self._rows.add(signed_choice.row)


async def _end_all(attempts: Sequence[Coroutine[Any, Any, T]], outcomes: list[T | BaseException]) -> None:
    """Append the outcome of each attempt, also when the caller leaves: their charges must be known."""
    if len(attempts) == 1:  # a task for each would cost a choice from memory a tenth more
        try:
            outcomes.append(await attempts[0])
        except Exception as error:
            outcomes.append(error)
        return
    tasks = [asyncio.create_task(attempt) for attempt in attempts]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()  # nothing where it has ended
        outcomes += await asyncio.gather(*tasks, return_exceptions=True)


def _ages_of(bandit: Bandit, selection: Selection, now_ms: int) -> bytes:
    """How old each arm is, and what of its effect is due to that, as a token has it."""
    came = selection.snapshot.arms.plain.table.came[selection.hits.rows].tolist()
    return (NOTHING_ADDED if bandit.effects is None else bandit.effects.token_ages).of(came, now_ms)


def check_pairs(bandit: Bandit, request: ChooseRequest) -> None:
    """Raise Invalid for a list whose token would be too long, with two numbers of each arm and signal."""
    if request.k * bandit.record.signal_count > MOST_PAIRS:
        most = MOST_PAIRS // bandit.record.signal_count
        raise Invalid(f"must be at most {most} of a bandit with arm_effects and its signals", path=("k",))


def _made_before(bandit: Bandit, choice: Choice) -> SignedChoice:
    """A choice made for the event before. Its row may have been lost, and is written again."""
    if bandit.record.log is None:
        return SignedChoice(bandit, choice, None)
    raw = raw_of(choice.decision)
    decision = decision_of(raw)
    return SignedChoice(bandit, choice, None if decision.deferred else row_of(bandit, decision, raw))


def _log_part(
    request: ChooseRequest,
    allowed: Allowed,
    arms: Sequence[ChosenArm],
    *,
    eligible: int | None,
    seed: int,
    group: str | None,
    agreement: tuple[bool, float] | None,
) -> LogPart:
    """The token's record with which a choice can be made again (``remade``), and its ``agreement``.

    ``arms``: of the answer. ``seed``: of the request, or drawn.
    """
    selection, record = allowed.selection, LogRecord()
    if allowed.shown is not None:
        record = recorded(allowed.applied, allowed.shown)
    numbers = np.asarray(selection.hits.scores, "<f8").tobytes()
    if selection.propensities is not None:
        numbers += np.array(selection.propensities, "<f8").tobytes()
    return LogPart(
        policy=allowed.request.bandit.record.policy,
        learner_version=selection.snapshot.learner_version,
        catalogue_version=selection.snapshot.catalogue_version,
        numbers=numbers,
        seed=seed,
        seeded=request.seed is not None,
        eligible=eligible,
        group=group,
        pinned=[number for number, arm in enumerate(arms) if arm.pinned],
        asked=request.logged(),
        closed=record.closed,
        is_told=record.is_told,
        had=list(record.had),
        prior_version=allowed.request.bandit.prior_version,
        effects_version=allowed.request.bandit.effects_version,
        has_candidates=request.candidates is not None,
        agreement=agreement,
    )


def _logged_candidates(request: ChooseRequest, allowed: Allowed) -> bytes:
    """The candidates of a request, as the row of its decision keeps them."""
    if request.candidates is None:
        return b""
    left = allowed.request
    has_readers = left.arm_filter is not None or left.quotas is not None or left.diverse is not None
    return candidates_bytes(request.candidates.logged(has_readers=has_readers or bool(left.limits)))
