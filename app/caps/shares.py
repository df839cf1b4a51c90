"""The shares that this process has of the quotas of one bandit: what it spends without asking the store.

A share is a part of what a quota allows in one window, by the clock of the store. The process asks for more
ahead of need, twice as much whenever it ran low, and gives back what it does not use. It counts the time of
the store from before it asked, by a clock that never jumps: so its share ends before the window does. The
store may then say that the window goes on: so what was spent is remembered until another one has begun.

Notation
    share       what this process was granted in the window, spent or not
    number      of a quota: its place in ``slots`` and in all arrays
    out         a quota whose arms are not eligible now: it is used up, or it holds its arms back for a slice
    slice       ``SLICE_S``: which quotas with an even pace hold back is drawn again (``pace``)
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.caps.followed_membership import FollowedMembership
from app.caps.pacing import SLICE_S, PacedQuotas
from app.caps.rules import NEVER, UNBOUNDED, BanditQuota, QuotaArrays, QuotaShare, Taken
from app.caps.snapshot import QuotaBlockNames, QuotaSnapshot, QuotasOfRows, RemainingQuotas
from app.indexes.snapshot import Snapshot
from app.platform.errors import QuotaReached, Unavailable
from app.storage.quotas import QuotaStore
from app.storage.registry import WriteOnce
from app.storage.types import LEAVES, Confirmed, Held, ShareAsked

T = TypeVar("T")

STATES = ("open", "used_up", "held_back")

FIRST = 8  # how much is asked for where there is none
PLENTY = 1_000  # a process may hold so many times a little: then it keeps that, before it shows any
MOST_HELD = 100_000  # of one quota, by one process, besides what it needs
BATCH_SIZE = 500  # quotas that one script counts for
RELEASE_MARGIN_MS = 60_000  # after a deferred decision has expired
LOOKED_AT = 1_000  # quotas in each round, besides those that were spent of
ASKS = 20  # for one choice
REMEMBERED_S = 10.0  # the longest list that was asked for
AWAY_S = 1.0  # after the store did not answer, lists go on with what is here for so long


class QuotaLedger:
    """See the module. For the event loop.

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
        rng: np.random.Generator | None = None,
    ) -> None:
        self._store = store
        self._uid = bandit_uid
        # The store keeps one share for each name: a process that is started again must not take over what its
        # predecessor held, which the store drops with the window.
        self._process = secrets.token_hex(8)  # no other has, or will have, this name
        self._clock = clock
        self._rng = rng or np.random.default_rng()
        # One request at a time: the store takes the number of each as the newest word of this process, and an
        # answer that is read late would bring back a share that was given up.
        self._asking = asyncio.Lock()
        self._number = 0
        self._time = 0, 0.0  # of the store in ms, when it was heard
        self.by_id: dict[str, QuotaShare] = {}
        self.slots: list[QuotaShare | None] = []
        self.membership = FollowedMembership(self._forget)
        self._of_rows = QuotasOfRows()
        self.heard_changes = 0  # of the quotas, by the store's count
        self._due = NEVER  # when something changes by itself
        self._slice_ends = -NEVER
        self._next = 0  # to be looked at
        self._low: set[QuotaShare] = set()
        self._some_low = low
        self._away_until = -NEVER
        self._lists = 0, -NEVER  # the longest list that was asked for lately, and until when it is remembered
        self._paced = PacedQuotas()
        self.blocks = QuotaBlockNames(words, bandit_uid, low, self.slots)
        self._arrays = QuotaArrays()
        self._now: QuotaSnapshot | None = None

    async def change(self, quotas: Sequence[BanditQuota], gone: Iterable[str]) -> None:
        """Serve these quotas too, or as they are now, and hear of them; without those that are ``gone``.

        What is known of the others is kept. Cost: that of what changes. Raises Unavailable.
        """
        async with self._asking:
            for quota_id in gone:
                self._remove(quota_id)
            changed = [self._put(quota) for quota in quotas]
            if not len(self._paced):
                self._slice_ends = -NEVER  # a first one with an even pace is drawn at once
            for live in changed:
                self._paced.follow(live, self._arrays.held_back)
            self._forget()
            for some in _batches(changed, BATCH_SIZE):
                await self._ask(dict.fromkeys(some, 0), grows=False)

    def has(self, quota_id: str, record: bytes) -> bool:
        """Whether this is the quota as it is served."""
        known = self.by_id.get(quota_id)
        return known is not None and known.quota.record == record

    def _put(self, quota: BanditQuota) -> QuotaShare:
        known = self.by_id.get(quota.id)
        # The same quota with other terms: what was spent of it in this window stays spent.
        if known is not None and known.quota.uid == quota.uid:
            known.quota = quota
            return known
        self._remove(quota.id)
        number = self.membership.add(quota.rule)
        if number >= len(self.slots):
            self.slots += [None] * (number + 1 - len(self.slots))
            self._arrays.grow(number)
        live = self.by_id[quota.id] = self.slots[number] = QuotaShare(quota, number, self._arrays)
        self._note(live)
        self.blocks.changed(number)
        return live

    def _remove(self, quota_id: str) -> None:
        if (live := self.by_id.pop(quota_id, None)) is None:
            return
        number = live.number
        self.slots[number] = None
        self._paced.leave(live, self._arrays.held_back)
        self._arrays.clear(number)
        self._low.discard(live)
        self.membership.remove(number)
        self.blocks.changed(number)

    def _forget(self) -> None:
        self._now = None
        self._of_rows.clear()

    @property
    def now_ms(self) -> int:
        """About the time of the store."""
        heard_ms, moment = self._time
        return heard_ms + round(1_000 * (self._clock() - moment))

    def now(self) -> QuotaSnapshot:
        """The quotas now. Cost: nothing but once in a slice, or after one was used up."""
        moment = self._clock()
        self._end_windows(moment)
        if moment >= self._slice_ends:
            self._slice_ends = moment + SLICE_S
            if self._paced.draw(moment, self._rng, self._arrays, self.membership.members.sizes):
                self._now = None
        if self._now is None:
            self._now = QuotaSnapshot(self.blocks, self.membership, self.slots, self._arrays.out)
        return self._now

    def states(self) -> Mapping[str, int]:
        """How many quotas are in which state in this process."""
        used_up, out = (int(each.sum()) for each in (self._arrays.used_up, self._arrays.out))
        return {"used_up": used_up, "held_back": out - used_up, "open": len(self.by_id) - out}

    async def stock(self, k: int) -> None:
        """Hold as much of every quota as a list of k may take, where there is plenty: before it is drawn.

        Of others it is known then that few are left, so that whether a list is evaluated does not depend on
        what was drawn. A list waits for ``BATCH_SIZE`` at most. While the store is away nothing is asked for.
        """
        # A list of one takes at most one of each quota: ``take`` asks for that, if it must.
        if k == 1 or not self.by_id:
            return
        moment = self._clock()
        most, until = self._lists
        if k >= most or moment >= until:
            self._lists = k, moment + REMEMBERED_S
        if moment < self._away_until or not self._lacks(k):
            return
        try:
            async with self._asking:
                lacks = self._lacks(k)
                await self._ask(dict(islice(lacks.items(), BATCH_SIZE)), grows=True)
        except Unavailable:
            # Each choice would wait for the whole time-out otherwise.
            self._away_until = self._clock() + AWAY_S
            return
        if len(lacks) > BATCH_SIZE:  # these count as nearly used up until they are here
            self._low.update(islice(lacks, BATCH_SIZE, None))
            self._some_low.set()

    def _lacks(self, k: int) -> dict[QuotaShare, int]:
        """What to ask for before a list of k."""
        self._end_windows(self._clock())
        short = ((live, self._most_taken(live, k)) for live in self._short(k, self._arrays.left))
        return {live: count for live, count in short if not live.used_up and live.fair > count}

    def _short(self, k: int, left: NDArray[np.int64]) -> list[QuotaShare]:
        """Quotas that are not out, and that a list of k may take more of than is left."""
        short = self._arrays.short(left, np.minimum(self.membership.members.sizes, k))
        return [live for number in short.tolist() if (live := self.slots[number]) is not None]

    def _most_taken(self, live: QuotaShare, k: int) -> int:
        """How much a list of k may take of a quota."""
        sizes = self.membership.members.sizes
        return min(k, int(sizes[live.number])) if live.number < len(sizes) else 0

    def few(self, k: int, *, deferred: bool) -> RemainingQuotas | None:
        """The quotas of which fewer than k may be left, and how much that is."""
        short = self._short(k, self._arrays.left) if k > 1 else []
        if deferred:
            short += self._short(k, self._arrays.deferrable)
        if not short:
            return None
        # Then nothing more can be had: what is here is all that a list may take.
        is_away = self._clock() < self._away_until
        left = {
            live.number: min(live.most_of(deferred), live.left if is_away else UNBOUNDED) for live in short
        }
        return RemainingQuotas(self.membership.members, left)

    async def take(self, snapshot: Snapshot, rows: Sequence[int]) -> Taken | None:
        """Spend one for each of these arms, of each of its quotas; None: some have too few left by now.

        Awaits nothing while this process has enough. Raises Unavailable.
        """
        # A window may end while the store is asked, and then what was granted is of the one before. More than
        # a few times in a row it happens only where windows are shorter than a round trip.
        for _ in range(ASKS):
            membership = self.membership
            if not membership.is_current(snapshot) and not await membership.settled(
                snapshot, np.array(rows, dtype=np.int64)
            ):
                return None
            members = membership.members
            for row in rows:
                # Such an arm counts for quotas of which it is not known here: nobody would count it.
                if members.beyond.item(row):
                    return None
            counts = self._of_rows.needed(members, rows)
            self._end_windows(self._clock())
            taken = self._spend(counts)
            if taken is not None:
                return taken
            if any(live.used_up for live in self._lacking(counts)):
                return None
            async with self._asking:
                # Looked up again under the lock: whoever held it may have asked for the same.
                asked = [item for item in self._lacking(counts).items() if not item[0].used_up]
                for some in _batches(asked, BATCH_SIZE):
                    await self._ask(dict(some), grows=True)
        raise Unavailable("the window of a quota ended before the store answered; try again")

    def _spend(self, counts: Mapping[int, int]) -> Taken | None:
        """Spend so much of each quota, by its number. None: some have too few left, and nothing is spent."""
        arrays, is_short = self._arrays, False
        spent, enough = arrays.spent, arrays.enough
        for number, count in counts.items():
            spent[number] = now = spent[number] + count
            if now > enough[number]:
                is_short = True
        taken = Taken(counts, arrays.windows)
        if not is_short:
            return taken
        self.give_back(taken)
        if self._lacking(counts):
            return None
        needed = {live: count for live, count in self._shares(counts).items() if live.holds}
        for live, count in needed.items():
            spent[live.number] += count
            # Half a share before it is used up: the next one is there in time, and no choice has to wait.
            if live.limits and live.left <= live.size // 2:
                self._runs_low(live)
        return Taken({live.number: count for live, count in needed.items()}, arrays.windows)

    def _shares(self, counts: Mapping[int, int]) -> dict[QuotaShare, int]:
        return {live: count for number, count in counts.items() if (live := self.slots[number]) is not None}

    def _lacking(self, counts: Mapping[int, int]) -> dict[QuotaShare, int]:
        """The quotas of which less is left."""
        self._end_windows(self._clock())
        return {live: n for live, n in self._shares(counts).items() if live.left < n and live.limits}

    def _standing(self, taken: Taken) -> dict[QuotaShare, int]:
        """What was taken of quotas that are served still, in windows of now."""
        return {live: n for live, n in self._shares(taken.counts).items() if live.ordinal <= taken.windows}

    async def reward(
        self, current: Callable[[], Snapshot], rewarded: Sequence[tuple[str, str | None]]
    ) -> None:
        """Count rewards of arms of the ``current`` catalogue, each of a signal if there are some.

        Raises Unavailable: whether they were counted is not known then.
        """
        # Nearly always: then no row has to be looked up for a reward.
        if not any(live.quota.rule.counts == "rewarded" for live in self.by_id.values()):
            return
        by_signal: dict[str | None, list[str]] = {}
        for arm, signal in rewarded:
            by_signal.setdefault(signal, []).append(arm)
        is_known = False
        # A table may be numbered again while filters are evaluated: then rows are looked up again.
        while not is_known:
            self.membership.follow(snapshot := current())
            rows_of = {signal: snapshot.table.row_of_each(arms) for signal, arms in by_signal.items()}
            is_known = await self.membership.settled(snapshot, np.concatenate([*rows_of.values()]))
        rewards = Counter[QuotaShare]()
        for signal, rows in rows_of.items():
            counts = self._of_rows.needed(self.membership.members, rows.tolist())
            for live, count in self._shares(counts).items():
                if live.quota.rule.counts_reward_of(signal):
                    rewards[live] += count
        for some in _batches(rewards.items(), BATCH_SIZE):
            await self._store.reward(self._uid, {live.quota.id: count for live, count in some})
            async with self._asking:
                # So that a quota which is used up now lets no more arms through here; others hear later.
                await self._ask({live: 0 for live, _ in some}, grows=False)

    async def hold(self, decision: str, taken: Taken, *, expires_ms: int) -> bool:
        """What a deferred decision took is given back when it expires.

        False: of some quota deferred decisions would hold more than they may. That is known from then on, and
        what was taken is back. Raises QuotaReached, Unavailable.
        """
        standing = self._standing(taken)
        held = [
            Held(live.quota.id, live.quota.uid, live.window, count, limits=live.quota.rule.counts == "shown")
            for live, count in standing.items()
        ]
        deferrable = await self._store.hold(self._uid, decision, held, expires_ms=expires_ms) if held else ()
        # None: as many deferred decisions of this bandit are held as may be.
        if deferrable is None:
            self.give_back(taken)
            raise QuotaReached("as many deferred decisions wait as may wait: activate them")
        is_held = all(most >= count for most, count in zip(deferrable, standing.values(), strict=True))
        still = self._standing(taken)  # a window may have ended while the store was asked
        for most, (live, count) in zip(deferrable, standing.items(), strict=True):
            if live in still:
                # What the store said is from before this decision was noted.
                live.deferrable = most - is_held * count
                self._note(live)
        if not is_held:
            self.give_back(taken)
        return is_held

    async def confirm(self, decision: str, *, expires_ms: int) -> Confirmed:
        """A deferred decision was shown. Raises Unavailable."""
        return await self._store.confirm(
            self._uid, decision, expires_ms=expires_ms, margin_ms=RELEASE_MARGIN_MS
        )

    async def drop(self, decision: str, taken: Taken, *, expires_ms: int) -> None:
        """A deferred decision is shown to nobody: what it took is given back now. Raises Unavailable."""
        if await self.confirm(decision, expires_ms=expires_ms) == "counts":  # so that it is not released too
            self.give_back(taken)

    def give_back(self, taken: Taken) -> None:
        """What was taken was not shown. Of a window that is over nothing is given back."""
        # A window that is over has been settled with the store: to give back would add to the one of now.
        for live, count in self._standing(taken).items():
            self._arrays.spent[live.number] -= count
            self._note(live)

    async def sync_with_store(self) -> None:
        """Report what was spent, give back what is not used, and hear of the others."""
        await self.blocks.keep()
        self._end_windows(self._clock())
        worth = self._worth_a_look()
        # Before it is asked, not by its answer: from here on nothing is spent of what is offered back.
        for live in worth:
            live.shrink()
        await self._ask_all(worth, grows=False)
        await self._store.release(self._uid, margin_ms=RELEASE_MARGIN_MS, count=BATCH_SIZE)

    async def refill(self) -> None:
        """Ask for more where a share runs low."""
        await self.blocks.keep()
        # Taken out first: what runs low while the store is asked is noted for the next round.
        low, self._low = [live for live in self._low if not live.used_up], set()
        await self._ask_all(low, grows=True)

    async def _ask_all(self, lives: Iterable[QuotaShare], *, grows: bool) -> None:
        """Batch after batch: a choice that has to ask waits for one of them."""
        for some in _batches(lives, BATCH_SIZE):
            async with self._asking:
                await self._ask(dict.fromkeys(some, 0), grows=grows)

    async def end(self) -> None:
        """Give everything back."""
        await self.blocks.keep()
        async with self._asking:
            own = [live for live in self.by_id.values() if live.share > 0 or live.spent > 0]
            for live in own:
                # So that nothing is wanted of it any more, whatever ``_kept`` says.
                live.size = live.fair = 0
            for some in _batches(own, BATCH_SIZE):
                await self._ask(dict.fromkeys(some, LEAVES), grows=False)

    async def refresh(self, live: QuotaShare) -> None:
        """Know a quota as it is now in the store."""
        self._end_windows(self._clock())
        async with self._asking:
            await self._ask({live: 0}, grows=False)

    def _worth_a_look(self) -> list[QuotaShare]:
        """Those with something to report or to give back, and some of those that others may have changed."""
        lives = [*self.by_id.values()]
        own = [live for live in lives if live.spent != live.reported or live.left > self._kept(live)]
        first, self._next = self._next, self._next + LOOKED_AT
        if self._next >= len(lives):
            self._next = 0
        # A bandit may have 10,000 quotas. Most do not change between two rounds, so only some of them are
        # asked for in turn.
        return list(dict.fromkeys((*own, *lives[first : first + LOOKED_AT])))

    def _kept(self, live: QuotaShare) -> int:
        """What is held of a quota of which there is plenty: for lists that are asked for, or a little."""
        most, until = self._lists
        count = self._most_taken(live, most) if self._clock() < until and live.limits else 0
        little = min(FIRST, live.fair // PLENTY) if live.fair != UNBOUNDED else 0  # not heard of
        return count if live.fair > count > little else little

    async def _ask(self, needed: Mapping[QuotaShare, int], *, grows: bool) -> None:
        """Change the shares of these quotas. ``needed``: what each must hold, if it can. ``grows``: ran low.

        The caller holds ``_asking``. What is given back is not spent from now on, whatever the answer.
        """
        # Those that were deleted while the lock was waited for: their numbers may be others' now.
        needed = {live: count for live, count in needed.items() if self.slots[live.number] is live}
        if not needed:
            return
        asked = []
        for live, count in needed.items():
            if grows:
                live.size = min(max(2 * live.size, FIRST), MOST_HELD)
            wanted = max(live.size, count, self._kept(live)) if live.holds else 0
            # If the answer is lost, the store may have taken back what was offered: to spend it then would be
            # to show more than is allowed. To hold too little only costs another question.
            live.share = min(live.share, live.spent + wanted)
            self._note(live)
            asked.append(ShareAsked(live.quota.id, live.quota.uid, live.window, live.spent, wanted, count))
        self._number += 1
        moment = self._clock()
        # The clock was read before the question left: an answer that took long makes this process end its
        # window too early, never too late.
        now_ms, shares = await self._store.share(self._uid, self._process, self._number, asked)
        self._time = now_ms, moment
        for live, sent, share in zip(needed, asked, shares, strict=True):
            is_new = share.start_ms != live.window
            live.refresh(sent, share, moment, now_ms)
            self._paced.refresh(live, share.most, moment, is_new=is_new)
            self._due = min(self._due, live.until)
            self._note(live)

    def _note(self, live: QuotaShare) -> None:
        """Whether a quota is out now, and what is left of it."""
        if self._arrays.note(live):
            self._now = None

    def _runs_low(self, live: QuotaShare) -> None:
        if live.used_up:
            self._note(live)
        else:
            self._low.add(live)
            self._some_low.set()

    def _end_windows(self, moment: float) -> None:
        """Forget windows that are over: all are looked at when the first of them ends."""
        if moment < self._due:
            return
        for live in self.by_id.values():
            if moment >= live.until:
                live.end_window()
                self._note(live)
                self._paced.stop(live)
        self._due = min((live.until for live in self.by_id.values()), default=NEVER)


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := [*islice(rest, size)]:
        yield some
