"""Choosing arms: the bandit's policy selects them, and the decision is signed.

For a learner in memory nothing is awaited, except that a search known to be long goes to a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from app.errors import EventUsed, Invalid, NoArms, NotFound, Unavailable, within
from app.filters.filter import none_of, parse
from app.indexes.snapshot import Snapshot
from app.services.bandits.bandits import Bandit
from app.services.bandits.encoding import Numbers32
from app.services.bandits.had import kept_of
from app.services.bandits.settings import BY_ARM
from app.services.bounded.caller import caller, check
from app.services.bounded.long_work import REQUESTS
from app.services.bounded.yielding import yield_to_others
from app.services.choosing.baseline import baseline
from app.services.choosing.choice import (
    Choice,
    ChosenArm,
    DryRun,
    DryRunArm,
    answers,
    choice_of,
    record_of,
)
from app.services.choosing.choose_request import ChooseRequest
from app.services.choosing.elimination_state import Sets
from app.services.choosing.holdout import Group, group_of, named, serving, unit_of
from app.services.choosing.included import described
from app.services.choosing.pins import with_pins
from app.services.choosing.policies import POLICIES
from app.services.choosing.policy import PolicyDependencies, Select
from app.services.choosing.repeats import Repeats, Subject, often, pinned, without
from app.services.choosing.seeds import draw_seed, generator
from app.services.choosing.selection import ReadSnapshot, Selection, SelectionRequest
from app.services.choosing.uncertainty import estimates_and_widths
from app.services.decision_log.decision_log import LoggedChoice
from app.services.decision_log.row_buffer import RowBuffer
from app.services.decision_log.shares import is_logged
from app.services.formats.left_out import NOT_KEPT, NOTHING_BARRED, Barred
from app.services.formats.logged import LoggedRequest, LogPart
from app.services.formats.records import context_to_bytes
from app.services.learning.decisions import Decisions
from app.services.learning.row_writes import row_of
from app.services.learning.tokens import (
    Decision,
    TokenSigner,
    decision_of,
    new_decision_id,
    raw_of,
    text_of,
)
from app.services.quotas.quotas import Quotas
from app.services.quotas.shares import Shares, Taken
from app.services.replicas.sync import Sync
from app.storage.protocol import LearnerId, RowWrite, Store

LOGGED_TOGETHER = 100
KEPT_MORE_MS = 2 * 86_400_000  # what was left out, beyond the rows that name it
MOST_LOGGED_HAD = 50  # arms that a key had too often, in the row of a decision
TRIES = 20  # to choose arms that no quota has used up meanwhile


class _Made(msgspec.Struct, frozen=True):
    """A choice, and its row in the decision log: None of one that is not logged, or not yet.

    By a choice that is new, ``taken``: of quotas; ``shown``: as ``kept_of`` makes it, where repeats count.
    """

    choice: Choice
    row: RowWrite | None
    taken: Taken = ()
    shown: Sequence[tuple[str, str]] = ()


class _Allowed(msgspec.Struct, frozen=True, eq=False):
    """A selection that quotas and repeats let stand, ``request``: as they let it be; and what it counts as.

    ``had``: what the key has had too often.
    """

    selection: Selection
    request: SelectionRequest
    taken: Taken = ()
    shown: Sequence[tuple[str, str]] = ()
    had: Sequence[str] = ()


class Choosing:
    """The decisions of all bandits. ``grouped`` is told the group of each that is logged, for metrics."""

    def __init__(
        self,
        store: Store,
        dependencies: PolicyDependencies,
        signer: TokenSigner,
        decisions: Decisions,
        *,
        sync: Sync,
        token_ttl_ms: int,
        rows: RowBuffer,
        quotas: Quotas,
        repeats: Repeats,
        grouped: Callable[[str], None],
    ) -> None:
        self._store = store
        self._rows = rows
        self._quotas = quotas
        self._repeats = repeats
        self._grouped = grouped
        self._dependencies = dependencies
        self._signer = signer
        self._decisions = decisions
        self._sync = sync
        self._token_ttl_ms = token_ttl_ms
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
            except BaseException:
                await self._give_back(bandit, [made], [request])
                raise
        if made.row is not None or request.event_id is not None or bandit.record.reward.wait_s is not None:
            await self._log(bandit, [made])
        return made.choice

    async def choose_batch(self, bandit: Bandit, requests: Sequence[ChooseRequest]) -> list[Choice]:
        """``choose`` for each, all or none: an error names the position of its request."""
        made: list[_Made] = []
        try:
            for position, request in enumerate(requests):
                await yield_to_others()  # a choice from memory awaits nothing
                check(caller())
                with within(("requests", position)):
                    made.append(await self._choice(bandit, request))
            if any(request.include for request in requests):
                made = await self._described(bandit, made, requests)
        except BaseException:
            await self._give_back(bandit, made, requests)
            raise
        await self._log(bandit, made)
        return [each.choice for each in made]

    async def dry_run(self, bandit: Bandit, request: ChooseRequest) -> DryRun:
        """What ``choose`` would choose now, and why. Nothing is decided, kept, logged or counted.

        Cost: about that of a choice, and d^2 for each arm. Raises as ``choose``, and Invalid for what only a
        decision has.
        """
        if request.event_id is not None:
            raise Invalid("event_id is not used by a dry run: it decides nothing", path=("event_id",))
        if not request.activate:
            raise Invalid("activate is not used by a dry run: it decides nothing", path=("activate",))
        learner, context = bandit.learner_for(request.key), bandit.encoded(request.context)
        bandit = bandit.weighed(request.weights)
        stale_s = self._sync.stale_s() and await self._sync.confirm()
        group = _group(bandit, request, new_decision_id())
        rng = self._rng if request.seed is None else generator(request.seed, bandit.name, request.key)
        selection_request = _selection_request(bandit, learner, request, context, rng, dry_run=True)
        subject = _subject(bandit, learner, request)
        if subject is not None:
            counts, whole = await self._repeats.had(subject, dry_run=True), bandit.catalogue.index.snapshot()
            selection_request = without(selection_request, subject.rule, counts, whole)
        selection_request = _within(self._quotas.shares.get(bandit.uid), selection_request)
        selection = await self._selected(selection_request, group)
        snapshot = selection.snapshot
        arms = await _measured(selection_request, selection)
        if request.include:
            (arms,) = await described(self._store.arms, bandit.catalogue.uid, [arms], [request.include])
        return DryRun(
            arms=arms,
            policy=bandit.record.policy,
            learner_version=snapshot.learner_version,
            catalogue_version=snapshot.catalogue_version,
            exact=selection.hits.exact,
            bandit_version=bandit.version.number,
            stale_s=round(stale_s, 3) or None,
            eligible=_eligible(selection_request, snapshot),
            group=group,
            weights=bandit.weights,
        )

    async def sets(self, bandit: Bandit, learner: LearnerId) -> Sets:
        """What the policy has left of the arms for a learner. Raises NotFound: it eliminates none."""
        sets = POLICIES[bandit.record.policy].sets
        if sets is None:
            raise NotFound(f"not found: the policy {bandit.record.policy} eliminates no arms")
        return await sets(self._dependencies, bandit, learner)

    async def again(
        self, bandit: Bandit, logged: LoggedChoice, part: LogPart, asked: LoggedRequest
    ) -> tuple[SelectionRequest, Selection]:
        """What is selected now for a request of before, from the seed of then; nothing is decided.

        ``bandit``: as it was then. It must not warm up new keys: that would take a slot. Raises NoArms,
        Invalid (a pinned arm is gone), Unavailable.
        """
        decision, barred = logged.decision, logged.row.barred or NOTHING_BARRED
        key = decision.learner if bandit.record.scope == "per_key" else None
        bandit = bandit.weighed(decision.weights)
        request = ChooseRequest.of(asked, key=key, seed=part.seed if part.seeded else None)
        selection_request = _selection_request(
            bandit,
            decision.identity.learner,
            request,
            decision.encoded_context,
            generator(part.seed, bandit.name, key),
            dry_run=True,
        )
        stood = {arm.id for arm in logged.row.arms if arm.pinned}
        pins = [pin for pin in selection_request.rules.pins if pin.arm in stood]
        selection_request = _without(pinned(selection_request, pins), barred)
        return selection_request, await self._selected(selection_request, part.group)

    async def _choice(self, bandit: Bandit, request: ChooseRequest) -> _Made:
        """A new choice, or the one that was made for this event before."""
        learner, context = bandit.learner_for(request.key), bandit.encoded(request.context)
        if request.weights is not None:
            bandit = bandit.weighed(request.weights)
        if request.event_id is None:
            return await self._new_choice(bandit, learner, request, context)
        digest = request.digest(context)
        kept = await self._store.choices.get_event(learner, request.event_id)
        if kept is None:
            try:
                made = await self._new_choice(bandit, learner, request, context)
            except NoArms:  # those that were left may have just been shown for this event
                kept = await self._store.choices.get_event(learner, request.event_id)
                if kept is None:
                    raise
        if kept is None:
            record = record_of(made.choice, digest)
            kept = await self._store.choices.put_event(
                learner, request.event_id, record, ttl_ms=self._token_ttl_ms
            )
            if kept == record:
                return made
            await self._not_shown(bandit, request, made)  # another one was made for the event meanwhile
        if not answers(kept, digest):
            message = "this event_id was sent before with another request; a repeat must have the same fields"
            raise EventUsed(message, path=("event_id",))
        return _made_before(bandit, choice_of(kept))

    async def _described(
        self, bandit: Bandit, made: Sequence[_Made], requests: Sequence[ChooseRequest]
    ) -> list[_Made]:
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
    ) -> _Made:
        """Select arms by the bandit's policy, and sign the decision."""
        stale_s = self._sync.stale_s() and await self._sync.confirm()
        decision_id = new_decision_id()
        group = _group(bandit, request, decision_id)
        seed, rule = request.seed, bandit.record.log
        logged = rule is not None and is_logged(decision_id, rule.share)
        if logged and seed is None:
            seed = draw_seed()  # so that the choice can be made again
        rng = self._rng if seed is None else generator(seed, bandit.name, request.key)
        selection_request = _selection_request(bandit, learner, request, context, rng)
        limits_repeats = bandit.record.repeats is not None or request.visitor is not None
        subject = _subject(bandit, learner, request) if limits_repeats else None
        quotas = self._quotas.shares.get(bandit.uid)
        if quotas is None and subject is None:
            counted = _Allowed(await self._selected(selection_request, group), selection_request)
        else:
            counted = await self._counted(selection_request, group, quotas, subject, decision_id)
        selection, taken, had = counted.selection, counted.taken, counted.had
        snapshot, rows = selection.snapshot, selection.hits.rows.tolist()
        arms = _arms(selection_request, selection, list(map(snapshot.arms.id_of, rows)))
        eligible = _eligible(selection_request, snapshot)
        part = None
        if logged and seed is not None and rule is not None:
            part = LogPart(
                policy=bandit.record.policy,
                learner_version=snapshot.learner_version,
                catalogue_version=snapshot.catalogue_version,
                numbers=_numbers(selection),
                seed=seed,
                seeded=request.seed is not None,
                eligible=eligible,
                group=group,
                pinned=[place for place, arm in enumerate(arms) if arm.pinned],
                asked=request.logged(),
                left_out=_left_out(counted, rule.keep_ms + KEPT_MORE_MS),
                had=list(had) if len(had) <= MOST_LOGGED_HAD else [],
            )
            if group is not None:
                self._grouped(group)
        now_ms = time.time_ns() // 1_000_000
        decision = Decision(
            bandit_uid=learner.bandit_uid,
            learner=learner.name,
            id=decision_id,
            issued_ms=now_ms,
            expires_ms=now_ms + self._token_ttl_ms,
            arms=[arm.id for arm in arms],
            revisions=list(map(snapshot.arms.revision_of, rows)),
            deferred=not request.activate,
            known_entry=self._dependencies.learners.newest_entry(learner),
            bandit_version=bandit.version.number,
            context=None if context is None else context_to_bytes(context),
            logged=part,
            visitor=request.visitor,
            weights=None if bandit.weighing is None else bandit.weights,
        )
        if taken and decision.deferred:
            if quotas is not None:
                await quotas.hold(decision_id, taken, expires_ms=decision.expires_ms)
            taken = ()  # given back when it expires, and by nobody else
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
        )
        row = None if decision.deferred or part is None else row_of(bandit, decision, raw)
        return _Made(choice, row, taken, counted.shown)

    async def _counted(
        self,
        request: SelectionRequest,
        group: str | None,
        quotas: Shares | None,
        subject: Subject | None,
        decision: str,
    ) -> _Allowed:
        """What is selected, as quotas and repeats let it. Raises as ``_selected``, and Unavailable."""
        for _ in range(TRIES):
            state = None if request.rng is self._rng else request.rng.bit_generator.state
            had, allowed, index = list[str](), request, request.bandit.catalogue.index
            if subject is not None:
                counts = await self._repeats.had(subject, dry_run=False)
                had = often(subject.rule, counts)
                allowed = without(request, subject.rule, counts, index.snapshot())
            within_quotas = _within(quotas, allowed)
            selection = await self._selected(within_quotas, group)
            snapshot = selection.snapshot.arms.plain.whole
            rows = selection.hits.rows.tolist()
            taken: Taken | None = () if quotas is None else None
            if quotas is not None and _is_known(request.bandit, snapshot):
                taken = await quotas.take(snapshot, rows)
            if taken is not None:
                shown = list[tuple[str, str]]()
                if subject is not None:
                    shown = kept_of(subject.rule, snapshot, decision, [*map(snapshot.id_of, rows)])
                stands = False
                try:
                    stands = subject is None or await self._repeats.take(subject, shown)
                finally:
                    if quotas is not None and not stands:
                        quotas.give_back(taken)
                if stands:
                    return _Allowed(selection, within_quotas, taken, shown, had)
            if state is not None:
                request.rng.bit_generator.state = state  # as if there had been no other try
        raise Unavailable("quotas or repeats changed faster than a choice could be made")

    async def _give_back(
        self, bandit: Bandit, made: Sequence[_Made], requests: Sequence[ChooseRequest]
    ) -> None:
        """These choices are shown to nobody, but what is kept for its event: that is answered again."""
        for each, request in zip(made, requests, strict=False):
            if request.event_id is None:
                await self._not_shown(bandit, request, each)

    async def _not_shown(self, bandit: Bandit, request: ChooseRequest, made: _Made) -> None:
        """Give back what a choice has taken. A store that is away is not told: then it counts."""
        quotas = self._quotas.shares.get(bandit.uid)
        if quotas is not None:
            quotas.give_back(made.taken)
        subject = _subject(bandit, bandit.learner_for(request.key), request)
        if subject is not None:
            with contextlib.suppress(Unavailable):
                await self._repeats.give_back(subject, made.shown)

    async def _selected(self, request: SelectionRequest, group: str | None) -> Selection:
        """What the policy, the holdout or the caller selects for a request. Raises NoArms, Invalid."""
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
        selection = await select(self._dependencies, request)
        if not len(selection.hits.rows) and not request.rules.pins and await self._sync.poll_for_news():
            # Another process may have just written the arms.
            selection = await select(self._dependencies, request)
        if request.rules.pins:
            selection = with_pins(request, selection)
        if not len(selection.hits.rows):
            raise NoArms("no arm of the catalogue is eligible")
        return selection

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

    async def _log(self, bandit: Bandit, made: Sequence[_Made]) -> None:
        """Keep the decisions that wait for rewards, before anybody sees them, and their rows with them.

        Other rows are written later. A choice that was made for an event before waits as it did by the
        version that made it.
        """
        number, waits = bandit.version.number, bandit.record.reward.wait_s is not None
        choices = [each.choice for each in made if waits or each.choice.bandit_version != number]
        for start in range(0, len(choices), LOGGED_TOGETHER):
            together = choices[start : start + LOGGED_TOGETHER]
            await asyncio.gather(*(self._decisions.log(choice.decision) for choice in together))
        if not waits:
            for each in made:
                if each.row is not None:
                    self._rows.add(each.row)


