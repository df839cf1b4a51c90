"""Catalogues which follow another one: its writes are repeated here, encoded as an embedding.

For each catalogue one process of all, the holder of a lease, reads the changed arms of the followed
catalogue, in the order of their changes, writes their present state, and notes its position. Writing an arm
twice changes nothing, so after a kill the next process goes on from the last note. Where more has changed
than the log of changes holds, all arms are compared.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shortlist_embeddings.encoding import BehaviourEncoding
from shortlist_service.catalogues import (
    BehaviourRecord,
    Catalogue,
    Catalogues,
    bytes_to_vector,
    vector_to_bytes,
)
from shortlist_service.errors import NotFound, Unavailable
from shortlist_service.metrics import Counter, Metrics
from shortlist_service.storage import ArmWrite, Position, Store
from shortlist_service.work import BackgroundWork, repeat

TAKEN = "shortlist_followed_arms", "Arms taken over from catalogues that others follow."
EVERY_S, IDLE_S = 0.05, 0.2
LEASE_MS, RENEW_S = 1_500, 0.25  # after a kill the next process begins when the lease has ended
PAGE_ARMS, PAGE_NUMBERS = 250, 1 << 17  # are taken over well within a lease
SOURCE = "source"  # what a position is of: the store asks followers for such a name


@dataclass(slots=True)
class _Copy:
    """The work of this process for one catalogue. ``pending``: arms changed up to ``target``."""

    encoding: BehaviourEncoding
    position: int  # version of the followed catalogue that this one has
    renew_at: float
    pending: list[str] = field(default_factory=list)
    target: int = 0


class CatalogueFollowing(BackgroundWork):
    """Follows for all catalogues that this process serves. ``owner``: names it among all processes."""

    def __init__(
        self, store: Store, catalogues: Catalogues, metrics: Metrics, *, owner: str | None = None
    ) -> None:
        self._store = store
        self._catalogues = catalogues
        self._taken = metrics.of_plugin(Counter, *TAKEN)
        self._owner = owner or secrets.token_hex(8)
        self._copies: dict[str, _Copy] = {}  # by uid

    async def run(self) -> None:
        """Follow until cancelled; then leave the work to others at once."""
        try:
            await repeat(self.round, every_s=EVERY_S, idle_s=IDLE_S, waits="arms are not taken over")
        finally:
            for uid in self._copies:
                with contextlib.suppress(Unavailable):
                    await self._store.followed_arms.leave(uid, self._owner)

    async def round(self) -> bool:
        """Take over some arms of each catalogue; False: there was nothing to do."""
        following = self._catalogues.followers
        for uid in self._copies.keys() - following.keys():
            del self._copies[uid]
        did_something = False
        for catalogue in following.values():
            try:
                did_something |= await self._step(catalogue)
            except NotFound:  # it was deleted meanwhile
                self._copies.pop(catalogue.uid, None)
            except BaseException:
                # Nobody knows what was written: the next round begins again at what is noted.
                self._copies.pop(catalogue.uid, None)
                raise
        return did_something

    async def _step(self, catalogue: Catalogue) -> bool:
        record = catalogue.record.behaviour
        assert record is not None  # noqa: S101 - for the type checker
        copy = await self._lease(catalogue.uid, record)
        if copy is None:
            return False
        if not copy.pending:
            changes = await self._store.arms.changed(record.follows_uid, copy.position)
            if changes.version == copy.position or not changes.version:
                return False  # a followed catalogue that was deleted has the version 0: its arms stay here
            ids = await self._all_ids(catalogue, record) if changes.ids is None else changes.ids
            copy.pending, copy.target = list(ids), changes.version
        most = max(1, min(PAGE_ARMS, PAGE_NUMBERS // copy.encoding.table_dim))
        page, copy.pending = copy.pending[:most], copy.pending[most:]
        await self._take_over(catalogue, record, copy, page)
        if not copy.pending:
            # The page may have taken long: then the lease is taken again, if nobody else has it.
            if await self._lease(catalogue.uid, record) is not copy:
                return False
            before, after = Position(copy.position), Position(copy.target)
            is_noted = await self._store.followed_arms.advance(
                catalogue.uid, self._owner, collection=SOURCE, before=before, after=after, quality=b""
            )
            if not is_noted:  # the lease was lost
                del self._copies[catalogue.uid]
                return False
            copy.position = copy.target
        return True

    async def _lease(self, uid: str, record: BehaviourRecord) -> _Copy | None:
        """The work of this process for the catalogue; None: another process does it."""
        copy, clock_s = self._copies.get(uid), time.monotonic()
        if copy is not None and clock_s < copy.renew_at:
            return copy
        followed = await self._store.followed_arms.follow(uid, self._owner, LEASE_MS)
        if not followed.is_ours:
            self._copies.pop(uid, None)
            return None
        if copy is None or copy.position != followed.position.version:
            await self._store.arms.hold_behaviour(uid)
            copy = self._copies[uid] = _Copy(BehaviourEncoding(record), followed.position.version, 0.0)
        copy.renew_at = clock_s + RENEW_S
        return copy

    async def _all_ids(self, catalogue: Catalogue, record: BehaviourRecord) -> list[str]:
        """All arms of the followed catalogue, and those that it has not any more."""
        ids = dict[str, None]()
        for uid in (record.follows_uid, catalogue.uid):
            async for batch in self._store.arms.scan(uid):
                ids |= dict.fromkeys(batch.ids)
        return list(ids)

    async def _take_over(
        self, catalogue: Catalogue, record: BehaviourRecord, copy: _Copy, ids: Sequence[str]
    ) -> None:
        read = await self._store.followed_arms.read(record.follows_uid, ids)
        arms = [arm for arm in read if arm is not None]
        writes = list[ArmWrite]()
        if arms:
            table = np.array([bytes_to_vector(arm.features) for arm in arms])
            stored = await self._store.arms.behaviour(catalogue.uid, [arm.id for arm in arms])
            features = copy.encoding.features(table, stored)
            writes = [
                ArmWrite(arm.id, vector_to_bytes(row), arm.document)
                for arm, row in zip(arms, features, strict=True)
            ]
        gone = [arm_id for arm_id, arm in zip(ids, read, strict=True) if arm is None]
        await self._catalogues.take_over(catalogue, writes, gone)
        self._taken.inc(len(ids))
