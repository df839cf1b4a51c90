"""Quotas as a constraint on choices. What they count stands in ``app.exposure_limits``.

Arms of quotas known to be closed are not eligible. The selection is charged. If a quota refuses, this process
knows the quota as closed from then on, and the choice begins again. A deferred choice is not charged, and
counts when activated.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from app.exposure_limits.bandit_quotas import BanditQuotas, QuotaCharge
from app.exposure_limits.quotas import Quotas
from app.filters.fields import Value, ValueKind
from app.selection.list_limits import CappedValues
from app.selection.request import ChooseRequest
from app.selection.selection import SelectionRequest
from app.serving.constraints.base import Constraint, LogRecord, Shown, View


class QuotaRefund(NamedTuple):
    """The charge of a choice. By the time of a refund the bandit may have other quotas."""

    quotas: BanditQuotas
    charge: QuotaCharge


class QuotaConstraint(Constraint):
    """The quotas of the bandit."""

    counts = is_in_row = True
    leaves_none = "all that are left have a quota that is used up, or held back by its pace"

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        quotas = self._quotas.of.get(request.bandit.uid)
        return View() if quotas is None else view_of(quotas, request)

    async def charge(self, view: View, shown: Shown) -> QuotaRefund | tuple[()] | None:
        """Charge the quotas. Raises Unavailable: whether the charge counts is unknown."""
        quotas: BanditQuotas | None = view.state
        if quotas is None or shown.deferred:
            return ()
        charge = await quotas.charge(shown.whole, shown.rows)
        if charge is None:
            return None
        return QuotaRefund(quotas, charge) if charge else ()

    async def refund(self, charge: QuotaRefund) -> None:
        await charge.quotas.refund(charge.charge)

    def record(self, view: View, charge: object, shown: Shown) -> LogRecord:
        """The closed quotas. Incomplete for a list which may take the last of one."""
        closed = None if view.quotas is None else (view.quotas.number, view.quotas.at_ms)
        return LogRecord(closed, is_told=not view.limits)


def view_of(quotas: BanditQuotas, request: SelectionRequest) -> View:
    """The arms left by quotas now. A pinned arm of a closed quota is left out."""
    closed, nearly_closed = quotas.known.closed(), quotas.known.nearly_closed(request.k + len(request.pins))
    unpinned, left = set[str](), defaultdict[str, dict[tuple[ValueKind, Value], int]](dict)
    if request.pins:
        all_arms = request.whole
        pins = closed.eligible_pins(
            [(pin, all_arms.table.row_of(pin.arm)) for pin in request.pins], all_arms, nearly_closed
        )
        unpinned = {pin.arm for pin in request.pins} - {pin.arm for pin in pins}
    for quota, count in nearly_closed.items():
        if quota.value is not None:
            of_field, value = left[quota.value.field], (quota.value.kind, quota.value.value)
            of_field[value] = min(count, of_field.get(value, count))
    return View(
        # None: then a choice searches as one without quotas, which is much faster than through a mask.
        quotas=closed if closed.quotas else None,
        limits=[
            CappedValues(field, [(value, count) for (_, value), count in counts.items()])
            for field, counts in left.items()
        ],
        unpinned=unpinned,
        state=quotas,
    )