def _selection_request(
    bandit: Bandit,
    learner: LearnerId,
    request: ChooseRequest,
    context: Numbers32 | None,
    rng: np.random.Generator,
    *,
    dry_run: bool = False,
) -> SelectionRequest:
    return SelectionRequest(
        bandit=bandit,
        learner=learner,
        k=request.k - len(request.rules.pins),
        exclude=request.exclude,
        claim=request.event_id,
        rng=rng,
        arms=request.arms,
        arm_filter=bandit.filter_with(request.arm_filter),
        rules=request.rules,
        context=context,
        seeded=request.seed is not None,
        dry_run=dry_run,
    )


def _without(request: SelectionRequest, barred: Barred) -> SelectionRequest:
    """The request, without what quotas and repeats did not allow."""
    arm_filter = request.arm_filter
    if barred.filters:
        others = none_of([parse(dict(each)) for each in barred.filters])
        arm_filter = others if arm_filter is None else arm_filter.both(others)
    exclude = [*request.exclude, *barred.arms]
    return msgspec.structs.replace(request, arm_filter=arm_filter, exclude=exclude)


def _within(quotas: Shares | None, request: SelectionRequest) -> SelectionRequest:
    """The request, for the arms that quotas leave now. A pinned arm that is used up is left out."""
    if quotas is None:
        return request
    now, whole = quotas.now(), request.bandit.catalogue.index.snapshot()
    rules = request.rules
    pins = now.standing([(pin, whole.table.row_of(pin.arm)) for pin in rules.pins], whole)
    if len(pins) < len(rules.pins):
        left_out, rules = len(rules.pins) - len(pins), replace(rules, pins=pins)
        request = msgspec.structs.replace(request, k=request.k + left_out, rules=rules)
    few = now.few(request.k + len(rules.pins))
    return msgspec.structs.replace(request, quotas=now, few=few)


