"""Quotas as a constraint on choices. What they count stands in ``app.quotas``.

Arms that this process knows to be used up are not eligible. What is selected is taken of the quotas. If
another process used it up meanwhile, that is refused; this process knows it from then on, and the choice
begins again. So no quota is ever exceeded. A deferred choice takes nothing: it counts when it is activated.
"""

from __future__ import annotations

from typing import NamedTuple

from app.policies.request import ChooseRequest
from app.policies.selection import SelectionRequest
from app.quotas.ledger import QuotaLedger, Taken
from app.quotas.quotas import Quotas
from app.quotas.snapshot import QuotaSnapshot
from app.records.left_out import NOT_KEPT
from app.serving.constraints.base import Constraint, LogRecord, Shown, View


class QuotaCharge(NamedTuple):
    """What was taken of the quotas of a bandit. By the time it is given back it may have others."""

    ledger: QuotaLedger
    taken: Taken


class QuotaConstraint(Constraint):
    """The quotas of the bandit."""

    counts = is_in_row = True
    leaves_none = "all that are left have a quota that is used up, or held back by its pace"

    def __init__(self, quotas: Quotas) -> None:
        self._ledgers = quotas.ledgers

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        ledger = self._ledgers.get(request.bandit.uid)
        if ledger is None:
            return View()
        await ledger.members.ready(request.bandit.catalogue.index.snapshot())
        return view_of(ledger, request)

    async def charge(self, view: View, shown: Shown) -> QuotaCharge | tuple[()] | None:
        """Take of the quotas. Awaits nothing while this process has enough. Raises Unavailable."""
        ledger: QuotaLedger | None = view.state
        if ledger is None or shown.deferred:
            return ()
        taken = await ledger.take(shown.whole, shown.rows)
        if taken is None:
            return None
        return QuotaCharge(ledger, taken) if taken.counts else ()

    async def refund(self, charge: QuotaCharge) -> None:
        charge.ledger.give_back(charge.taken)

    def record(self, view: View, charge: object, shown: Shown, ttl_ms: int) -> LogRecord:
        """Which quotas had nothing left. Of a list that took the last of one, that is not known."""
        quotas: QuotaSnapshot | None = view.quotas
        if view.limits:
            return LogRecord(NOT_KEPT)
        return LogRecord("" if quotas is None else quotas.left_out(ttl_ms=ttl_ms))


def view_of(ledger: QuotaLedger, request: SelectionRequest) -> View:
    """What quotas leave now. A pinned arm that is used up is left out."""
    index, places = request.bandit.catalogue.index, request.k + len(request.pins)
    ledger.snapshot_of = index.snapshot
    now, unpinned = ledger.now(), set[str]()
    if request.pins:
        whole = index.snapshot()
        pins = now.eligible_pins([(pin, whole.table.row_of(pin.arm)) for pin in request.pins], whole)
        unpinned = {pin.arm for pin in request.pins} - {pin.arm for pin in pins}
    limit_of_few = ledger.few(places)
    return View(
        # None: then a choice searches as one without quotas, which is much faster than through a mask.
        quotas=None if now.bars_nothing else now,
        limits=() if limit_of_few is None else (limit_of_few,),
        unpinned=unpinned,
        state=ledger,
    )
