"""The slots of a page: an activation names an event alone, and each slot of an event is a choice of its own.

The ids of all deferred slots so far are stored, by bandit. They are names of places of a page, so they are
few; an activation tries all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from shortlist_service.errors import Invalid
from shortlist_service.storage import EventLogs, split_uid, with_uid

KIND = "personalizer-slots"
MOST = 200  # of a bandit
UID = "0" * 16  # a record never changes, and two processes that store a slot store the same


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """A slot of the pages of a bandit."""

    bandit: str
    slot_id: str


class SlotIds:
    """The ids of slots, by bandit. ``_known``: those that this process has seen stored."""

    def __init__(self, event_logs: EventLogs) -> None:
        self._event_logs = event_logs
        self._ids_known: dict[str, set[str]] = {}

    async def add(self, bandit: str, slot_ids: Iterable[str]) -> None:
        """Store what is not stored yet. Raises Invalid: they would be too many; Unavailable."""
        ids_of_bandit = self._ids_known.setdefault(bandit, set())
        new = [slot_id for slot_id in slot_ids if slot_id not in ids_of_bandit]
        if not new:
            return
        if len({*await self.of(bandit), *new}) > MOST:
            reason = f"deferActivation is possible with at most {MOST} different ids of slots"
            raise Invalid(reason, path=("slots",))
        for slot_id in new:
            slot = Slot(bandit, slot_id)
            await self._event_logs.create(KIND, _name(slot), with_uid(UID, slot))
            ids_of_bandit.add(slot_id)

    async def of(self, bandit: str) -> Sequence[str]:
        """The stored ids of a bandit. Cost: a read for each slot of any bandit."""
        slots = []
        for name in await self._event_logs.names(KIND):
            log = await self._event_logs.read(KIND, name, uid=UID, position=0, count=0)
            if log is not None:
                slots.append(split_uid(log.record, Slot)[1])
        return [slot.slot_id for slot in slots if slot.bandit == bandit]


def _name(slot: Slot) -> str:
    return blake2b(
        f"{slot.bandit}\0{slot.slot_id}".encode("utf-8", "surrogatepass"), digest_size=16
    ).hexdigest()
