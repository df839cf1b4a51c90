"""Choosing arms: the bandit's policy selects them, and the decision is signed.

For a learner in memory nothing is awaited, except that a search known to be long goes to a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from app.errors import EventUsed, Invalid, NoArms, NotFound, within
from app.filters.filter import Filter, parse
from app.services.bandits.bandits import Bandit
from app.services.bandits.encoding import Numbers32
from app.services.bounded.caller import caller, check
from app.services.bounded.yielding import yield_to_others
from app.services.choosing.baseline import baseline
from app.services.choosing.choice import Choice, ChosenArm, answers, choice_of, record_of
from app.services.choosing.elimination_state import Sets
from app.services.choosing.holdout import Group, group_of, named, serving, unit_of
from app.services.choosing.limits import AtMost
from app.services.choosing.log_part import log_part
from app.services.choosing.pins import with_pins
from app.services.choosing.policies import POLICIES
from app.services.choosing.policy import PolicyDependencies
from app.services.choosing.rules import NO_RULES, Pin, Rules
from app.services.choosing.same_request import digest_of
from app.services.choosing.seeds import draw_seed, generator
from app.services.choosing.selection import Selection, SelectionRequest
from app.services.decision_log.row_buffer import RowBuffer
from app.services.decision_log.shares import is_logged
from app.services.formats.logged import Asked, LogPart
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
from app.services.replicas.sync import Sync
from app.storage.protocol import Events, LearnerId, RowWrite

LOGGED_TOGETHER = 100


@dataclass(frozen=True, slots=True)
class ChooseRequest:
    """What a caller asks of a bandit.

    ``event_id``   the same request for the same event of a key gets the same choice again
    ``activate``   False: the decision can be rewarded once it was activated
    ``arms``       these, in this order, instead of a choice by the policy: a baseline
    ``arm_filter``     which arms are eligible, besides what the bandit demands of all
    ``rules``      arms that stand at given places, and how many may share a value
    ``context``    as it was sent, where the bandit has one
    """

    key: str | None = None
    k: int = 1
    exclude: Sequence[str] = ()
    event_id: str | None = None
    seed: int | None = None
    activate: bool = True
    arms: Sequence[str] | None = None
    arm_filter: Filter | None = None
    rules: Rules = NO_RULES
    context: object = None


@dataclass(frozen=True, slots=True)
class _Made:
    """A choice, and its row in the decision log: None of one that is not logged, or not yet."""

    choice: Choice
    row: RowWrite | None


class Choosing:
    """The decisions of all bandits. ``grouped`` is told the group of each that is logged, for metrics."""

    def __init__(
        self,
        store: Events,
        dependencies: PolicyDependencies,
        signer: TokenSigner,
        decisions: Decisions,
        *,
        sync: Sync,
        token_ttl_ms: int,
        rows: RowBuffer,
        grouped: Callable[[str], None],
    ) -> None:
        self._store = store
        self._rows = rows
        self._grouped = grouped
        self._tools = dependencies
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
        if request.event_id is None:
            learner, context = bandit.learner_for(request.key), bandit.encoded(request.context)
            made = await self._new_choice(bandit, learner, request, context)
        else:
            made = await self._choice(bandit, request)
        if made.row is not None or request.event_id is not None or bandit.record.reward.wait_s is not None:
            await self._log(bandit, [made])
        return made.choice

    async def choose_batch(self, bandit: Bandit, requests: Sequence[ChooseRequest]) -> list[Choice]:
        """``choose`` for each, all or none: an error names the place of its request in the body."""
        made: list[_Made] = []
        for place, request in enumerate(requests):
            await yield_to_others()  # a choice from memory awaits nothing
            check(caller())
            with within(("body", "requests", place)):
                made.append(await self._choice(bandit, request))
        await self._log(bandit, made)
        return [each.choice for each in made]

    async def sets(self, bandit: Bandit, learner: LearnerId) -> Sets:
        """What the policy has left of the arms for a learner. Raises NotFound: it eliminates none."""
        sets = POLICIES[bandit.record.policy].sets
        if sets is None:
            raise NotFound(f"not found: the policy {bandit.record.policy} eliminates no arms")
        return await sets(self._tools, bandit, learner)

    async def again(
        self, bandit: Bandit, decision: Decision, part: LogPart, asked: Asked
    ) -> tuple[SelectionRequest, Selection]:
        """What is selected now for a request of before, from the seed of then; nothing is decided.

        ``bandit``: as it was then. It must not warm up new keys: that would take a slot. Raises NoArms,
        Invalid (a pinned arm is gone), Unavailable.
        """
        key = decision.learner if bandit.record.scope == "per_key" else None
        request = ChooseRequest(
            key,
            asked.k,
            asked.exclude,
            asked.event_id,
            part.seed if part.seeded else None,
            arms=asked.arms,
            arm_filter=None if asked.filter is None else parse(asked.filter),
            rules=Rules([Pin(*pin) for pin in asked.pins], [AtMost(*limit) for limit in asked.at_most]),
        )
        rng = generator(part.seed, bandit.name, key)
        learner, context = decision.identity.learner, decision.encoded_context
        group: Group | None = (
            None if part.group is None else "holdout" if part.group == "holdout" else "policy"
        )
        return await self._selected(bandit, learner, request, context, rng=rng, group=group)

    async def _choice(self, bandit: Bandit, request: ChooseRequest) -> _Made:
        """A new choice, or the one that was made for this event before."""
        learner = bandit.learner_for(request.key)
        context = bandit.encoded(request.context)
        if request.event_id is None:
            return await self._new_choice(bandit, learner, request, context)
        asked = digest_of(request, context)
        kept = await self._store.get_event(learner, request.event_id)
        if kept is None:
            made = await self._new_choice(bandit, learner, request, context)
            record = record_of(made.choice, asked)
            kept = await self._store.put_event(learner, request.event_id, record, ttl_ms=self._token_ttl_ms)
            if kept == record:
                return made
        if not answers(kept, asked):
            message = "this event_id was sent before with another request; a repeat must have the same fields"
            raise EventUsed(message, loc=("body", "event_id"))
        return _made_before(bandit, choice_of(kept))

    async def _new_choice(
        self, bandit: Bandit, learner: LearnerId, request: ChooseRequest, context: Numbers32 | None
    ) -> _Made:
        """Select arms by the bandit's policy, and sign the decision."""
        stale_s = self._sync.stale_s() and await self._sync.confirm()
        decision_id = new_decision_id()
        group = None if bandit.record.holdout is None else _group(bandit, request, decision_id)
        seed = request.seed
        rule = bandit.record.log
        logged = rule is not None and is_logged(decision_id, rule.share)
        if logged and seed is None:
            seed = draw_seed()  # so that the choice can be made again
        rng = self._rng if seed is None else generator(seed, bandit.name, request.key)
        selection_request, selection = await self._selected(
            bandit, learner, request, context, rng=rng, group=group
        )
        ids = list(map(selection.snapshot.view.id_of, selection.hits.rows.tolist()))
        part = None
        if logged and seed is not None:
            part = log_part(request, selection_request, selection, seed=seed, group=group)
            if group is not None:
                self._grouped(group)
        decision = self._decision(
            selection_request, selection, ids, decision_id, part, deferred=not request.activate
        )
        raw = self._signer.sign_raw(decision)
        choice = _answer(selection_request, selection, ids, text_of(raw), group=group, stale_s=stale_s)
        return _Made(choice, None if decision.deferred or part is None else row_of(bandit, decision, raw))

    async def _selected(
        self,
        bandit: Bandit,
        learner: LearnerId,
        request: ChooseRequest,
        context: Numbers32 | None,
        *,
        rng: np.random.Generator,
        group: str | None,
    ) -> tuple[SelectionRequest, Selection]:
        """What the policy, the holdout or the caller selects for a request. Raises NoArms, Invalid."""
        select = _selection_of(bandit, request, group)
        selection_request = SelectionRequest(
            bandit,
            learner,
            request.k - len(request.rules.pins),
            request.exclude,
            request.event_id,
            rng,
            request.arms,
            bandit.arm_filter if request.arm_filter is None else bandit.wanting(request.arm_filter),
            request.rules,
            context,
            request.seed is not None,
        )
        if selection_request.rules.pins:
            await self._check_pins(selection_request)
            if not selection_request.k:
                # Every place is taken. A policy that knows propensities says that they are 1.
                is_known = request.arms is None and POLICIES[bandit.record.policy].propensities
                select = named if is_known or group is not None else baseline
                selection_request = replace(selection_request, arms=())
        selection = await select(self._tools, selection_request)
        if (
            not len(selection.hits.rows)
            and not selection_request.rules.pins
            and await self._sync.poll_for_news()
        ):
            selection = await select(
                self._tools, selection_request
            )  # another process may have just written the arms
        if selection_request.rules.pins:
            selection = with_pins(selection_request, selection)
        if not len(selection.hits.rows):
            raise NoArms("no arm of the catalogue is eligible")
        return selection_request, selection

    async def _check_pins(self, selection_request: SelectionRequest) -> None:
        """Raise Invalid, naming every pinned arm that is not in the catalogue."""
        for is_last in (False, True):
            known = selection_request.bandit.catalogue.index
            missing = [
                place for place, pin in enumerate(selection_request.rules.pins) if pin.arm not in known
            ]
            if not missing:
                return
            if is_last or not await self._sync.poll_for_news():
                break
        places = [(("body", "rules", "pin", place, "arm"), "no arm of this id") for place in missing]
        raise Invalid.many(places)

    def _decision(
        self,
        selection_request: SelectionRequest,
        selection: Selection,
        ids: list[str],
        decision_id: str,
        logged: LogPart | None,
        *,
        deferred: bool,
    ) -> Decision:
        view, rows = selection.snapshot.view, selection.hits.rows.tolist()
        now_ms = time.time_ns() // 1_000_000
        return Decision(
            *selection_request.learner,
            decision_id,
            now_ms,
            now_ms + self._token_ttl_ms,
            ids,
            [view.revision_of(row) for row in rows],
            deferred,
            self._tools.learners.newest_entry(selection_request.learner),
            selection_request.bandit.version.number,
            None if selection_request.context is None else context_to_bytes(selection_request.context),
            logged,
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


def _made_before(bandit: Bandit, choice: Choice) -> _Made:
    """A choice that was made for the event before. Its row may have been lost: it is written again."""
    if bandit.record.log is None:
        return _Made(choice, None)
    raw = raw_of(choice.decision)
    decision = decision_of(raw)
    return _Made(choice, None if decision.deferred else row_of(bandit, decision, raw))


def _answer(
    selection_request: SelectionRequest,
    selection: Selection,
    ids: list[str],
    token: str,
    *,
    group: Group | None,
    stale_s: float,
) -> Choice:
    found, snapshot = selection.hits, selection.snapshot
    columns = [ids, found.scores.tolist()]
    if selection.propensities is not None:
        columns.append(selection.propensities)
    arms = list(map(ChosenArm, *columns))
    if selection_request.rules.pins:
        pinned = set(selection_request.rules.pinned)
        arms = [msgspec.structs.replace(arm, pinned=True) if arm.id in pinned else arm for arm in arms]
    return Choice(
        token,
        arms,
        selection_request.bandit.record.policy,
        snapshot.learner_version,
        snapshot.catalogue_version,
        found.exact,
        round(stale_s, 3) or None,
        None if selection_request.arm_filter is None else snapshot.view.size,
        selection_request.bandit.version.number,
        group,
    )


def _group(bandit: Bandit, request: ChooseRequest, decision_id: str) -> Group | None:
    """The group of a choice; None without a holdout, and of a baseline that the caller asked for."""
    rule = bandit.record.holdout
    if rule is None or request.arms is not None:
        return None
    unit = unit_of(request.key, request.event_id, request.seed, decision_id)
    return group_of(bandit.name, unit, rule)


def _selection_of(
    bandit: Bandit, request: ChooseRequest, group: str | None
) -> Callable[[PolicyDependencies, SelectionRequest], Awaitable[Selection]]:
    """How the arms of a choice are selected."""
    rule = bandit.record.holdout
    if rule is not None and group == "holdout":
        return serving(rule)
    return POLICIES[bandit.record.policy].choose if request.arms is None else baseline
