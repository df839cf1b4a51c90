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
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.errors import QuotaReached, Unavailable
from app.indexes.snapshot import Snapshot
from app.indexes.without_rows import without_rows
from app.services.formats.left_out import (
    BLOCK,
    MOST_BLOCKS,
    NOT_KEPT,
    Counted,
    block_name,
    packed,
    text_of,
    today,
)
from app.services.quotas.membership import Membership
from app.services.quotas.pace import SLICE_S, Pace
from app.services.quotas.quota_rules import BanditQuota
from app.storage.protocol import LEAVES, Confirmed, Held, QuotaStore, Share, ShareAsked, WriteOnce
from shortlist.types import Rows

T = TypeVar("T")
STATES = ("open", "used_up", "held_back")

FIRST = 8  # how much is asked for where there is none
IDLE, LARGE = 10, 16  # a half goes back after so many idle rounds, or of so many times what is used
MOST_HELD = 100_000  # of one quota, by one process, besides what it needs
TOGETHER = 500  # quotas that one script counts for
RELEASE_MARGIN_MS = 60_000  # after a deferred decision has expired
LOOKED_AT = 1_000  # quotas in each round, besides those that were spent of
NEVER, FOREVER_MS = float("inf"), 2**52
MADE_KEPT = 64
ASKS = 20  # for one choice


@dataclass(slots=True, eq=False)
class Live:
    """One quota as this process knows it. Times are monotonic seconds.

    ``size``: how much to hold; ``idle``: rounds since it was spent of. ``paced``: its place among those with
    an even pace, -1 of another.
    """

    quota: BanditQuota
    number: int = 0
    holds: bool = True
    window: int = -1
    ends_ms: int | None = None
    until: float = NEVER
    began: float = 0.0
    share: int = 0
    spent: int = 0
    reported: int = 0
    others: int = 0
    granted: int = 0
    rewarded: int = 0
    used_up: bool = False
    size: int = 0
    idle: int = 0
    paced: int = -1

    @property
    def left(self) -> int:
        return self.share - self.spent

    def end_window(self) -> None:
        """Its window is over, or will be soon: nothing more is spent in it. Of the next nothing is known."""
        self.until, self.share, self.used_up, self.holds = NEVER, 0, False, True

    def begin_window(self, start_ms: int) -> None:
        """Another window has begun."""
        self.window, self.spent, self.reported = start_ms, 0, 0


Taken = Sequence[tuple[Live, int, int]]
"""How much was spent of each quota, and in which window."""


@dataclass(frozen=True, slots=True, eq=False)
class Few:
    """How much is left of some quotas: of each by its number."""

    members: Membership
    left: Mapping[int, int]

    def pairs(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32], Rows]:
        """Positions in ``rows`` and codes of their quotas (v,), and how much is left of each code.

        ``rows``: of a snapshot that the members follow.
        """
        places, codes = self.members.pairs(rows, [*self.left])
        return places, codes, np.array([*self.left.values()])


