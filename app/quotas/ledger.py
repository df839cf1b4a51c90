"""The shares that this process has of the quotas of one bandit: what it spends without asking the store.

A share is a part of what a quota allows in one window, by the clock of the store. The process asks for more
ahead of need, twice as much whenever it ran low, and gives back what it does not use. It counts the time of
the store from before it asked, by a clock that never jumps: so its share ends before the window does.

Notation
    share       what this process was granted in the window, spent or not: ``share`` has its states
    number      of a quota: its place in ``slots`` and in all arrays
    out         a quota whose arms are not eligible now: it is used up, or it holds its arms back for a slice
    slice       ``SLICE_S``: so long a quota ahead of its even pace holds its arms back (``arrays``)

For the event loop. Whatever asks the store holds ``_asking``: the store takes the number of each question as
the newest word of this process, and an answer that is read late would bring back a share that was given up.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from app.indexes.snapshot import Snapshot
from app.platform.errors import Unavailable
from app.quotas.arrays import SLICE_S, QuotaArrays
from app.quotas.members import QuotaMembers, RemainingQuotas
from app.quotas.rules import BanditQuota, OneArm
from app.quotas.share import NEVER, QuotaShare, end, offer_back
from app.quotas.snapshot import QuotaBlockNames, QuotaSnapshot
from app.storage.quotas import QuotaStore
from app.storage.registry import WriteOnce
from app.storage.types import LEAVES, ShareAsked

T = TypeVar("T")

STATES = ("open", "used_up", "held_back")

BATCH_SIZE = 500  # quotas that one script counts for
LOOKED_AT = 1_000  # quotas in each round, besides those that were spent of
ASKS = 20  # for one choice
FOLLOW_S = 5.0  # at least between two looks at the arms of all quotas


class Taken(NamedTuple):
    """How much was spent of each quota, by its number, when ``windows`` had begun."""

    counts: Mapping[int, int]
    windows: int


class QuotaLedger:
    """See the module.

    ``low``: is set when something is to be asked of the store soon. ``blocks``: names for rows of the log.
    """

    def __init__(
        self,
        store: QuotaStore,
        words: WriteOnce,
        bandit_uid: str,
        low: asyncio.Event,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._uid = bandit_uid
        # The store keeps one share for each name: a process that is started again must not take over what its
        # predecessor held, which the store drops with the window.
        self._process = secrets.token_hex(8)
        self._clock = clock
        self._asking = asyncio.Lock()
        self._questions = 0
        self._store_time = 0, 0.0  # in ms, and when it was heard
        self.by_id: dict[str, QuotaShare] = {}
        self.slots: list[QuotaShare | None] = []
        self._free: list[int] = []
        self.members = QuotaMembers()
        self.heard_changes = 0  # of the quotas, by the store's count
        self._next_end = NEVER  # when the first of all windows is over
        self._slice_ends = -NEVER
        self._next = 0  # to be looked at
        self._low: set[QuotaShare] = set()
        self._some_low = low
        self.blocks = QuotaBlockNames(words, bandit_uid, low, self.slots)
        self._arrays = QuotaArrays()
        self._now: QuotaSnapshot | None = None
        # Of the catalogue of the bandit, which a move changes: choices say which one they are of.
        self.snapshot_of: Callable[[], Snapshot] | None = None
        self._follow_at = -NEVER
        self._without_arms: Sequence[int] = ()

    # Which quotas there are

    async def change(self, quotas: Sequence[BanditQuota], gone: Iterable[str]) -> None:
        """Serve these quotas too, or as they are now, and hear of them; without those that are ``gone``.

        What is known of the others stays. Cost: that of what changes. Raises Unavailable.
        """
        async with self._asking:
            for quota_id in gone:
                self._remove(quota_id)
            changed = [self._put(quota) for quota in quotas]
            self._now = None
        await self._ask_all(changed)

    def _put(self, quota: BanditQuota) -> QuotaShare:
        share = self.by_id.get(quota.id)
        # The same quota with other terms: what was spent of it in this window stays spent.
        if share is not None and share.quota.uid == quota.uid:
            share.quota = quota
            self._note(share)
            return share
        self._remove(quota.id)
        # Numbers are places in arrays that every choice reads: they stay small when quotas come and go.
        if self._free:
            number = self._free.pop()
        else:
            number = len(self.slots)
            self.slots.append(None)
            self._arrays.grow(number)
        self.members.add(number, quota.rule)
        share = self.by_id[quota.id] = self.slots[number] = QuotaShare(quota, number, self._arrays)
        self._arrays.rows["one_arm"][number] = isinstance(quota.rule.counted, OneArm)
        self._note(share)
        self.blocks.changed(number)
        return share

    def _remove(self, quota_id: str) -> None:
        if (share := self.by_id.pop(quota_id, None)) is None:
            return
        self.slots[share.number] = None
        self._free.append(share.number)
        self._arrays.clear(share.number)
        self._low.discard(share)
        self.members.remove(share.number)
        self.blocks.changed(share.number)

    # What choices ask

    @property
    def now_ms(self) -> int:
        """About the time of the store."""
        heard_ms, heard_at = self._store_time
        return heard_ms + round(1_000 * (self._clock() - heard_at))

    def now(self) -> QuotaSnapshot:
        """The quotas now. Cost: nothing but once in a slice, or after one was used up."""
        now = self._clock()
        self._end_windows(now)
        if now >= self._slice_ends:
            self._slice_ends = now + SLICE_S
            if self._arrays.hold_back(now):
                self._now = None
        if self._now is None:
            self._now = QuotaSnapshot(self.blocks, self.members, self.slots, self._arrays.out)
        return self._now

    def states(self) -> Mapping[str, int]:
        """How many quotas are in which state in this process."""
        used_up, out = int(self._arrays.rows["used_up"].sum()), int(self._arrays.out.sum())
        return {"used_up": used_up, "held_back": out - used_up, "open": len(self.by_id) - out}

    def few(self, k: int) -> RemainingQuotas | None:
        """The quotas of which fewer may be left than a list of k may take, and how much that is."""
        # A list of one takes at most one of each quota: ``take`` asks for that, if it must.
        left = self._arrays.left_below(k) if k > 1 else {}
        return RemainingQuotas(self.members, left) if left else None

    async def take(self, snapshot: Snapshot, rows: Sequence[int]) -> Taken | None:
        """Spend one for each of these arms, of each of its quotas; None: some have too few left by now.

        ``rows``: of ``snapshot``, -1 of an arm that is gone. Awaits nothing while this process has enough.
        Raises Unavailable.
        """
        # A window may end while the store is asked, and then what was granted is of the one before. More than
        # a few times in a row it happens only where windows are shorter than a round trip.
        for _ in range(ASKS):
            first, *others = self.members.quotas_of(snapshot, rows)
            counts = dict.fromkeys(first, 1)  # a Counter takes five times as long
            for numbers in others:
                for number in numbers:
                    counts[number] = counts.get(number, 0) + 1
            self._end_windows(self._clock())
            if (spending := self._spend(counts)) is not None:
                return spending
            if any(share.is_used_up for share in self._lacking(counts)):
                return None
            async with self._asking:
                # Looked up again under the lock: whoever held it may have asked for the same.
                asked = [item for item in self._lacking(counts).items() if not item[0].is_used_up]
                for batch in _batches(asked, BATCH_SIZE):
                    await self._ask(dict(batch), grows=True)
        raise Unavailable("the window of a quota ended before the store answered; try again")

    def _spend(self, counts: Mapping[int, int]) -> Taken | None:
        """Spend so much of each quota, by its number. None: some have too few left, and nothing is spent."""
        arrays = self._arrays
        spent, enough = arrays.spent, arrays.enough
        for number, count in counts.items():
            if spent[number] + count > enough[number]:
                break
        else:
            for number, count in counts.items():
                spent[number] += count
            return Taken(counts, arrays.windows)
        if self._lacking(counts):
            return None
        for share, count in self._shares(counts).items():
            spent[share.number] += count
            self._note(share)
            # Half a share before it is used up: the next one is there in time, and no choice has to wait.
            if share.limits and share.left <= share.demand.size // 2:
                arrays.enough[share.number] = share.state.share  # it is asked for once
                self._low.add(share)
                self._some_low.set()
        return Taken(counts, arrays.windows)

    def _shares(self, counts: Mapping[int, int]) -> dict[QuotaShare, int]:
        return {share: count for number, count in counts.items() if (share := self.slots[number]) is not None}

    def _lacking(self, counts: Mapping[int, int]) -> dict[QuotaShare, int]:
        """The quotas of which less is left."""
        self._end_windows(self._clock())
        return {share: n for share, n in self._shares(counts).items() if share.limits and share.left < n}

    def give_back(self, unshown: Taken) -> None:
        """What was taken was not shown. Of a window that is over nothing is given back."""
        for share, count in self._shares(unshown.counts).items():
            # A window that is over was settled with the store: what is given back would add to that of now.
            if share.window_number <= unshown.windows:
                self._arrays.spent[share.number] -= count
                self._note(share)

    async def reward(self, snapshot: Snapshot, rewarded: Sequence[tuple[str, str | None]]) -> None:
        """Count rewards of arms, each of a signal if there are some.

        Raises Unavailable: whether they were counted is not known then.
        """
        # Nearly always: then no row has to be looked up for a reward.
        if not any(share.quota.rule.counts == "rewarded" for share in self.by_id.values()):
            return
        await self.members.ready(snapshot)
        rows = snapshot.whole.table.row_of_each([arm for arm, _ in rewarded]).tolist()
        rewards = Counter[QuotaShare]()
        for (_, signal), numbers in zip(rewarded, self.members.quotas_of(snapshot, rows), strict=True):
            for number in numbers:
                share = self.slots[number]
                if share is not None and share.quota.rule.counts_reward_of(signal):
                    rewards[share] += 1
        for batch in _batches(rewards.items(), BATCH_SIZE):
            await self._store.reward(self._uid, {share.quota.id: count for share, count in batch})
            # So that a quota which is used up now lets no more arms through here; others hear later.
            await self._ask_all([share for share, _ in batch])

    async def follow(self) -> None:
        """Find the arms of all quotas in the catalogue of now, so that choices find them known.

        Raises Unavailable.
        """
        if self.snapshot_of is None or self._clock() < self._follow_at:
            return
        self._without_arms = await self.members.absent(self.snapshot_of())
        self._follow_at = self._clock() + FOLLOW_S

    def without_arms(self) -> list[str]:
        """The ids of the quotas that no arm counted for when that was last looked at."""
        shares = (self.slots[number] for number in self._without_arms if number < len(self.slots))
        return [share.quota.id for share in shares if share is not None]

    # What is asked of the store

    async def sync_with_store(self) -> None:
        """Report what was spent, give back what is not used, and hear of the others."""
        await self.blocks.keep()
        await self.follow()
        self._end_windows(self._clock())
        shares = [*self.by_id.values()]
        unsettled = [
            share for share in shares if share.spent != share.state.spent or share.left > share.least_held
        ]
        # A bandit may have 10,000 quotas. Most do not change between two rounds, so only some of them are
        # asked for in turn: others may have changed them.
        first, self._next = self._next, self._next + LOOKED_AT if self._next + LOOKED_AT < len(shares) else 0
        asked = [*dict.fromkeys((*unsettled, *shares[first : first + LOOKED_AT]))]
        # Before it is asked, not by its answer: from here on nothing is spent of what is offered back.
        for share in asked:
            share.demand = share.demand.after_round(share.spent)
        await self._ask_all(asked)

    async def refill(self) -> None:
        """Ask for more where a share runs low."""
        await self.blocks.keep()
        # Taken out first: what runs low while the store is asked is noted for the next round.
        low, self._low = [share for share in self._low if not share.is_used_up], set()
        await self._ask_all(low, grows=True)

    async def leave(self) -> None:
        """Give everything back: the process stops."""
        await self.blocks.keep()
        held = [share for share in self.by_id.values() if share.state.share > 0 or share.spent > 0]
        await self._ask_all(held, needed=LEAVES)

    async def refresh(self, share: QuotaShare) -> None:
        """Know a quota as it is now in the store."""
        self._end_windows(self._clock())
        await self._ask_all([share])

    async def _ask_all(self, shares: Iterable[QuotaShare], *, needed: int = 0, grows: bool = False) -> None:
        """Batch after batch: a choice that has to ask waits for one of them."""
        for batch in _batches(shares, BATCH_SIZE):
            async with self._asking:
                await self._ask(dict.fromkeys(batch, needed), grows=grows)

    async def _ask(self, needed: Mapping[QuotaShare, int], *, grows: bool) -> None:
        """Change the shares of these quotas. ``needed``: what each must hold, if it can, or ``LEAVES``.

        ``grows``: they ran low. The caller holds ``_asking``. What is given back is not spent from now on,
        whatever the answer.
        """
        # Those that were deleted while the lock was waited for: their numbers may be others' now.
        needed = {share: count for share, count in needed.items() if self.slots[share.number] is share}
        if not needed:
            return
        questions = []
        for share, count in needed.items():
            if grows:
                share.demand = share.demand.grow()
            wanted = 0
            if share.holds and count != LEAVES:
                wanted = max(share.demand.size, count, share.least_held)
            share.state, before = offer_back(share.state, share.spent + wanted), share.state
            if share.state is not before:
                self._note(share)
            questions.append(
                ShareAsked(share.quota.id, share.quota.uid, share.state.start_ms, share.spent, wanted, count)
            )
        self._questions += 1
        asked_at = self._clock()
        now_ms, answers = await self._store.share(self._uid, self._process, self._questions, questions)
        self._store_time = now_ms, asked_at
        self._slice_ends = -NEVER  # whether one with an even pace is ahead is found at once
        for share, sent, answer in zip(needed, questions, answers, strict=True):
            share.answer(sent, answer, asked_at, now_ms)
            self._next_end = min(self._next_end, share.state.until)
            self._note(share)

    def _note(self, share: QuotaShare) -> None:
        if share.note():
            self._now = None

    def _end_windows(self, now: float) -> None:
        """Forget windows that are over: all are looked at when the first of them ends."""
        if now < self._next_end:
            return
        for share in self.by_id.values():
            if now >= share.state.until:
                share.state = end(share.state)
                self._note(share)
        self._next_end = min((share.state.until for share in self.by_id.values()), default=NEVER)


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := [*islice(rest, size)]:
        yield batch
