"""Keeps what is known of which arms quotas are for in step with a catalogue, and with the quotas.

Filters are evaluated once for each quota that is new, and once for each arm that comes or is described again,
in a thread where that takes long. What is not known yet is never shown: choices wait for a new quota, and for
a table that numbers its rows again; arms that came or changed are not eligible until their quotas are known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.caps.membership import MAX_OF_ARM, MAX_PAIRS, NONE, STEP, Membership, Pairs, Rows32, split
from app.caps.membership_filters import QuotaFilters, pairs_of
from app.caps.rules import QuotaRule
from app.indexes.snapshot import Snapshot
from app.platform.deadlines import task_for_all, yield_to_others
from app.platform.errors import Invalid
from app.platform.long_work import LongWork
from shortlist.types import NO_ROWS, Rows

T = TypeVar("T")

BATCH_SIZE = 100_000  # rows that are described together: a bound on memory
ASIDE_S = 60.0  # a choice takes less
MANY = 0.1  # of the rows: choices wait for them once, rather than to find none
EVALUATING = LongWork(threads=2, waiting=256, name="quotas")


class _CatalogueMoment(NamedTuple):
    """Which snapshot is known; ``stamp``, ``entries`` and ``dead``: how much had happened by then."""

    number: int
    generation: int
    stamp: int
    entries: int
    dead: int
    rows: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> _CatalogueMoment:
        table, attributes = snapshot.whole.table, snapshot.attributes
        return cls(
            table.number,
            attributes.generation,
            attributes.stamp,
            attributes.entries,
            len(table.dead),
            table.rows,
        )

    def has(self, other: _CatalogueMoment) -> bool:
        """Whether the other one is the same or an earlier one of the same table."""
        return (
            self.number == other.number
            and self.stamp >= other.stamp
            and self.dead >= other.dead
            and self.rows >= other.rows
        )


class _Aside(NamedTuple):
    """What is known of the arms of another catalogue: one that was left, or is followed soon."""

    known: _CatalogueMoment
    members: Membership
    filters: QuotaFilters
    until: float


class FollowedMembership:
    """See the module. For the event loop.

    ``changed`` is called when other arms are eligible than before, or rows count for other quotas.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.members = Membership()
        self._known: _CatalogueMoment | None = None
        self._current: Snapshot | None = None  # that was found to be of the moment that is known
        self._filters = QuotaFilters()
        self._new: dict[int, QuotaRule] = {}
        self._gone: set[int] = set()
        self._free: list[int] = []
        self._numbers = 0
        self._waiting = 0  # rows
        self._latest: Snapshot | None = None  # that was marked, while something is to be found
        self._marked: list[Rows] = []  # while filters are evaluated
        self._aside: dict[int, _Aside] = {}  # by table: choices of before a move may go on after it
        self._update: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    # Quotas

    def add(self, rule: QuotaRule) -> int:
        """A new quota: its number. Its arms are looked for by the next that is to be ``ready``."""
        # Numbers are places in arrays that every choice reads: they stay small when quotas come and go.
        if self._free:
            number = self._free.pop()
        else:
            number, self._numbers = self._numbers, self._numbers + 1
        self._new[number] = rule
        return number

    def remove(self, number: int) -> None:
        """A quota is gone. Another one gets its number later."""
        # Not now: its pairs are many, and a change may be under way. Its number is not free before they are
        # gone.
        self._gone.add(number)

    async def check(self, snapshot: Snapshot, rule: QuotaRule) -> None:
        """Raise Invalid, naming an arm, if there is no room for a new quota; Unavailable."""
        await self.ready(snapshot)
        # Nearly always: then the filter need not be evaluated before the quota is made.
        if not self.members.is_nearly_full:
            return
        alone, rows = QuotaFilters({0: rule}), snapshot.whole.table.live_rows
        found = await self._evaluated(partial(alone.found, snapshot, rows), alone.is_long(snapshot, rows))
        own = found[0][1] if found else NO_ROWS.astype(np.int32)
        if self._known is None or self._known.number != snapshot.whole.table.number:
            return  # its rows have other numbers now; those that are beyond are not eligible
        # Arms that came while the filter was evaluated are judged when they are described.
        row = self.members.beyond_with(own[own < len(self.members)])
        if row != NONE:
            arm = snapshot.whole.table.ids[row]
            limit = f"{MAX_OF_ARM} quotas of a bandit" if self.members.counts[row] >= MAX_OF_ARM else ""
            text = (
                f"the arm {arm} would count for more than {limit}"
                if limit
                else (
                    f"with the arm {arm}, the arms that count for the quotas of this bandit are more than "
                    f"{MAX_PAIRS:,}, each once for each of its quotas"
                )
            )
            raise Invalid(f"{text}: choose fewer arms", path=("arm" if rule.filter is None else "filter",))

    # Arms

    @property
    def hidden(self) -> Rows:
        """Rows that are not eligible whatever is left of quotas: beyond the limits, or not known yet."""
        members = self.members
        return np.flatnonzero((members.waiting | members.beyond) & ~members.dead)

    @property
    def beyond(self) -> int:
        """How many arms are not eligible, since they would count for too many quotas."""
        return int(np.count_nonzero(self.members.beyond))

    def follow(self, current: Snapshot) -> None:
        """Follow another catalogue where its table is an earlier one: of one, none is newer than that of now.

        A bandit that is moved has the same quotas over other rows. ``current``: taken from the index now.
        """
        # Numbers of tables grow in one catalogue: an older one than what is known is of another.
        if self._known is not None and self._known.number > current.whole.table.number:
            self._set_aside()
            self._known, self._current, self._latest, self._marked = None, None, None, []

    async def prepare(self, snapshot: Snapshot) -> None:
        """Find the arms of the quotas in another catalogue, which is followed soon. Raises Unavailable.

        Choices go on meanwhile, and do not wait for it then. It is dropped if it is not followed within
        ``ASIDE_S``.
        """
        other = FollowedMembership(lambda: None)
        other._new = self._filters.rules | self._new
        while not await other.ready(snapshot) or other._waiting:
            if other._update is not None:
                await asyncio.shield(other._update)
        other._set_aside()
        self._aside |= other._aside

    def tidy(self) -> None:
        """Drop what is known of catalogues that are not followed any more, or not yet."""
        now = time.monotonic()
        self._aside = {number: each for number, each in self._aside.items() if each.until > now}

    def _set_aside(self) -> None:
        if self._known is not None:
            # Not forever: it has an entry for each row of its catalogue.
            until = time.monotonic() + ASIDE_S
            self._aside[self._known.number] = _Aside(self._known, self.members, self._filters, until)

    async def ready(self, snapshot: Snapshot) -> bool:
        """Know the quotas of the arms of a snapshot, or that they wait. False: it is out of date.

        Awaits nothing where all is known. Raises Unavailable.
        """
        if self.is_current(snapshot):
            return True
        moment, waited = _CatalogueMoment.of(snapshot), False
        while True:
            known = self._known
            # The rows of the snapshot have other numbers in the table that is known.
            if known is not None and known.number > moment.number:
                return False
            is_same = known is not None and known.number == moment.number
            if known is not None and is_same and not known.has(moment):
                self._mark(snapshot, known, moment)
                known = moment
            if is_same and not (self._new or self._gone or self._waiting):
                return True
            # Nothing is to be found, and yet this snapshot is not the newest: whoever holds it must take a
            # newer one.
            if self._update is None and self._latest is None and known != moment and is_same:
                return False  # what is to be found is to be found in a later one
            # One that is under way is counted as long: how far it is cannot be known.
            is_long = self._update is not None or self._is_long(snapshot)
            if self._update is None:
                self._begin(snapshot)
            if (
                is_same
                and not self._new
                # A few arms that wait are not eligible for a moment; a choice that waited for them each time
                # would stall while a catalogue is loaded. Where most wait, a list would be nearly empty, so
                # it waits once.
                and (waited or (is_long and self._waiting <= MANY * len(self.members)))
            ):
                return True
            waited = True
            if self._update is not None:
                await asyncio.shield(self._update)

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether nothing has happened since that is not known: what every choice asks."""
        if self._new or self._gone or self._waiting:
            return False
        # The same object is asked for by all choices between two changes of the catalogue.
        if snapshot is self._current:
            return True
        known, table = self._known, snapshot.whole.table
        is_current = (
            known is not None
            and known.number == table.number
            and known.stamp == snapshot.attributes.stamp
            and known.rows == table.rows
            and known.dead == len(table.dead)
        )
        if is_current:
            self._current = snapshot
        return is_current

    def _is_long(self, snapshot: Snapshot) -> bool:
        """Whether the quotas of the arms that wait are found in a thread."""
        return self._filters.is_long(self._latest or snapshot, np.flatnonzero(self.members.waiting))

    def _begin(self, snapshot: Snapshot) -> None:
        # Its own task: the request that began it may be cancelled, and others wait for it too.
        self._update = task_for_all(self._updated(snapshot))

    async def settled(self, snapshot: Snapshot, rows: Rows) -> bool:
        """Know the quotas of these rows, which may have been described again meanwhile; as ``ready``."""
        if self.is_current(snapshot):
            return True
        while await self.ready(snapshot):
            known = rows[(rows >= 0) & (rows < len(self.members))]
            if not self.members.waiting[known].any():
                return True
            if self._update is not None:
                await asyncio.shield(self._update)
        return False

    async def eligible(self, snapshot: Snapshot, out: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """The rows that are eligible while the quotas of these numbers are out: (K,). None: as ``ready``.

        Cost: that of the arms of those quotas that were not out before, or are no longer.
        """
        if not await self.ready(snapshot):
            return None
        # Few pairs: done here, without a task, so that an ordinary choice awaits nothing.
        if not self._changing.locked() and self.members.work(out) <= STEP:
            for _ in self.members.apply(out):
                pass
            return self.members.eligible()
        return await asyncio.shield(task_for_all(self._applied(snapshot, out)))

    async def _applied(self, snapshot: Snapshot, out: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        async with self._changing:
            await _stepwise(self.members.apply(out))
            known = self._known
            if known is None or known.number != snapshot.whole.table.number:
                return None
            return self.members.eligible()

    def _mark(self, snapshot: Snapshot, known: _CatalogueMoment, moment: _CatalogueMoment) -> None:
        """Rows that came or were described since are waiting. Cost: O(K) bytes."""
        members = self.members
        table, attributes = snapshot.whole.table, snapshot.attributes
        members.grow(table.rows)
        # Entries are only added within a generation, so what was described since is the tail of the list.
        described: Rows | Rows32 = attributes.rows[known.entries :]
        if known.generation != attributes.generation:
            described = attributes.given_since(known.stamp)
        described = described[(described >= 0) & (described < table.rows)]
        rows = np.union1d(described, np.arange(known.rows, table.rows))
        members.waiting[rows] = True
        if self._update is not None:
            # Filters are being evaluated over what these rows were before: what is found of them is dropped.
            self._marked.append(rows)
        # The list of the dead only grows, so those since are its tail.
        members.forget(table.dead[known.dead :])
        self._known, self._current = moment, None
        self._waiting = int(np.count_nonzero(members.waiting))
        if len(rows):
            self._latest = snapshot
            self._changed()

    async def _updated(self, snapshot: Snapshot) -> None:
        """Look for the arms of quotas that are new, and for the quotas of arms that are."""
        try:
            await self._change(snapshot)
        finally:  # not by a callback: until that is called, others would wait for what has ended
            self._update = None
        if self._latest is not None:
            self._begin(self._latest)

    async def _change(self, snapshot: Snapshot) -> None:
        async with self._changing:
            number = snapshot.whole.table.number
            if self._known is None or self._known.number != number:
                await self._move(snapshot)
            elif self._latest is not None and self._latest.whole.table.number == number:
                snapshot = self._latest
            # From here on what is marked is newer than the snapshot whose arms are described below.
            self._marked, self._latest = [], None
            # Before new ones: a number may be given to another quota only when its pairs are gone.
            await self._remove()
        new = dict(self._new)  # choices wait for them
        try:
            await self._find(snapshot, self.members, QuotaFilters(new))
        except BaseException:
            # Else nobody would look for the arms again, and choices would wait for a quota that never comes.
            self._latest = self._latest or snapshot
            raise

    async def _find(self, snapshot: Snapshot, members: Membership, new: QuotaFilters) -> None:
        everything = self._filters
        # The rest stays waiting and is found by the next update: memory is bounded by a batch, and choices
        # are let in between.
        waiting = np.flatnonzero(members.waiting)[:BATCH_SIZE]
        others = np.flatnonzero(~(members.waiting | members.dead)) if len(new) else NO_ROWS

        def evaluated() -> tuple[list[tuple[int, Rows32]], Pairs]:
            own = new.found(snapshot, others)
            found = (
                [*everything.found(snapshot, waiting), *new.found(snapshot, waiting)] if len(waiting) else []
            )
            return own, pairs_of(found)

        is_long = everything.is_long(snapshot, waiting) or new.is_long(snapshot, others)
        # Not within ``_changing``: choices that bar the arms of used-up quotas would wait for each thread.
        of_new, pairs = await self._evaluated(evaluated, is_long)
        async with self._changing:
            rows_of = dict(of_new)
            for number, rule in new.rules.items():
                await _stepwise(members.add(number, rows_of.get(number, NO_ROWS.astype(np.int32))))
                everything.add(number, rule)
            # A row that died while filters were evaluated must not be counted as living again.
            stale = members.dead[waiting]
            if self._marked:  # they are looked at again
                stale |= np.isin(waiting, np.concatenate(self._marked))
            await _stepwise(
                members.describe(waiting[~stale], pairs[~stale[waiting.searchsorted(split(pairs)[0])]])
            )
            for number in new.rules:
                del self._new[number]
            self._waiting = int(np.count_nonzero(members.waiting))
            self._changed()  # before anything is awaited: from here on it is current
            if self._waiting and self._latest is None:
                self._latest = snapshot
            if members.is_wasteful:
                # A compaction is a move in which every row keeps its place.
                self.members = await _last(members.moved(np.arange(len(members)), len(members)))
                # Arms died or were described while it was copied step by step.
                self.members.catch_up(members)

    async def _remove(self) -> None:
        gone, self._gone = self._gone, set()
        for number in gone:
            # One that was still new has no pairs: it was put and deleted before its arms were looked for.
            if self._new.pop(number, None) is None:
                self._filters.remove(number)
                await _stepwise(self.members.remove(number))
            self._free.append(number)

    async def _move(self, snapshot: Snapshot) -> None:
        """Follow to another table; what is not known of its rows is waiting."""
        table, known, before = snapshot.whole.table, self._known, self.members
        renumbered, aside = table.renumbered, self._aside.pop(table.number, None)
        if aside is not None:
            # What is left is kept for a while too: a bandit that is moved back finds it.
            self._set_aside()
            await self._take_up(aside, snapshot)
            return
        # Only the step from the very table that is known says where its rows are now. After two steps in
        # between everything is evaluated again.
        if known is not None and renumbered is not None and renumbered.number == known.number:
            self.members = await _last(before.moved(renumbered.positions, table.rows))
            # What happened before the rows were numbered again was noted by the stamps that went with them.
            described = snapshot.attributes.given_since(known.stamp)
            self.members.waiting[described[described < table.rows]] = True
        else:
            self._set_aside()
            rules = self._filters.rules
            # Nothing is known of these rows: so all quotas are new to them, and choices wait.
            self._filters, self._new = QuotaFilters(), rules | self._new
            self.members = Membership(table.rows)
        self.members.forget(table.dead)
        self._waiting = int(np.count_nonzero(self.members.waiting))
        self._known, self._current = _CatalogueMoment.of(snapshot), None
        self._changed()

    async def _take_up(self, aside: _Aside, snapshot: Snapshot) -> None:
        """Go on with what is known of another catalogue; what has changed since is waiting, or new."""
        rules = self._filters.rules | self._new
        self.members, self._filters = aside.members, aside.filters
        for number, rule in tuple(self._filters.rules.items()):
            if rules.get(number) is not rule:  # it is gone; maybe another one has its number
                self._filters.remove(number)
                await _stepwise(self.members.remove(number))
        self._new = {number: rule for number, rule in rules.items() if number not in self._filters.rules}
        self._known, self._current, moment = aside.known, None, _CatalogueMoment.of(snapshot)
        if moment.has(aside.known):
            self._mark(snapshot, aside.known, moment)
        self._changed()

    @staticmethod
    async def _evaluated(work: Callable[[], T], is_long: bool) -> T:
        return await EVALUATING.run(work) if is_long else work()


async def _stepwise(steps: Iterator[object]) -> None:
    for _ in steps:
        await yield_to_others()


async def _last(steps: Iterator[Membership | None]) -> Membership:
    result = None
    for each in steps:
        result = each
        await yield_to_others()
    assert result is not None  # noqa: S101 - the last one is the result
    return result
