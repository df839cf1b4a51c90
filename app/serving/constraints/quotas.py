"""Quotas as a constraint on choices. What they count stands in ``app.caps``.

Arms that this process knows to be used up are not eligible. What is selected is taken of the quotas. If
another process used it up meanwhile, that is refused; this process knows it from then on, and the choice
begins again. So no quota is ever exceeded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any

import msgspec

from app.caps.quotas import Quotas
from app.caps.rules import Taken
from app.caps.shares import QuotaLedger
from app.caps.snapshot import QuotaSnapshot
from app.platform.errors import Unavailable
from app.policies.rules import Pin
from app.policies.selection import SelectionRequest
from app.records.left_out import NOT_KEPT
from app.serving.constraints.base import Constraint, ConstraintFields, LogRecord, Shown, View


class QuotaCharge(msgspec.Struct, frozen=True):
    """What was taken of the quotas of a bandit.

    ``held``: the deferred decision that holds it, and when that expires in ms.
    """

    bandit_uid: str
    taken: Taken
    held: tuple[str, int] | None = None


class QuotaConstraint(Constraint):
    """The quotas of the bandit."""

    counts = is_in_row = True

    def __init__(self, quotas: Quotas) -> None:
        self._shares = quotas.shares

    def view(self, choice: ConstraintFields, request: SelectionRequest) -> Coroutine[Any, Any, View]:
        return view_of(self._shares.get(request.bandit.uid), request, deferred=not choice.activate)

    async def charge(self, view: View, shown: Shown) -> QuotaCharge | tuple[()] | None:
        """Take of the quotas. Awaits nothing while this process has enough. Raises Unavailable."""
        quotas: QuotaLedger | None = view.state
        if quotas is None:
            return ()
        taken = await quotas.take(shown.whole, shown.rows)
        if taken is None:
            return None
        return QuotaCharge(shown.request.bandit.uid, taken) if taken.counts else ()

    async def defer(self, charge: QuotaCharge, shown: Shown) -> QuotaCharge | None:
        """Raises QuotaReached: as many deferred decisions wait as may wait."""
        quotas = self._shares.get(charge.bandit_uid)
        if quotas is None or shown.expires_ms is None:
            return charge
        is_held = await quotas.hold(shown.decision, charge.taken, expires_ms=shown.expires_ms)
        return msgspec.structs.replace(charge, held=(shown.decision, shown.expires_ms)) if is_held else None

    async def refund(self, charge: QuotaCharge) -> None:
        quotas = self._shares.get(charge.bandit_uid)
        if quotas is not None and charge.held is None:
            quotas.give_back(charge.taken)
        elif quotas is not None and charge.held is not None:
            with contextlib.suppress(Unavailable):
                await quotas.drop(charge.held[0], charge.taken, expires_ms=charge.held[1])

    def record(self, view: View, charge: object, shown: Shown, ttl_ms: int) -> LogRecord:
        """Which quotas had nothing left. Of a list that took the last of one, that is not known."""
        quotas: QuotaSnapshot | None = view.quotas
        if quotas is None:
            return LogRecord(NOT_KEPT if view.limits else "")
        return LogRecord(NOT_KEPT if view.limits else quotas.left_out(ttl_ms=ttl_ms), quotas.hidden)


async def view_of(quotas: QuotaLedger | None, request: SelectionRequest, *, deferred: bool) -> View:
    """What quotas leave now. A pinned arm that is used up is left out.

    A choice that is no dry run takes what is shown, so that what it may take is made sure of.
    """
    if quotas is None:
        return View()
    index, places = request.bandit.catalogue.index, request.k + len(request.pins)
    pins: list[Pin] | None = None
    while pins is None:
        # Arms may come while this awaits. It goes on only with a snapshot whose arms all have known quotas.
        whole = index.snapshot()
        is_current = quotas.membership.is_current(whole)
        if not is_current:
            quotas.membership.follow(whole)
            if not await quotas.membership.ready(whole):
                continue
        # A dry run takes nothing, so it must not hold anything back from others either.
        if not request.dry_run and places > 1:
            await quotas.stock(places)
        now, pins = quotas.now(), []
        if request.pins:
            # Again: something was awaited since.
            whole = index.snapshot()
            rows = [(pin, whole.table.row_of(pin.arm)) for pin in request.pins]
            pins = await now.standing(rows, whole, deferred=deferred)
    few = quotas.few(places, deferred=deferred) if places > 1 or deferred else None
    return View(
        # None: then a choice searches as one without quotas, which is much faster than through a mask.
        quotas=None if is_current and now.bars_nothing else now,
        limits=() if few is None else (few,),
        unpinned={pin.arm for pin in request.pins} - {pin.arm for pin in pins} if request.pins else (),
        state=quotas,
    )
