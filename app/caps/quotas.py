"""The quotas of all bandits: how they are made, and the shares that this process has of them.

A bandit without quotas has none here, and costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from app.bandits.bandit import Bandit
from app.caps.followed_membership import FollowedMembership
from app.caps.membership import MAX_QUOTAS
from app.caps.rules import BanditQuota, QuotaRule, QuotaShare
from app.caps.shares import STATES, QuotaLedger
from app.filters.overview import no_arm_has, unknown_fields
from app.indexes.snapshot import Snapshot
from app.platform.deadlines import yield_to_others
from app.platform.errors import Conflict, Invalid, NotFound, QuotaReached, Unavailable
from app.platform.metrics import Metrics
from app.platform.pages import page_by_name
from app.storage.store import Store

log = logging.getLogger("shortlist.quotas")

EVERY_S = 1.0
REFILL_S = 0.05  # the least time between two refills: shares that run low meanwhile are refilled together
LATEST_MS = 253_370_764_800_000  # the year 9999


class QuotaState(msgspec.Struct, frozen=True):
    """A quota, and its counts in the current window. Times: ms since 1970; no ``window``: it does not hold.

    ``outstanding``: what was shown and not rewarded; None of a quota that counts what is shown.
    ``ends_ms``: when it is used up if it goes on as since the window began; None: not in this window.
    """

    quota: BanditQuota
    used: int
    reserved: int
    left: int
    window: tuple[int, int | None] | None
    ends_ms: int | None
    outstanding: int | None


class Quotas:
    """For the event loop.

    ``counted`` is told every ``EVERY_S`` how many quotas are in which state, and how many arms ``beyond``.
    """

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._low = asyncio.Event()  # some share runs low
        self.shares: dict[str, QuotaLedger] = {}
        # By bandit how many changes had been noted when its quotas were read.
        self._noted: dict[str, int] = {}
        self._reading = asyncio.Lock()  # a process has one share: no two may be made for a bandit

    async def replace(self, noted: Mapping[str, int]) -> None:
        """Read the quotas of bandits that have changed. ``noted``: how many changes of each were noted.

        Raises Unavailable.
        """
        for uid in (self.shares.keys() | self._noted.keys()) - noted.keys():
            await self._read(uid)
            self._noted.pop(uid, None)
        for uid, number in noted.items():
            # Not "less than": a store restored from a backup counts from an earlier number.
            if number != self._noted.get(uid):
                await self._read(uid)
                self._noted[uid] = number  # last: if a read fails, it is read again in the next round

    async def prepare(self, bandit_uid: str, snapshot_of: Callable[[], Snapshot]) -> None:
        """Find the arms that count for the quotas of a bandit in a catalogue that it is about to be moved to.

        ``snapshot_of`` is called where there are quotas. Choices go on meanwhile, and do not wait for it
        afterwards. Raises Unavailable.
        """
        shares = self.shares.get(bandit_uid)
        if shares is not None:
            await shares.membership.prepare(snapshot_of())

    async def put(self, bandit: Bandit, quota_id: str, rule: QuotaRule) -> tuple[QuotaState, bool]:
        """Make a quota, or change ``most``, ``pace`` and ``to`` of one; (it, whether it is new).

        Raises Invalid (also where an arm would count for too many), Conflict (it counts something else),
        QuotaReached, Unavailable.
        """
        # In Milvus there is no table of arms here whose rows could be counted.
        bandit.catalogue.need_arms("a quota")
        rule = rule.checked()
        _check_known(bandit, rule)
        while True:
            standing = await self._store.quotas.record(bandit.uid, quota_id)
            known = BanditQuota.of(quota_id, standing) if standing else None
            # What was counted would be of other arms, or of another window.
            if known is not None and known.rule.identity != rule.identity:
                raise Conflict("only most, pace and to of a quota can be changed")
            if known is None:
                shares = self.shares.get(bandit.uid)
                # The first quota of a bandit: one that nobody follows checks whether there is room.
                membership = FollowedMembership(lambda: None) if shares is None else shares.membership
                membership.follow(snapshot := bandit.catalogue.index.snapshot())
                await membership.check(snapshot, rule)
            quota = BanditQuota(quota_id, secrets.token_hex(8) if known is None else known.uid, rule)
            stored = await self._store.quotas.put(
                bandit.uid, quota_id, quota.record, rule.terms(quota.uid), expected=standing, most=MAX_QUOTAS
            )
            if stored is None:
                raise QuotaReached(f"a bandit has at most {MAX_QUOTAS:,} quotas")
            if stored == quota.record:
                break
        await self._changed(bandit.uid)
        shares = self.shares.get(bandit.uid)
        if shares is not None:
            # Whoever has an answer may count on the quota: from here on no choice of this process shows an
            # arm that it bars.
            is_known = False
            while not is_known:
                shares.membership.follow(snapshot := bandit.catalogue.index.snapshot())
                is_known = await shares.membership.ready(snapshot)
        return await self.get(bandit, quota_id), known is None

    async def get(self, bandit: Bandit, quota_id: str) -> QuotaState:
        """Raises NotFound, Unavailable."""
        shares = self.shares.get(bandit.uid)
        # It may have been made by another process since the last poll.
        if shares is None or quota_id not in shares.by_id:
            await self._read(bandit.uid)
            shares = self.shares.get(bandit.uid)
        live = None if shares is None else shares.by_id.get(quota_id)
        if shares is None or live is None:
            raise NotFound("there is no quota with this id")
        await shares.refresh(live)
        return _state(live, shares.now_ms)

    async def page(
        self, bandit: Bandit, cursor: str | None, limit: int
    ) -> tuple[Sequence[QuotaState], str | None]:
        """In the order of their ids, with what was last heard of each."""
        shares = self.shares.get(bandit.uid)
        if shares is None:
            return [], None
        lives, following = page_by_name([*shares.by_id.values()], lambda live: live.quota.id, cursor, limit)
        return [_state(live, shares.now_ms) for live in lives], following

    async def delete(self, bandit: Bandit, quota_id: str) -> None:
        """Raises NotFound, Unavailable."""
        shares = self.shares.get(bandit.uid)
        # Read before the store is asked: a poll may take it away meanwhile.
        is_known = shares is not None and quota_id in shares.by_id
        was_there = await self._store.quotas.delete(bandit.uid, quota_id)
        if was_there or is_known:  # it may have been deleted by a call whose answer was lost
            await self._changed(bandit.uid)
        if not was_there:
            raise NotFound("there is no quota with this id")

    async def rewarded(self, bandit: Bandit, rewarded: Sequence[tuple[str, str | None]]) -> None:
        """Count rewards for the quotas that count them: (arm, signal or None). Raises Unavailable."""
        shares = self.shares.get(bandit.uid)
        if shares is not None:
            await shares.reward(bandit.catalogue.index.snapshot, rewarded)

    def rules(self, bandit: Bandit) -> list[tuple[str, QuotaRule]]:
        """The quotas of a bandit, by their ids, as this process knows them."""
        shares = self.shares.get(bandit.uid)
        known = {} if shares is None else shares.by_id
        return [(quota_id, share.quota.rule) for quota_id, share in known.items()]

    async def keep_named(self) -> None:
        """Store what rows of the decision log name quotas by. Raises Unavailable."""
        for shares in tuple(self.shares.values()):
            await shares.blocks.keep()

    async def run(self) -> None:
        """Look at all shares every ``EVERY_S``, and refill those that run low soon; until cancelled."""
        look_at = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                # Whichever comes first: a share that runs low, or the next round.
                async with asyncio.timeout(look_at - time.monotonic()):
                    await self._low.wait()
            # Before the shares are looked at: what runs low from here on sets it again.
            self._low.clear()
            is_due = time.monotonic() >= look_at
            if is_due:
                look_at = time.monotonic() + EVERY_S
            # The whole round also refills, since it asks for all that changed.
            answers = await self._each(QuotaLedger.sync_with_store if is_due else QuotaLedger.refill)
            # While the store is away it is not asked twenty times a second.
            await asyncio.sleep(REFILL_S if answers else EVERY_S)
            if is_due:
                for shares in self.shares.values():
                    shares.membership.tidy()
                states = [shares.states() for shares in self.shares.values()]
                counts = {name: sum(each[name] for each in states) for name in STATES}
                self._metrics.set_quota_states(counts, sum(self.beyond.values()))

    @property
    def beyond(self) -> Mapping[str, int]:
        """By the uids of bandits: arms that are not eligible, since they would count for too many quotas."""
        return {uid: count for uid, shares in self.shares.items() if (count := shares.membership.beyond)}

    async def stop(self) -> None:
        """Give all shares back."""
        await self._each(QuotaLedger.end)

    async def _each(self, what: Callable[[QuotaLedger], Awaitable[None]]) -> bool:
        """Whether the store answers; if not it is told later: nothing is spent that is not there."""
        answers = True
        # A copy: a quota may be put or deleted while the store is awaited.
        for shares in tuple(self.shares.values()):
            try:
                await what(shares)
            except Unavailable:
                answers = False
            # One bandit's mistake must not stop the quotas of the others, nor the loop that gives shares
            # back.
            except Exception:
                log.exception("the shares of quotas cannot be changed")
                answers = False
        return answers

    async def _changed(self, bandit_uid: str) -> None:
        # Others first: if this process dies now, they hear of the change all the same.
        await self._store.quotas.changed(bandit_uid)
        await self._read(bandit_uid)

    async def _read(self, bandit_uid: str) -> None:
        """Serve the quotas of a bandit as they are stored; what was known of those that stay is kept.

        Cost: that of those which have changed.
        """
        async with self._reading:
            shares = self.shares.get(bandit_uid)
            heard = 0 if shares is None else shares.heard_changes
            # The records of those quotas that changed, not of all: a bandit may have 10,000.
            changes = await self._store.quotas.changes(bandit_uid, heard)
            stored = {name: data for name, data in changes.records.items() if data}
            if shares is None:
                if not stored:
                    return
                shares = self.shares[bandit_uid] = QuotaLedger(
                    self._store.quotas, self._store.write_once, bandit_uid, self._low
                )
            quotas = []
            for name, data in sorted(stored.items()):
                await yield_to_others()
                # Of all quotas most are as they were, and to read a rule again costs more than to compare it.
                if not (changes.all and shares.has(name, data)):
                    quotas.append(BanditQuota.of(name, data))
            gone = (shares.by_id if changes.all else changes.records).keys() - stored.keys()
            if quotas or gone:
                await shares.change(quotas, gone)
            # What rows of the log name quotas by is stored a moment later: dropped now, it would never be.
            if not shares.by_id:
                await shares.blocks.keep()
            # After they are served: if that failed, the same changes are read again.
            shares.heard_changes = changes.number
            # A bandit without quotas must not pay for them in every choice.
            if not shares.by_id:
                del self.shares[bandit_uid]


def _check_known(bandit: Bandit, rule: QuotaRule) -> None:
    """Raise Invalid for an arm that is not there, a field that no arm has, a signal that the bandit lacks."""
    index = bandit.catalogue.index
    if rule.signal is not None and rule.signal not in (bandit.record.signals or {}):
        raise Invalid("the bandit has no signal with this name", path=("signal",))
    if rule.arm is not None and rule.arm not in index:
        raise Invalid("no arm has this id", path=("arm",))
    if (arm_filter := rule.parsed) is not None:
        for field in unknown_fields(index.snapshot().attributes, arm_filter):
            raise Invalid(no_arm_has(field), path=("filter", field))


def _state(live: QuotaShare, now_ms: int) -> QuotaState:
    rule = live.quota.rule
    shown = live.others + live.reported
    used = live.rewarded if rule.counts == "rewarded" else shown
    reserved = 0 if rule.counts == "rewarded" else live.granted - used
    # ``most`` may have been lowered below what was shown already.
    left = max(rule.most - used - reserved, 0)
    window = (live.window, live.ends_ms) if live.window >= 0 else None
    ends_ms = None
    if window is not None and used and now_ms > live.window:
        ends_ms = now_ms + round((rule.most - used) * (now_ms - live.window) / used)
        # A time beyond the year 9999 cannot be written as a date; and after the window it says nothing.
        if ends_ms >= (LATEST_MS if live.ends_ms is None else live.ends_ms):
            ends_ms = None
    outstanding = max(shown - used, 0) if rule.counts == "rewarded" else None
    return QuotaState(live.quota, used, reserved, left, window, ends_ms, outstanding)
