"""The request for a choice: its group, its digest (kept for an ``event_id``), and its fields in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import msgspec
import numpy as np

from app.bandits.bandit import Bandit
from app.catalogues.candidates import CandidateList
from app.filters.filter import Filter
from app.records.encoding import Numbers32
from app.records.logged import LoggedRequest, asked_bytes
from app.rewards.events import event_name
from app.selection.holdout import Group, group_of
from app.selection.list_limits import AtMost
from app.selection.rules import Diverse, Pin, Rules
from app.selection.selection import SelectionRequest
from app.storage.types import LearnerId

DIGEST_BYTES = 16
NO_RULES = Rules()


class ChooseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a choice. ``selection`` is its request to the policy.

    ``key``         the key of the learner; None: of a global bandit
    ``k``           number of arms, pinned ones included
    ``exclude``     ids of arms that are not eligible
    ``shown``       ids of arms shown by earlier requests of the batch, not eligible either
    ``event_id``    the same request for the same event of a key gets the same choice again
    ``seed``        of the draws; None: another one each time
    ``activate``    False: the decision is deferred, and can be rewarded after its activation
    ``arms``        these, in this order, instead of a choice by the policy: a baseline
    ``arm_filter``  filter of eligible arms, in addition to the bandit's own
    ``rules``       pins, limits of arms with one value, diversity
    ``context``     as sent, where the bandit has one
    ``include``     additions to the arms of the answer (``choice``)
    ``visitor``     the visitor of a global bandit with a frequency cap
    ``weights``     of signals, over those of the bandit
    ``owner``       the visitor of the pass of the request
    ``candidates``  the only arms of the request, in the catalogue or brought along; None: those of the
                    catalogue
    ``ranks``       all candidates come with the answer, ranked
    """

    key: str | None = None
    k: int = 1
    exclude: Sequence[str] = ()
    shown: Sequence[str] = ()
    event_id: str | None = None
    seed: int | None = None
    activate: bool = True
    arms: Sequence[str] | None = None
    arm_filter: Filter | None = None
    rules: Rules = NO_RULES
    context: object = None
    include: Sequence[str] = ()
    visitor: str | None = None
    weights: Mapping[str, float] | None = None
    owner: str | None = None
    candidates: CandidateList | None = None
    ranks: bool = False

    @property
    def event(self) -> str | None:
        """The name of its event in the store: events with a pass are separate for each visitor."""
        return None if self.event_id is None else event_name(self.event_id, self.owner)

    @property
    def all_excluded(self) -> Sequence[str]:
        """The ids of ``exclude`` and ``shown``."""
        return [*self.exclude, *self.shown]

    def without(self, shown: Sequence[str]) -> ChooseRequest:
        """The request for other arms than these. A pin of one of them is left out, and the policy chooses for
        its place, as for a pin refused by a quota or a cap.
        """
        if not shown:
            return self
        rules, pins = self.rules, [pin for pin in self.rules.pins if pin.arm not in shown]
        if len(pins) < len(rules.pins):
            rules = replace(rules, pins=pins)
        return msgspec.structs.replace(self, shown=list(shown), rules=rules)

    @classmethod
    def of(
        cls,
        asked: LoggedRequest,
        arm_filter: Filter | None,
        *,
        key: str | None = None,
        seed: int | None = None,
        candidates: CandidateList | None = None,
    ) -> ChooseRequest:
        """The request of a logged choice, without its context. ``arm_filter``: the filter of ``asked``."""
        rules = NO_RULES
        if asked.pins or asked.at_most or asked.diverse is not None:
            pins, at_most = [Pin(*pin) for pin in asked.pins], [AtMost(*limit) for limit in asked.at_most]
            rules = Rules(pins, at_most, None if asked.diverse is None else Diverse(*asked.diverse))
        return cls(
            key=key,
            k=asked.k,
            exclude=asked.exclude,
            event_id=asked.event_id,
            seed=seed,
            arms=asked.arms,
            arm_filter=arm_filter,
            rules=rules,
            candidates=candidates,
        )

    def selection(
        self,
        bandit: Bandit,
        learner: LearnerId,
        context: Numbers32 | None,
        rng: np.random.Generator,
        *,
        time_ms: int,
        dry_run: bool = False,
    ) -> SelectionRequest:
        """The request to the policy, before any constraint. ``context``: as encoded."""
        return SelectionRequest(
            bandit=bandit,
            learner=learner,
            k=self.k,
            exclude=(),
            rng=rng,
            time_ms=time_ms,
            arms=self.arms,
            diverse=self.rules.diverse,
            context=context,
            seeded=self.seed is not None,
            dry_run=dry_run,
        )

    def group(self, bandit: Bandit, decision_id: str) -> Group | None:
        """The group of the request: see ``group_of``. None without a holdout, and for a requested
        baseline.
        """
        rule = bandit.record.holdout
        if rule is None or self.arms is not None:
            return None
        if self.key is not None:
            return group_of(bandit.name, self.key, rule)
        # The event first: a repeated request has another decision id, and must be in the same group.
        unit = self.event_id or (decision_id if self.seed is None else f"seed {self.seed}")
        return group_of(bandit.name, unit, rule)

    def logged(self) -> bytes | None:
        """The part of the request in the decision log: the inverse of ``of``, as in ``LogPart``."""
        is_plain = self.k == 1 and not self.exclude and not self.shown and self.event_id is None
        if is_plain and self.arms is None and self.arm_filter is None and self.rules is NO_RULES:
            return None  # as ``asked_bytes`` finds too, of most requests
        diverse = self.rules.diverse
        return asked_bytes(
            LoggedRequest(
                k=self.k,
                exclude=list(self.all_excluded),
                event_id=self.event_id,
                arms=None if self.arms is None else list(self.arms),
                filter=None if self.arm_filter is None else dict(self.arm_filter.document),
                pins=[(pin.arm, pin.place) for pin in self.rules.pins],
                at_most=[(limit.field, limit.count) for limit in self.rules.at_most],
                diverse=None if diverse is None else (diverse.weight, diverse.over),
            )
        )

    def digest(self, context: Numbers32 | None) -> bytes:
        """16 bytes, the same for the same request; ``context``: as encoded.

        The order of exclusions and of the parts of a filter does not matter. Key and event are left out:
        choices are kept by them. Nor is ``include``, which changes no choice. Cost: some microseconds, and a
        millisecond for 10,000 exclusions.
        """
        asked: tuple[object, ...] = (
            self.k,
            sorted(self.all_excluded),
            self.seed,
            self.activate,
            self.arms,
            None if self.arm_filter is None else self.arm_filter.key,
            self.rules.pins,
            self.rules.at_most,
            None if context is None else context.tobytes(),
        )
        if self.rules.diverse is not None:  # else digests stay those of earlier versions
            asked += (self.rules.diverse,)
        if self.visitor is not None:
            asked += (f"visitor {self.visitor}",)
        if self.weights is not None:
            asked += (sorted(self.weights.items()),)
        if self.candidates is not None:
            asked += (self.candidates.identity,)
        return blake2b(msgspec.msgpack.encode(asked), digest_size=DIGEST_BYTES).digest()
