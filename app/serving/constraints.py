"""Selecting arms within quotas and frequency caps (``repeats``), and charging what is shown.

Arms that this process knows to be used up are not eligible. What is then selected is charged: to the quotas,
and to what the key has been shown. If another process used it up meanwhile, the charge is refused, this
process knows that from then on, and the choice is made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from app.bandits.bandit import Bandit
from app.bandits.exposure_history import kept_of
from app.caps.quotas import Quotas
from app.caps.rules import Taken
from app.caps.shares import QuotaLedger
from app.platform.deadlines import yield_to_others
from app.platform.errors import Unavailable
from app.policies.rules import Pin
from app.policies.selection import Selection, SelectionRequest
from app.serving.frequency_caps import FrequencyCapKey, Repeats, over_cap, subject_of, without
from app.serving.selector import Selector

TRIES = 20  # to choose arms that no quota has used up meanwhile


class Charges(msgspec.Struct, frozen=True):
    """What a choice was charged. ``taken``: of the bandit's quotas; ``shown``: as ``kept_of`` makes it.

    ``held``: the deferred decision that holds what was taken of quotas, and when it expires in ms.
    """

    bandit_uid: str = ""
    taken: Taken = ()
    held: tuple[str, int] | None = None
    subject: FrequencyCapKey | None = None
    shown: Sequence[tuple[str, str]] = ()


NOTHING = Charges()


class ConstrainedSelection(msgspec.Struct, frozen=True, eq=False):
    """A selection that quotas and frequency caps allow. ``request``: as they restrict it.

    ``had``: further arms that were not eligible: shown too often to the key, or hidden by quotas.
    """

    selection: Selection
    request: SelectionRequest
    spent: Charges = NOTHING
    had: Sequence[str] = ()


class Allowance:
    """Selects arms within quotas and frequency caps."""

    def __init__(self, selector: Selector, quotas: Quotas, repeats: Repeats) -> None:
        self._selector = selector
        self._quotas = quotas
        self._repeats = repeats

    async def select(
        self,
        request: SelectionRequest,
        group: str | None,
        visitor: str | None,
        decision: str,
        *,
        own_rng: bool,
        deferred_ms: int | None = None,
    ) -> ConstrainedSelection:
        """Select arms, which count as shown by this decision from now on.

        ``own_rng``: nothing else draws from the generator of the request, so that it can begin again.
        ``deferred_ms``: when a deferred decision expires. Of quotas it gives back then what it took. Raises
        as ``Selector.select``, and QuotaReached.
        """
        bandit, subject = request.bandit, None
        if bandit.record.repeats is not None or visitor is not None:
            subject = subject_of(bandit, request.learner, visitor)
        quotas = self._quotas.shares.get(bandit.uid)
        # without constraints a choice pays nothing for them
        if quotas is None and subject is None:
            return ConstrainedSelection(await self._selector.select(request, group), request)
        state = request.rng.bit_generator.state if own_rng else None
        for _ in range(TRIES):
            allowed = await self._tried(request, group, subject, decision, deferred_ms)
            if allowed is not None:
                return allowed
            if state is not None:
                request.rng.bit_generator.state = state  # as if there had been no other try
        raise Unavailable("quotas or repeats changed too often while the choice was made; try again")

    async def left(self, request: SelectionRequest, visitor: str | None) -> SelectionRequest:
        """The request of a dry run, for what is left now; nothing is charged. Raises Invalid, Unavailable."""
        bandit = request.bandit
        subject = subject_of(bandit, request.learner, visitor)
        if subject is not None:
            counts, whole = await self._repeats.had(subject, dry_run=True), bandit.catalogue.index.snapshot()
            request = without(request, subject.rule, counts, whole)
        return await within(self._quotas.shares.get(bandit.uid), request, deferred=False, is_bound=False)

    async def give_back(self, spent: Charges) -> None:
        """Refund a choice that is shown to nobody. While the store is away it cannot be: then it counts."""
        quotas = self._quotas.shares.get(spent.bandit_uid)
        if quotas is not None and spent.held is None:
            quotas.give_back(spent.taken)
        elif quotas is not None and spent.held is not None:
            with contextlib.suppress(Unavailable):
                await quotas.drop(spent.held[0], spent.taken, expires_ms=spent.held[1])
        if spent.subject is not None:
            with contextlib.suppress(Unavailable):
                await self._repeats.give_back(spent.subject, spent.shown)

    async def _tried(
        self,
        request: SelectionRequest,
        group: str | None,
        subject: FrequencyCapKey | None,
        decision: str,
        deferred_ms: int | None,
    ) -> ConstrainedSelection | None:
        """One attempt: the charged selection; None if some of it was used up meanwhile."""
        quotas = self._quotas.shares.get(request.bandit.uid)
        had, index = list[str](), request.bandit.catalogue.index
        if subject is not None:
            counts = await self._repeats.had(subject, dry_run=False)
            await yield_to_others()  # one read of the store may bring what many choices waited for
            had = over_cap(subject.rule, counts)
            request = without(request, subject.rule, counts, index.snapshot())
        request = await within(quotas, request, deferred=deferred_ms is not None)
        selection = await self._selector.select(request, group)
        if request.quotas is not None:
            had = [*had, *request.quotas.hidden]
        spent = await self._spent(selection, request.bandit, quotas, subject, decision)
        if spent is not None and quotas is not None and deferred_ms is not None and spent.taken:
            return await self._held(
                ConstrainedSelection(selection, request, spent, had), quotas, decision, deferred_ms
            )
        return None if spent is None else ConstrainedSelection(selection, request, spent, had)

    async def _held(
        self, allowed: ConstrainedSelection, quotas: QuotaLedger, decision: str, deferred_ms: int
    ) -> ConstrainedSelection | None:
        """What a deferred decision took is held until it expires; None: it may not hold so much."""
        is_held = False
        try:
            is_held = await quotas.hold(decision, allowed.spent.taken, expires_ms=deferred_ms)
        finally:  # what was taken of quotas is back already, or will be when the decision expires
            if not is_held:
                await self.give_back(msgspec.structs.replace(allowed.spent, taken=()))
        spent = msgspec.structs.replace(allowed.spent, held=(decision, deferred_ms))
        return msgspec.structs.replace(allowed, spent=spent) if is_held else None

    async def _spent(
        self,
        selection: Selection,
        bandit: Bandit,
        quotas: QuotaLedger | None,
        subject: FrequencyCapKey | None,
        decision: str,
    ) -> Charges | None:
        """Charge what is shown to the quotas and then to the frequency cap: all of it, or nothing."""
        whole, rows = selection.snapshot.arms.plain.whole, selection.hits.rows.tolist()
        taken: Taken | None = ()
        if quotas is not None:
            taken = await quotas.take(whole, rows)
        if taken is None:
            return None
        if subject is None:
            return Charges(bandit.uid, taken)
        shown, stands = kept_of(subject.rule, whole, decision, [*map(whole.id_of, rows)]), False
        try:
            stands = await self._repeats.take(subject, shown)
        # also when the store fails or the caller leaves: what is not shown must not count
        finally:
            if quotas is not None and not stands:
                quotas.give_back(taken)
        return Charges(bandit.uid, taken, subject=subject, shown=shown) if stands else None


async def within(
    quotas: QuotaLedger | None, request: SelectionRequest, *, deferred: bool, is_bound: bool = True
) -> SelectionRequest:
    """The request, for the arms that quotas leave now. A pinned arm that is used up is left out.

    ``is_bound``: it takes what is shown, so that what it may take is made sure of.
    """
    if quotas is None:
        return request
    rules, index = request.rules, request.bandit.catalogue.index
    most = request.k + len(rules.pins)
    pins: list[Pin] | None = None
    while pins is None:
        # Arms may come while this awaits. It goes on only with a snapshot whose arms all have known quotas.
        whole = index.snapshot()
        if not quotas.membership.is_current(whole) and not await quotas.membership.ready(whole):
            continue
        if is_bound and most > 1:
            await quotas.stock(most)
        now, pins = quotas.now(), []
        if rules.pins:
            whole = index.snapshot()
            rows = [(pin, whole.table.row_of(pin.arm)) for pin in rules.pins]
            pins = await now.standing(rows, whole, deferred=deferred)
    if len(pins) < len(rules.pins):
        # another arm replaces a pin that is left out
        left_out, rules = len(rules.pins) - len(pins), replace(rules, pins=pins)
        request = msgspec.structs.replace(request, k=request.k + left_out, rules=rules)
    few = quotas.few(request.k + len(rules.pins), deferred=deferred)
    return msgspec.structs.replace(request, quotas=now, few=few)
