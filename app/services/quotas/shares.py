"""The shares that this process has of the quotas of one bandit: what it spends without asking the store.

A share is a part of what a quota allows in one window, by the clock of the store. The process asks for more
ahead of need, twice as much whenever it ran low, and gives back what it does not use. It counts the time of
the store from before it asked, by a clock that never jumps: so its share ends before the window does. The
store may then say that the window goes on: so what was spent is remembered until another one has begun.

Notation
    share       what this process was granted in the window, spent or not
    out         a quota whose arms are not eligible now: it is used up, or it holds its arms back for a slice
    slice       ``SLICE_S``: which quotas with an even pace hold back is drawn anew (``pace``)
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from app.errors import QuotaReached, Unavailable
from app.indexes.snapshot import Snapshot
from app.services.quotas.left_out_blocks import LeftOutBlocks
from app.services.quotas.membership import Membership
from app.services.quotas.moment import Moment
from app.services.quotas.pace import SLICE_S, Pace
from app.services.quotas.quota_rules import BanditQuota
from app.services.quotas.quota_share import NEVER, QuotaShare, Taken
from app.storage.protocol import LEAVES, Confirmed, Held, QuotaStore, Share, ShareAsked, WriteOnce

STATES = ("open", "used_up", "held_back")

FIRST = 8  # how much is asked for where there is none
IDLE, LARGE = 10, 16  # a half goes back after so many idle rounds, or of so many times what is used
MOST_HELD = 100_000  # of one quota, by one process, besides what it needs
TOGETHER = 500  # quotas that one script counts for
RELEASE_MARGIN_MS = 60_000  # after a deferred decision has expired
LOOKED_AT = 1_000  # quotas in each round, besides those that were spent of
FOREVER_MS = 2**52
ASKS = 20  # for one choice


class Shares:
    """See the module. For the event loop.

    ``low``: is set when something is to be asked of the store soon: ``refill`` does it.
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
        self._process = secrets.token_hex(8)  # no other has, or will have, this name
        self._clock = clock
        self._rng = rng or np.random.default_rng()
        self._asking = asyncio.Lock()
        self._number = 0
        self._time = 0, 0.0  # of the store in ms, when it was heard
        self.lives: list[QuotaShare] = []
        self._due = NEVER  # when something changes by itself
        self._slice_ends = -NEVER
        self._next = 0  # to be looked at
        self._low: set[QuotaShare] = set()
        self._some_low = low
        self._pace = Pace(0)
        self._blocks = LeftOutBlocks(words, bandit_uid, low)
        self._set([])

    async def become(self, quotas: Sequence[BanditQuota]) -> None:
        """Serve these quotas, and hear of them; what is known of those that stay is kept.

        Raises Unavailable.
        """
        async with self._asking:
            self._set(quotas)
            for start in range(0, len(self.lives), TOGETHER):
                await self._ask(dict.fromkeys(self.lives[start : start + TOGETHER], 0), grows=False)

    def _set(self, quotas: Sequence[BanditQuota]) -> None:
        before = {live.quota.uid: live for live in self.lives}
        self.lives = [before.get(quota.uid) or QuotaShare(quota) for quota in quotas]
        for number, (live, quota) in enumerate(zip(self.lives, quotas, strict=True)):
            live.number, live.quota = number, quota
        self.by_id = {live.quota.id: live for live in self.lives}
        self.members = Membership([quota.rule for quota in quotas])
        self._set_pace()
        self._used_up = np.zeros(len(quotas) + 1, dtype=np.bool_)
        self._held_back = np.zeros(len(quotas) + 1, dtype=np.bool_)
        self._scarce: set[QuotaShare] = set()
        self._now: Moment | None = None
        self._blocks.become(self.lives)
        for live in self.lives:
            self._note(live)

    def _set_pace(self) -> None:
        before = self._pace
        self._paced = [n for n, live in enumerate(self.lives) if live.quota.rule.pace == "even"]
        self._pace = Pace(len(self._paced))
        places = {number: place for place, number in enumerate(self._paced)}
        for live in self.lives:
            its_place, live.paced = live.paced, places.get(live.number, -1)
            if its_place >= 0 and live.paced >= 0:
                self._pace.take_over(live.paced, before, its_place)

    @property
    def now_ms(self) -> int:
        """About the time of the store."""
        heard_ms, moment = self._time
        return heard_ms + round(1_000 * (self._clock() - moment))

    def now(self) -> Moment:
        """The quotas now. Cost: nothing but once in a slice, or after one was used up."""
        self._end_windows()
        if self._paced and (moment := self._clock()) >= self._slice_ends:
            self._draw(moment)
        if self._now is None:
            out = self._used_up | self._held_back
            self._now = Moment(self._blocks, self._scarce_by, self.lives, self.members, out)
        return self._now

    def states(self) -> Mapping[str, int]:
        """How many quotas are in which state in this process."""
        used_up, held_back = self._used_up[:-1], self._held_back[:-1] & ~self._used_up[:-1]
        counts = int(used_up.sum()), int(held_back.sum())
        return {"used_up": counts[0], "held_back": counts[1], "open": len(self.lives) - sum(counts)}

    def _scarce_by(self, k: int) -> Mapping[int, int]:
        return {live.number: live.left for live in self._scarce if live.left < k}

    async def take(self, snapshot: Snapshot, rows: Iterable[int]) -> Taken | None:
        """Spend one for each of these arms, of each of its quotas; None: some have too few left by now.

        Awaits nothing while this process has enough. Raises Unavailable.
        """
        needed = self.needed(snapshot, rows)
        for _ in range(ASKS):
            lacking = self._lacking(needed)
            if not lacking:
                break
            if any(live.used_up for live in lacking):
                return None
            async with self._asking:
                asked = {live: needed[live] for live in self._lacking(needed) if not live.used_up}
                if asked:
                    await self._ask(asked, grows=True)
        else:
            raise Unavailable("a window of a quota is over before the store has answered")
        taken: list[tuple[QuotaShare, int, int]] = []
        for live, count in needed.items():
            if live.holds:
                self._spend(live, count)
                taken.append((live, count, live.window))
                if live.left <= live.size // 2 and live.quota.rule.counts == "shown":
                    self._runs_low(live)
        return taken

    async def reward(self, snapshot: Snapshot, rewarded: Sequence[tuple[str, str | None]]) -> None:
        """Count rewards of arms, each of a signal if there are some.

        Raises Unavailable: whether they were counted is not known then.
        """
        self.members.follow(snapshot)
        counts = Counter[QuotaShare]()
        rows = snapshot.table.row_of_each([arm for arm, _ in rewarded]).tolist()
        for row, (_, signal) in zip(rows, rewarded, strict=True):
            counts.update(live for live in self._of(row) if live.quota.rule.counts_reward_of(signal))
        if counts:
            named = {live.quota.id: count for live, count in counts.items()}
            await self._store.reward(self._uid, named)
            async with self._asking:
                await self._ask(dict.fromkeys(counts, 0), grows=False)

    async def hold(self, decision: str, taken: Taken, *, expires_ms: int) -> None:
        """What a deferred decision took is given back when it expires. Raises QuotaReached, Unavailable."""
        held = [
            Held(live.quota.id, live.quota.uid, window, count, limits=live.quota.rule.counts == "shown")
            for live, count, window in taken
        ]
        if held and not await self._store.hold(self._uid, decision, held, expires_ms=expires_ms):
            self.give_back(taken)
            raise QuotaReached("as many deferred decisions wait as may wait: activate them")

    async def confirm(self, decision: str, *, expires_ms: int) -> Confirmed:
        """A deferred decision was shown. Raises Unavailable."""
        return await self._store.confirm(
            self._uid, decision, expires_ms=expires_ms, margin_ms=RELEASE_MARGIN_MS
        )

    def _spend(self, live: QuotaShare, count: int) -> None:
        live.spent += count
        if live.paced >= 0:
            self._pace.show(live.paced, count)

    def needed(self, snapshot: Snapshot, rows: Iterable[int]) -> dict[QuotaShare, int]:
        """How much these arms take of each quota."""
        self.members.follow(snapshot)
        needed: dict[QuotaShare, int] = {}
        for row in rows:
            for live in self._of(row):
                needed[live] = needed.get(live, 0) + 1
        return needed

    def _of(self, row: int) -> Iterator[QuotaShare]:
        """The quotas of an arm; none of one that is gone: -1."""
        return (self.lives[number] for number in self.members.of(row)) if row >= 0 else iter(())

    def give_back(self, taken: Taken) -> None:
        """What was taken was not shown. Of a window that is over nothing is given back."""
        for live, count, window in taken:
            if live.window == window:
                self._spend(live, -count)
                self._note(live)

    async def look(self) -> None:
        """Report what was spent, give back what is not used, and hear of the others."""
        await self._blocks.keep()
        self._end_windows()
        async with self._asking:
            lives = self._worth_a_look()
            for start in range(0, len(lives), TOGETHER):
                await self._ask(dict.fromkeys(lives[start : start + TOGETHER], 0), grows=False)
        await self._store.release(self._uid, margin_ms=RELEASE_MARGIN_MS, count=TOGETHER)

    async def refill(self) -> None:
        """Ask for more where a share runs low."""
        await self._blocks.keep()
        if not self._low:
            return
        async with self._asking:
            low, self._low = [live for live in self._low if not live.used_up], set()
            for start in range(0, len(low), TOGETHER):
                await self._ask(dict.fromkeys(low[start : start + TOGETHER], 0), grows=True)

    async def end(self) -> None:
        """Give everything back."""
        await self._blocks.keep()
        async with self._asking:
            own = [live for live in self.lives if live.share > 0 or live.spent > 0]
            for live in own:
                live.size = 0
            for start in range(0, len(own), TOGETHER):
                await self._ask(dict.fromkeys(own[start : start + TOGETHER], LEAVES), grows=False)

    async def hear(self, live: QuotaShare) -> None:
        """Know a quota as it is now in the store."""
        self._end_windows()
        async with self._asking:
            await self._ask({live: 0}, grows=False)

    def _lacking(self, needed: Mapping[QuotaShare, int]) -> list[QuotaShare]:
        self._end_windows()
        return [
            live
            for live, count in needed.items()
            if live.holds and live.left < count and live.quota.rule.counts == "shown"
        ]

    def _worth_a_look(self) -> list[QuotaShare]:
        """Those that were spent of or have something left, and some of those that others may have changed."""
        own = [live for live in self.lives if live.left > 0 or live.spent != live.reported]
        first, self._next = self._next, self._next + LOOKED_AT
        if self._next >= len(self.lives):
            self._next = 0
        return list(dict.fromkeys((*own, *self.lives[first : first + LOOKED_AT])))

    async def _ask(self, needed: Mapping[QuotaShare, int], *, grows: bool) -> None:
        """Change the shares of these quotas. ``needed``: what each must hold, if it can. ``grows``: ran low.

        The caller holds ``_asking``. What is given back is not spent from now on, whatever the answer.
        """
        asked = []
        for live, count in needed.items():
            if grows:
                live.size = min(max(2 * live.size, FIRST), MOST_HELD)
            live.idle = live.idle + 1 if live.spent == live.reported else 0
            if not grows and (live.idle >= IDLE or live.spent - live.reported < live.size // LARGE):
                live.size //= 2
            wanted = max(live.size, count) if live.holds else 0
            live.share = min(live.share, live.spent + wanted)
            asked.append(ShareAsked(live.quota.id, live.quota.uid, live.window, live.spent, wanted, count))
        self._number += 1
        moment = self._clock()
        now_ms, shares = await self._store.share(self._uid, self._process, self._number, asked)
        self._time = now_ms, moment
        for live, sent, share in zip(needed, asked, shares, strict=True):
            self._hear(live, sent, share, moment, now_ms)
            self._note(live)

    def _hear(self, live: QuotaShare, sent: ShareAsked, share: Share, moment: float, now_ms: int) -> None:
        is_new = share.start_ms != live.window
        if is_new:
            live.begin_window(share.start_ms)
        live.holds = share.known and share.holds
        live.ends_ms = share.until_ms if share.until_ms < FOREVER_MS else None
        live.until = moment + (share.until_ms - now_ms) / 1_000 if share.known else NEVER
        self._due = min(self._due, live.until)
        live.began = moment + (share.start_ms - now_ms) / 1_000
        own = sent.spent if sent.window_ms == share.start_ms else 0
        live.share, live.granted, live.rewarded = share.mine, share.granted, share.rewarded
        live.others, live.reported = share.spent - own, own
        live.size = min(live.size, share.fair) if share.holds else 0
        counted = share.rewarded if live.quota.rule.counts == "rewarded" else share.granted
        live.used_up = live.holds and counted >= share.most
        if live.paced >= 0 and live.holds and live.ends_ms is not None:
            self._pace.hear(
                live.paced,
                most=share.most,
                began=live.began,
                until=live.until,
                shown=live.others + live.spent,
                moment=moment,
                is_new=is_new,
            )
        elif live.paced >= 0:
            self._pace.stop(live.paced)

    def _note(self, live: QuotaShare) -> None:
        """Whether a quota is out now."""
        if live.number >= len(self.lives) or self.lives[live.number] is not live:
            return  # it was deleted
        is_scarce = live.used_up and live.holds and live.quota.rule.counts == "shown"
        is_out = live.used_up and live.holds and (not is_scarce or live.left <= 0)
        (self._scarce.add if is_scarce and not is_out else self._scarce.discard)(live)
        if is_out != self._used_up[live.number]:
            self._used_up[live.number] = is_out
            self._now = None

    def _runs_low(self, live: QuotaShare) -> None:
        if live.used_up:
            self._note(live)
        else:
            self._low.add(live)
            self._some_low.set()

    def _end_windows(self) -> None:
        """Forget windows that are over. Cost: nothing while none is."""
        moment = self._clock()
        if moment < self._due:
            return
        for live in self.lives:
            if moment >= live.until:
                live.end_window()
                self._note(live)
                if live.paced >= 0:
                    self._pace.stop(live.paced)
        self._due = min((live.until for live in self.lives), default=NEVER)

    def _draw(self, moment: float) -> None:
        """Which quotas hold their arms back in the slice that begins now."""
        held = self._pace.draw(moment, self._rng)
        if not np.array_equal(held, self._held_back[self._paced]):
            self._held_back[self._paced] = held
            self._now = None
        self._slice_ends = moment + SLICE_S
