"""The quotas of all bandits: how they are made, and the shares that this process has of them.

A bandit without quotas has none here, and costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import msgspec

from app.bandits.bandit import Bandit
from app.filters.filter import Filter
from app.filters.overview import no_arm_has, unknown_fields
from app.indexes.live import LiveIndex
from app.platform.deadlines import yield_to_others
from app.platform.errors import Conflict, Invalid, NotFound, TooManyQuotas, Unavailable
from app.platform.metrics import Metrics
from app.platform.pages import page_by_name
from app.platform.pauses import Pauses
from app.platform.phrases import counted
from app.quotas.ledger import STATES, QuotaLedger
from app.quotas.rules import MAX_FILTERS, MAX_QUOTAS, BanditQuota, QuotaRule
from app.quotas.share import QuotaShare, Window
from app.storage.store import Store

log = logging.getLogger("shortlist.quotas")

MOST_NAMED = 10  # quotas, in a finding
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

    The metrics are told every ``every_s`` how many quotas are in which state. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        every_s: float = Pauses().quotas_s,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_s = every_s
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._low = asyncio.Event()  # some share runs low
        self.ledgers: dict[str, QuotaLedger] = {}
        # By bandit how many changes had been noted when its quotas were read.
        self._noted: dict[str, int] = {}
        self._reading = asyncio.Lock()  # a process has one share: no two may be made for a bandit

    async def replace(self, noted: Mapping[str, int]) -> None:
        """Read the quotas of bandits that have changed. ``noted``: how many changes of each were noted.

        Raises Unavailable.
        """
        for uid in (self.ledgers.keys() | self._noted.keys()) - noted.keys():
            await self._read(uid)
            self._noted.pop(uid, None)
        for uid, number in noted.items():
            # Not "less than": a store restored from a backup counts from an earlier number.
            if number != self._noted.get(uid):
                await self._read(uid)
                self._noted[uid] = number  # last: if a read fails, it is read again in the next round

    async def prepare(self, bandit_uid: str, arms: LiveIndex | None) -> None:
        """Find the arms that count for the quotas of a bandit in a catalogue that it is about to be moved to.

        ``arms``: of that catalogue in memory; None: they are in an engine, and have no quotas. Choices go on
        meanwhile, and find them known afterwards. Raises Unavailable.
        """
        ledger = self.ledgers.get(bandit_uid)
        if ledger is not None and arms is not None:
            await ledger.members.follow(arms.snapshot())

    async def put(self, bandit: Bandit, quota_id: str, rule: QuotaRule) -> tuple[QuotaState, bool]:
        """Make a quota, or change ``most``, ``pace`` and ``to`` of one; (it, whether it is new).

        Raises Invalid, TooManyQuotas, Conflict (it counts something else), Unavailable.
        """
        # In an engine there is no table of arms here whose rows could be counted.
        bandit.catalogue.need_arms("a quota")
        rule = rule.checked()
        _check_known(bandit, rule)
        is_stored = False
        while not is_stored:
            heard_changes = await self._read(bandit.uid)
            ledger = self.ledgers.get(bandit.uid)
            stored = None if ledger is None or quota_id not in ledger.by_id else ledger.by_id[quota_id].quota
            # What was counted would be of other arms, or of another window.
            if stored is not None and (field := stored.rule.changed_field(rule)) is not None:
                reason = "only most, pace and to of a quota can be changed"
                raise Conflict(f"{field} differs: {reason}", path=(field,))
            if stored is None and rule.to_ms is not None and rule.to_ms <= 1_000 * time.time():
                raise Invalid("must not be past: the quota would never hold", path=("to",))
            if stored is None and ledger is not None:
                _check_room(ledger, rule)
            quota = BanditQuota(quota_id, secrets.token_hex(8) if stored is None else stored.uid, rule)
            terms = rule.terms(quota.uid)
            # Refused where another process has changed the quotas since: then the bounds are checked again.
            is_stored = await self._store.quotas.put(
                bandit.uid, quota_id, quota.record, terms, heard_changes=heard_changes
            )
        await self._changed(bandit.uid)
        state = await self.get(bandit, quota_id)
        self._follow(bandit)
        return state, stored is None

    async def get(self, bandit: Bandit, quota_id: str) -> QuotaState:
        """Raises NotFound, Unavailable."""
        ledger = self.ledgers.get(bandit.uid)
        # It may have been made by another process since the last poll.
        if ledger is None or quota_id not in ledger.by_id:
            await self._read(bandit.uid)
            ledger = self.ledgers.get(bandit.uid)
        share = None if ledger is None else ledger.by_id.get(quota_id)
        if ledger is None or share is None:
            raise NotFound("there is no quota with this id")
        await ledger.refresh(share)
        return _state(share, ledger.now_ms)

    async def page(
        self, bandit: Bandit, cursor: str | None, limit: int
    ) -> tuple[Sequence[QuotaState], str | None]:
        """In the order of their ids, with what was last heard of each."""
        ledger = self.ledgers.get(bandit.uid)
        if ledger is None:
            return [], None
        shares, following = page_by_name(
            [*ledger.by_id.values()], lambda share: share.quota.id, cursor, limit
        )
        return [_state(share, ledger.now_ms) for share in shares], following

    async def delete(self, bandit: Bandit, quota_id: str) -> None:
        """Raises NotFound, Unavailable."""
        ledger = self.ledgers.get(bandit.uid)
        # Read before the store is asked: a poll may take it away meanwhile.
        is_known = ledger is not None and quota_id in ledger.by_id
        was_there = await self._store.quotas.delete(bandit.uid, quota_id)
        if was_there or is_known:  # it may have been deleted by a call whose answer was lost
            await self._changed(bandit.uid)
        if not was_there:
            raise NotFound("there is no quota with this id")

    async def count_rewards(self, bandit: Bandit, rewarded: Sequence[tuple[str, str | None]]) -> None:
        """Count rewards for the quotas that count them: (arm, signal or None). Raises Unavailable."""
        ledger = self.ledgers.get(bandit.uid)
        if ledger is not None:
            await ledger.reward(bandit.catalogue.index.snapshot(), rewarded)

    def rules(self, bandit: Bandit) -> list[tuple[str, QuotaRule]]:
        """The quotas of a bandit, by their ids, as this process knows them."""
        ledger = self.ledgers.get(bandit.uid)
        shares = {} if ledger is None else ledger.by_id
        return [(quota_id, share.quota.rule) for quota_id, share in shares.items()]

    def _follow(self, bandit: Bandit) -> QuotaLedger | None:
        """The quotas of a bandit, whose arms are found from now on, also before the first choice."""
        ledger = self.ledgers.get(bandit.uid)
        if ledger is not None:
            ledger.snapshot_of = bandit.catalogue.index.snapshot
        return ledger

    def warnings(self, bandit: Bandit) -> Iterator[str]:
        """What is wrong with the quotas of a bandit, as far as this process knows."""
        ledger = self._follow(bandit)
        if ledger is None:
            return
        if ledger.members.filters > MAX_FILTERS:
            yield (
                f"has {ledger.members.filters:,} quotas by filter, made by an older version. They count, and "
                f"no more than {MAX_FILTERS} can be made"
            )
        empty = sorted(ledger.without_arms())
        if empty:
            others = counted(len(empty) - MOST_NAMED, "other", "others")
            more = f" and {others}" if len(empty) > MOST_NAMED else ""
            yield f"has quotas that no arm counts for: {', '.join(empty[:MOST_NAMED])}{more}"

    async def keep_named(self) -> None:
        """Store what rows of the decision log name quotas by. Raises Unavailable."""
        for ledger in tuple(self.ledgers.values()):
            await ledger.blocks.keep()

    async def run(self) -> None:
        """Look at all shares every ``every_s``, and refill those that run low soon; until cancelled."""
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
                look_at = time.monotonic() + self._every_s
            # The whole round also refills, since it asks for all that changed.
            is_answered = await self._for_each(QuotaLedger.sync_with_store if is_due else QuotaLedger.refill)
            # While the store is away it is not asked twenty times a second.
            await asyncio.sleep(REFILL_S if is_answered else self._every_s)
            if is_due:
                states = [ledger.states() for ledger in self.ledgers.values()]
                self._metrics.set_quota_states(
                    {name: sum(counts[name] for counts in states) for name in STATES}
                )

    async def stop(self) -> None:
        """Give all shares back."""
        await self._for_each(QuotaLedger.leave)

    async def _for_each(self, step: Callable[[QuotaLedger], Awaitable[None]]) -> bool:
        """Whether the store answers; if not it is told later: nothing is spent that is not there."""
        is_answered = True
        # A copy: a quota may be put or deleted while the store is awaited.
        for ledger in tuple(self.ledgers.values()):
            try:
                await step(ledger)
            except Unavailable:
                is_answered = False
            # One bandit's mistake must not stop the quotas of the others, nor the loop that gives shares
            # back.
            except Exception:
                log.exception("the shares of quotas cannot be changed")
                is_answered = False
        return is_answered

    async def _changed(self, bandit_uid: str) -> None:
        # Others first: if this process dies now, they hear of the change all the same.
        await self._store.quotas.changed(bandit_uid)
        await self._read(bandit_uid)

    async def _read(self, bandit_uid: str) -> int:
        """Serve the quotas of a bandit as they are stored; returns the number of their last change.

        What is known of those that stay goes on. Cost: that of those which have changed. Raises Unavailable.
        """
        async with self._reading:
            ledger = self.ledgers.get(bandit_uid)
            # The records of those quotas that changed, not of all: a bandit may have 10,000.
            after = 0 if ledger is None else ledger.heard_changes
            changes = await self._store.quotas.changes(bandit_uid, after)
            stored = {name: data for name, data in changes.records.items() if data}
            if ledger is None:
                if not stored:
                    return changes.number
                ledger = self.ledgers[bandit_uid] = QuotaLedger(
                    self._store.quotas, self._store.write_once, bandit_uid, self._low, clock=self._clock
                )
            quotas = []
            for name, data in sorted(stored.items()):
                await yield_to_others()
                # Of all quotas most are as they were, and to read a rule again costs more than to compare it.
                share = ledger.by_id.get(name) if changes.all else None
                if share is None or share.quota.record != data:
                    quotas.append(BanditQuota.of(name, data))
            gone = (ledger.by_id if changes.all else changes.records).keys() - stored.keys()
            if quotas or gone:
                await ledger.change(quotas, gone)
            # What rows of the log name quotas by is stored a moment later: dropped now, it would never be.
            if not ledger.by_id:
                await ledger.blocks.keep()
            # After they are served: if that failed, the same changes are read again.
            ledger.heard_changes = changes.number
            # A bandit without quotas must not pay for them in every choice.
            if not ledger.by_id:
                del self.ledgers[bandit_uid]
            return changes.number


def _check_room(ledger: QuotaLedger, rule: QuotaRule) -> None:
    """Raise TooManyQuotas if there is no room for one more quota like this."""
    if len(ledger.by_id) >= MAX_QUOTAS:
        raise TooManyQuotas(
            f"a bandit has at most {MAX_QUOTAS:,} quotas", path=("filter" if rule.arm is None else "arm",)
        )
    if isinstance(rule.counted, Filter) and ledger.members.filters >= MAX_FILTERS:
        message = f"a bandit has at most {MAX_FILTERS} quotas by filter, besides those by one value or arm"
        raise TooManyQuotas(message, path=("filter",))


def _check_known(bandit: Bandit, rule: QuotaRule) -> None:
    """Raise Invalid for an arm that is not there, a field that no arm has, a signal that the bandit lacks."""
    index = bandit.catalogue.index
    if rule.signal is not None and rule.signal not in (bandit.record.signals or {}):
        raise Invalid("the bandit has no signal with this name", path=("signal",))
    if rule.arm is not None and rule.arm not in index:
        raise Invalid("no arm has this id", path=("arm",))
    if (arm_filter := rule.parsed) is not None:
        for field in unknown_fields(index.snapshot().attributes, arm_filter.fields):
            raise Invalid(no_arm_has(field), path=("filter", field))


def _state(share: QuotaShare, now_ms: int) -> QuotaState:
    rule, state = share.quota.rule, share.state
    counts_rewards = rule.counts == "rewarded"
    if not isinstance(state, Window):
        return QuotaState(share.quota, 0, 0, rule.most, None, None, 0 if counts_rewards else None)
    shown = state.others + state.spent
    used = state.rewarded if counts_rewards else shown
    reserved = 0 if counts_rewards else state.granted - used
    # ``most`` may have been lowered below what was shown already.
    left = max(rule.most - used - reserved, 0)
    ends_ms = None
    if used and now_ms > state.start_ms:
        ends_ms = now_ms + round(max(rule.most - used, 0) * (now_ms - state.start_ms) / used)
        # A time beyond the year 9999 cannot be written as a date; and after the window it says nothing.
        if ends_ms >= (LATEST_MS if state.ends_ms is None else state.ends_ms):
            ends_ms = None
    outstanding = max(shown - used, 0) if counts_rewards else None
    return QuotaState(
        share.quota, used, reserved, left, (state.start_ms, state.ends_ms), ends_ms, outstanding
    )