def _eligible(request: SelectionRequest, snapshot: ReadSnapshot) -> int | None:
    """How many arms the filter let in; None without one, and where that is not known."""
    return None if request.arm_filter is None else snapshot.arms.plain.eligible_count


def _is_known(bandit: Bandit, snapshot: Snapshot) -> bool:
    """Whether the rows of a snapshot are still those of the catalogue."""
    return bandit.catalogue.index.snapshot().table.number == snapshot.table.number


def _subject(bandit: Bandit, learner: LearnerId, request: ChooseRequest) -> Subject | None:
    """Whom the bandit limits repeats for; None: nobody. Raises Invalid: the visitor is of no use."""
    rule, visitor = bandit.record.repeats, request.visitor
    if visitor is not None and (rule is None or bandit.record.scope == "per_key"):
        raise Invalid("visitor goes with a bandit of scope global that has repeats", path=("visitor",))
    if rule is None or (bandit.record.scope == "global" and visitor is None):
        return None
    return Subject(rule, learner if visitor is None else LearnerId(bandit.uid, visitor))


def _left_out(counted: _Allowed, ttl_ms: int) -> str:
    """The arms that quotas left out of a choice that is logged, as its row names them."""
    request, rule = counted.request, counted.request.bandit.record.repeats
    is_list = len(counted.selection.hits.rows) > 1
    is_hard = rule is not None and rule.counts == "shown" and rule.by != BY_ARM and bool(counted.shown)
    if request.few is not None or (is_list and is_hard) or len(counted.had) > MOST_LOGGED_HAD:
        return NOT_KEPT
    return "" if request.quotas is None else request.quotas.left_out(ttl_ms=ttl_ms)