@dataclass(eq=False)
class Now:
    """The quotas of a bandit at one moment. ``out``: of each, and False at last."""

    shares: Shares
    lives: Sequence[Live]
    members: Membership
    out: NDArray[np.bool_]
    _made: dict[Snapshot, Snapshot] = field(default_factory=dict)
    _left_out: tuple[int, str] = -1, ""

    def left_out(self, *, ttl_ms: int) -> str:
        """The arms that are out, as a row of the log names them.

        What that needs is stored soon, for ``ttl_ms``. Not known where quotas came or went meanwhile.
        """
        if self.lives is not self.shares.lives:
            return NOT_KEPT
        day = today()
        if self._left_out[0] != day:
            self._left_out = day, self.shares.named(self.out, day=day, ttl_ms=ttl_ms)
        return self._left_out[1]

    def eligible(self, base: Snapshot) -> Snapshot:
        """``base`` without the arms of quotas that are out. Made once; then it costs nothing."""
        if not self.out.any():
            return base
        made = self._made.get(base)
        if made is None:
            if len(self._made) >= MADE_KEPT:
                self._made.clear()
            self.members.follow(base)
            made = self._made[base] = without_rows(base, self.members.are_out(self.out, base.table.rows))
        return made

    def standing(self, pins: Sequence[tuple[T, int]], whole: Snapshot) -> list[T]:
        """Those pins that quotas leave, the first ones first. Each has the row of its arm, -1: it is gone."""
        members, lives = self.members, self.lives
        members.follow(whole)
        standing, taken = list[T](), dict[int, int]()
        for pin, row in pins:
            own = [n for n in members.of(row) if lives[n].used_up] if row >= 0 else []
            if not any(self.out[n] or lives[n].left <= taken.get(n, 0) for n in own):
                taken |= {n: taken.get(n, 0) + 1 for n in own}
                standing.append(pin)
        return standing

    def few(self, k: int) -> Few | None:
        """The quotas of which fewer than k are left."""
        scarce = {} if k == 1 else self.shares.scarce(k)
        return Few(self.members, scarce) if scarce else None


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
        self._words = words
        self._uid = bandit_uid
        self._process = secrets.token_hex(8)  # no other has, or will have, this name
        self._clock = clock
        self._rng = rng or np.random.default_rng()
        self._asking = asyncio.Lock()
        self._number = 0
        self._time = 0, 0.0  # of the store in ms, when it was heard
        self.lives: list[Live] = []
        self._due = NEVER  # when something changes by itself
        self._slice_ends = -NEVER
        self._next = 0  # to be looked at
        self._low: set[Live] = set()
        self._some_low = low
        self._pace = Pace(0)
        self._unkept: dict[str, tuple[bytes, int]] = {}
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
        self.lives = [before.get(quota.uid) or Live(quota) for quota in quotas]
        for number, (live, quota) in enumerate(zip(self.lives, quotas, strict=True)):
            live.number, live.quota = number, quota
        self.by_id = {live.quota.id: live for live in self.lives}
        self.members = Membership([quota.rule for quota in quotas])
        self._set_pace()
        self._used_up = np.zeros(len(quotas) + 1, dtype=np.bool_)
        self._held_back = np.zeros(len(quotas) + 1, dtype=np.bool_)
        self._scarce: set[Live] = set()
        self._now: Now | None = None
        self._blocks: dict[int, tuple[int, str]] = {}
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

    def now(self) -> Now:
        """The quotas now. Cost: nothing but once in a slice, or after one was used up."""
        self._end_windows()
        if self._paced and (moment := self._clock()) >= self._slice_ends:
            self._draw(moment)
        if self._now is None:
            self._now = Now(self, self.lives, self.members, self._used_up | self._held_back)
        return self._now

    def states(self) -> Mapping[str, int]:
        """How many quotas are in which state in this process."""
        used_up, held_back = self._used_up[:-1], self._held_back[:-1] & ~self._used_up[:-1]
        counts = int(used_up.sum()), int(held_back.sum())
        return {"used_up": counts[0], "held_back": counts[1], "open": len(self.lives) - sum(counts)}

    def scarce(self, k: int) -> Mapping[int, int]:
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
        taken: list[tuple[Live, int, int]] = []
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
        counts = Counter[Live]()
        rows = snapshot.table.row_of_each([arm for arm, _ in rewarded]).tolist()
        for row, (_, signal) in zip(rows, rewarded, strict=True):
            counts.update(live for live in self._of(row) if live.quota.rule.counts_reward_of(signal))
        if counts:
            named = {live.quota.id: count for live, count in counts.items()}
            await self._store.reward(self._uid, named)
            async with self._asking:
                await self._ask(dict.fromkeys(counts, 0), grows=False)

    def named(self, out: NDArray[np.bool_], *, day: int, ttl_ms: int) -> str:
        """Which quotas are out, as a row of the log names them. Blocks that are new are stored soon."""
        numbers = np.flatnonzero(out).tolist()
        masks = dict[int, int]()
        for number in numbers:
            block, place = divmod(number, BLOCK)
            masks[block] = masks.get(block, 0) | 1 << place
        if len(masks) > MOST_BLOCKS:
            return NOT_KEPT
        return text_of((self._block(block, day, ttl_ms), mask) for block, mask in masks.items())

    def _block(self, block: int, day: int, ttl_ms: int) -> str:
        """The name of a block of quotas for a day."""
        known = self._blocks.get(block)
        if known is not None and known[0] == day:
            return known[1]
        lives = self.lives[block * BLOCK : (block + 1) * BLOCK]
        name, data = packed([Counted(live.quota.rule.filter, live.quota.rule.arm) for live in lives], day)
        self._blocks[block] = day, name
        self._unkept[name] = data, ttl_ms
        self._some_low.set()
        return name

    async def _keep(self) -> None:
        """Store what rows of the log name. Raises Unavailable: it is tried again."""
        for name, (data, ttl_ms) in tuple(self._unkept.items()):
            await self._words.put(None, block_name(self._uid, name), data, ttl_ms=ttl_ms)
            self._unkept.pop(name, None)

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

    def _spend(self, live: Live, count: int) -> None:
        live.spent += count
        if live.paced >= 0:
            self._pace.show(live.paced, count)

    def needed(self, snapshot: Snapshot, rows: Iterable[int]) -> dict[Live, int]:
        """How much these arms take of each quota."""
        self.members.follow(snapshot)
        needed: dict[Live, int] = {}
        for row in rows:
            for live in self._of(row):
                needed[live] = needed.get(live, 0) + 1
        return needed

    def _of(self, row: int) -> Iterator[Live]:
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
        await self._keep()
        self._end_windows()
        async with self._asking:
            lives = self._worth_a_look()
            for start in range(0, len(lives), TOGETHER):
                await self._ask(dict.fromkeys(lives[start : start + TOGETHER], 0), grows=False)
        await self._store.release(self._uid, margin_ms=RELEASE_MARGIN_MS, count=TOGETHER)

    async def refill(self) -> None:
        """Ask for more where a share runs low."""
        await self._keep()
        if not self._low:
            return
        async with self._asking:
            low, self._low = [live for live in self._low if not live.used_up], set()
            for start in range(0, len(low), TOGETHER):
                await self._ask(dict.fromkeys(low[start : start + TOGETHER], 0), grows=True)

    async def end(self) -> None:
        """Give everything back."""
        await self._keep()
        async with self._asking:
            own = [live for live in self.lives if live.share > 0 or live.spent > 0]
            for live in own:
                live.size = 0
            for start in range(0, len(own), TOGETHER):
                await self._ask(dict.fromkeys(own[start : start + TOGETHER], LEAVES), grows=False)

    async def hear(self, live: Live) -> None:
        """Know a quota as it is now in the store."""
        self._end_windows()
        async with self._asking:
            await self._ask({live: 0}, grows=False)

    def _lacking(self, needed: Mapping[Live, int]) -> list[Live]:
        self._end_windows()
        return [
            live
            for live, count in needed.items()
            if live.holds and live.left < count and live.quota.rule.counts == "shown"
        ]

    def _worth_a_look(self) -> list[Live]:
        """Those that were spent of or have something left, and some of those that others may have changed."""
        own = [live for live in self.lives if live.left > 0 or live.spent != live.reported]
        first, self._next = self._next, self._next + LOOKED_AT
        if self._next >= len(self.lives):
            self._next = 0
        return list(dict.fromkeys((*own, *self.lives[first : first + LOOKED_AT])))

    async def _ask(self, needed: Mapping[Live, int], *, grows: bool) -> None:
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

    def _hear(self, live: Live, sent: ShareAsked, share: Share, moment: float, now_ms: int) -> None:
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

    def _note(self, live: Live) -> None:
        """Whether a quota is out now."""
        if live.number >= len(self.lives) or self.lives[live.number] is not live:
            return  # it was deleted
        is_scarce = live.used_up and live.holds and live.quota.rule.counts == "shown"
        is_out = live.used_up and live.holds and (not is_scarce or live.left <= 0)
        (self._scarce.add if is_scarce and not is_out else self._scarce.discard)(live)
        if is_out != self._used_up[live.number]:
            self._used_up[live.number] = is_out
            self._now = None

    def _runs_low(self, live: Live) -> None:
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