def _made_before(bandit: Bandit, choice: Choice) -> _Made:
    """A choice that was made for the event before. Its row may have been lost: it is written again."""
    if bandit.record.log is None:
        return _Made(choice, None)
    raw = raw_of(choice.decision)
    decision = decision_of(raw)
    return _Made(choice, None if decision.deferred else row_of(bandit, decision, raw))


def _arms(request: SelectionRequest, selection: Selection, ids: list[str]) -> list[ChosenArm]:
    columns = [ids, selection.hits.scores.tolist()]
    if selection.propensities is not None:
        columns.append(selection.propensities)
    arms = list(map(ChosenArm, *columns))
    if not request.rules.pins:
        return arms
    pinned = set(request.rules.pinned)
    return [msgspec.structs.replace(arm, pinned=True) if arm.id in pinned else arm for arm in arms]


async def _measured(request: SelectionRequest, selection: Selection) -> list[DryRunArm]:
    """The arms of a dry run. Raises Unavailable (too much waits already)."""
    snapshot, rows = selection.snapshot, selection.hits.rows
    measure = partial(estimates_and_widths, request.bandit, snapshot, rows)
    estimates, widths = await REQUESTS.run(measure)
    arms = _arms(request, selection, list(map(snapshot.arms.id_of, rows.tolist())))
    return [
        DryRunArm(
            *msgspec.structs.astuple(arm),
            estimate=estimate,
            width=width,
            draw=arm.score if selection.drawn and not arm.pinned else None,
        )
        for arm, estimate, width in zip(arms, estimates.tolist(), widths.tolist(), strict=True)
    ]


def _numbers(selection: Selection) -> bytes:
    """The scores, then the propensities where the policy knows them, as ``LogPart`` has them."""
    numbers = np.asarray(selection.hits.scores, "<f8").tobytes()
    if selection.propensities is not None:
        numbers += np.array(selection.propensities, "<f8").tobytes()
    return numbers


def _group(bandit: Bandit, request: ChooseRequest, decision_id: str) -> Group | None:
    """The group of a choice; None without a holdout, and of a baseline that the caller asked for."""
    rule = bandit.record.holdout
    if rule is None or request.arms is not None:
        return None
    unit = unit_of(request.key, request.event_id, request.seed, decision_id)
    return group_of(bandit.name, unit, rule)
