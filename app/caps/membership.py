"""Which quotas each arm counts for, as arrays of pairs (row, quota). For the event loop.

Notation
    row         of a table of arms; K of them
    number      of a quota; one that was deleted may be given to another
    entry       a pair: the number of a quota, and the entry of the same row before it (a list of each row)
    m           rows of a quota, or of a change

The pairs are held twice: by row, to know what an arm takes, and by quota, to know what a used-up quota bars.
Nothing here costs more than the pairs that change. Whatever changes many yields after each ``STEP`` of them,
so that others may go on; only one such change may be under way. What ``quotas_of`` reads is never written
over, but by later moments of the same rows: so other threads may call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist.types import NO_ROWS, Rows

MAX_QUOTAS = 10_000
MAX_OF_ARM = 64
MAX_PAIRS = 20_000_000

Numbers = NDArray[np.int16]
Rows32 = NDArray[np.int32]
Pairs = NDArray[np.int64]
"""Ascending keys (v,) of pairs, each once: see ``keys``."""

STEP = 500_000  # pairs that change together: a few milliseconds
DESCRIBED = 20_000  # likewise, where those of a row are compared with what they were
NONE = -1
_NEVER = np.iinfo(np.int32).max
_BITS = 16  # of a number, in a key
_SPARE = 1.5
_FEWER = 4  # one of so many rows counts for some quotas: those rows are marked, rather than all asked
_GARBAGE = 1 << 20  # entries of pairs that are gone, before they are worth a compaction


def keys(rows: Rows | Rows32, numbers: Numbers | int) -> Pairs:
    """Keys of pairs, which ascend by row and then by number. Shapes: (v,), (v,) -> (v,)."""
    pairs: Pairs = (rows.astype(np.int64) << _BITS) | numbers
    return pairs


def split(pairs: Pairs) -> tuple[Rows, Numbers]:
    """The rows and the numbers of keys."""
    return pairs >> _BITS, (pairs & ((1 << _BITS) - 1)).astype(np.int16)


class _Chains(NamedTuple):
    """``newest`` (K,): the last entry of each row; of each entry its quota and the one before it."""

    newest: Rows32
    numbers: Numbers
    before: Rows32


class _QuotaRows:
    """The rows of one quota, each once."""

    def __init__(self, rows: Rows32) -> None:
        self._rows, self._count, self._gone = rows, len(rows), list[Rows]()

    def __len__(self) -> int:
        return self._count - sum(map(len, self._gone))

    @property
    def rows(self) -> Rows32:
        # Removed lazily: one arm that leaves a quota of a million would else cost a million.
        if self._gone:
            stays = ~np.isin(self._rows[: self._count], np.concatenate(self._gone))
            self._rows = self._rows[: self._count][stays]
            self._count, self._gone = len(self._rows), []
        return self._rows[: self._count]

    @property
    def at_least(self) -> Rows32:
        """The rows, and perhaps some that are gone. For any thread."""
        # The count first, then the array: a thread that reads while rows are added sees an older count, never
        # rows beyond it.
        count = self._count
        return self._rows[:count]

    def add(self, rows: Rows) -> None:
        """Shape: (m,), none of which is there."""
        before = self.rows
        last = self._count + len(rows)
        if last > len(self._rows):
            more = np.zeros(int(_SPARE * last) - self._count, dtype=np.int32)
            self._rows = np.concatenate((before, more))
        self._rows[self._count : last] = rows
        self._count = last

    def remove(self, rows: Rows) -> None:
        """Shape: (m,), which are all there."""
        self._gone.append(rows)


class Membership:
    """See the module.

    total       pairs of living rows
    counts      (K,) of each row how many quotas
    waiting     (K,) rows whose quotas are not known yet: they are not eligible
    beyond      (K,) rows that would count for too many: likewise
    dead        (K,) rows that died
    sizes       of each number how many rows; 0 of one that no quota has
    """

    def __init__(self, rows: int = 0) -> None:
        self._chains = _Chains(np.empty(0, np.int32), np.empty(0, np.int16), np.empty(0, np.int32))
        self._entries = 0
        self._garbage = 0
        self._since = np.empty(0, dtype=np.int32)  # the first entry of the quota that has a number
        self._of_quota: dict[int, _QuotaRows] = {}
        self._applied = np.empty(0, dtype=np.bool_)
        self._blocking = np.empty(0, dtype=np.uint8)  # how many quotas of each row are out
        self.sizes = np.empty(0, dtype=np.int32)
        self.total = 0
        self.counts = np.empty(0, dtype=np.uint8)
        self.waiting = np.empty(0, dtype=np.bool_)
        self.beyond = np.empty(0, dtype=np.bool_)
        self.dead = np.empty(0, dtype=np.bool_)
        self.grow(rows)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def is_wasteful(self) -> bool:
        """Whether most entries are of pairs that are gone."""
        return self._garbage > max(_GARBAGE, self._entries // 2)

    @property
    def memory_bytes(self) -> int:
        # The bytes of the arrays' types: 4 of ``newest``, 5 of the five bytes a row has; 4 and 2 of an entry.
        # Space beyond is not touched, so it takes no memory.
        by_row = 9 * len(self) + 6 * self._entries  # of the entries that are used
        return by_row + sum(own.at_least.nbytes for own in self._of_quota.values())

    def grow(self, rows: int) -> None:
        """Know so many rows: those that are new count for none."""
        known = len(self)
        if rows <= known:
            return
        newest = np.full(rows, NONE, dtype=np.int32)
        # A new array rather than one that is resized: other threads may be reading the old one.
        newest[:known] = self._chains.newest
        self._chains = self._chains._replace(newest=newest)
        for name in ("counts", "_blocking", "waiting", "beyond", "dead"):
            before = getattr(self, name)
            setattr(self, name, np.concatenate((before, np.zeros(rows - known, dtype=before.dtype))))

    def of(self, row: int) -> Sequence[int]:
        """The numbers of the quotas of a row; of a row that is not known none."""
        chains, numbers = self._chains, list[int]()
        entry = chains.newest.item(row) if 0 <= row < len(chains.newest) else NONE
        while entry != NONE:
            number = chains.numbers.item(entry)
            # Entries of a quota that was deleted stay in the chains. What is older than its number's newest
            # owner is one of those.
            if entry >= self._since.item(number):
                numbers.append(number)
            entry = chains.before.item(entry)
        return numbers

    def quotas_of(self, rows: Rows) -> tuple[Rows, Numbers]:
        """Pairs of a position in ``rows`` and a number: (n,) -> (v,), (v,). Cost: O(n + v)."""
        chains = self._chains
        entries = np.full(len(rows), NONE, dtype=np.int32)
        known = np.flatnonzero((rows >= 0) & (rows < len(chains.newest)))
        entries[known] = chains.newest[rows[known]]
        places = np.flatnonzero(entries != NONE)
        entries = entries[places]
        found_places, found_numbers = [NO_ROWS], [np.empty(0, np.int16)]
        while len(places):
            numbers = chains.numbers[entries]
            lives = entries >= self._since[numbers]
            found_places.append(places[lives])
            found_numbers.append(numbers[lives])
            entries = chains.before[entries]
            more = entries != NONE
            # All rows step along their chains together: as many rounds as the longest chain, not as many as
            # there are pairs.
            places, entries = places[more], entries[more]
        return np.concatenate(found_places), np.concatenate(found_numbers)

    def counted(self, rows: Sequence[int]) -> dict[int, int]:
        """The numbers of the quotas of these rows, and how many of the rows each has."""
        of_each = np.bincount(self.quotas_of(np.array(rows, dtype=np.int64))[1])
        return {number: int(of_each[number]) for number in np.flatnonzero(of_each).tolist()}

    def quotas_among(self, rows: Rows, numbers: Sequence[int]) -> tuple[Rows, Numbers]:
        """As ``quotas_of``; of quotas that have none of these numbers some may be left out."""
        # To mark the rows of a large quota costs more than to ask all of them.
        if self.sizes[[*numbers]].sum() > len(rows) // _FEWER:
            return self.quotas_of(rows)
        is_of_some = np.zeros(int(rows.max(initial=-1)) + 1, dtype=np.bool_)
        for number in numbers:
            own = self._of_quota.get(number)
            if own is not None:
                of_quota = own.at_least
                is_of_some[of_quota[of_quota < len(is_of_some)]] = True
        places = np.flatnonzero(is_of_some[rows])
        inside, found = self.quotas_of(rows[places])
        return places[inside], found

    def eligible(self) -> NDArray[np.bool_]:
        """The rows that neither a quota which is out bars, nor what is not known: (K,)."""
        # A count, not a flag: an arm of two quotas that are out is eligible only when both are not.
        eligible: NDArray[np.bool_] = self._blocking == 0
        eligible &= ~(self.waiting | self.beyond)
        return eligible

    # Changes of quotas

    @property
    def is_nearly_full(self) -> bool:
        """Whether there may be no room for a quota of all arms."""
        return int(self.counts.max(initial=0)) >= MAX_OF_ARM or self.total + len(self) > MAX_PAIRS

    def beyond_with(self, rows: Rows32) -> int:
        """The first of the rows of a new quota for which there is no room; NONE: there is for all."""
        full = rows[self.counts[rows] >= MAX_OF_ARM]
        if len(full):
            return int(full[0])
        room = MAX_PAIRS - self.total
        return int(rows[room]) if len(rows) > room else NONE

    def add(self, number: int, rows: Rows32) -> Iterator[None]:
        """A new quota, and the rows (m,) that count for it; those for which there is no room are beyond."""
        self._make_place(number)
        # Filters were evaluated in a thread: some of these arms may have died meanwhile.
        rows = rows[~self.dead[rows]]
        has_room = self.counts[rows] < MAX_OF_ARM
        # The first rows have room, which is as arbitrary as any other, and the same in every process.
        has_room[np.flatnonzero(has_room)[max(MAX_PAIRS - self.total, 0) :]] = False
        self.beyond[rows[~has_room]] = True
        rows = rows[has_room]
        self._of_quota[number] = _QuotaRows(rows)
        # Before its entries are linked: from this entry on the number is this quota's.
        self._since[number], self._applied[number], self.sizes[number] = self._entries, False, len(rows)
        for start in range(0, len(rows), STEP):
            some = rows[start : start + STEP]
            self._link(some, np.full(len(some), number, dtype=np.int16))
            self.counts[some] += 1
            self.total += len(some)
            yield

    def remove(self, number: int) -> Iterator[None]:
        """A quota is gone. Rows that were beyond are to be looked at again."""
        own = self._of_quota.pop(number, None)
        if own is None:
            return
        rows, is_out = own.rows, bool(self._applied[number])
        # First: ``of`` sees none of its entries from here on, while the counts are brought down step by step.
        self._since[number], self._applied[number], self.sizes[number] = _NEVER, False, 0
        self._garbage += len(rows)
        for start in range(0, len(rows), STEP):
            some = rows[start : start + STEP]
            self._blocking[some] -= np.uint8(is_out)
            some = some[self.counts[some] > 0]  # not those that died
            self.counts[some] -= 1
            self.total -= len(some)
            yield
        # Now there may be room for them.
        self.waiting |= self.beyond

    # Changes of arms

    def forget(self, rows: Rows) -> None:
        """Rows that died, each once: they count for no limit."""
        self.total -= int(self.counts[rows].sum())
        self.counts[rows], self.waiting[rows], self.beyond[rows], self.dead[rows] = 0, False, False, True

    def describe(self, rows: Rows, pairs: Pairs) -> Iterator[None]:
        """These living rows (m,), ascending, count for these quotas and no others: they are known now."""
        ends = pairs.searchsorted((rows + 1) << _BITS)
        start = begin = 0
        while start < len(rows):
            last = int(ends.searchsorted(begin + DESCRIBED))
            # A single row of more pairs than a step is a step of its own.
            last = max(min(last, start + DESCRIBED), start + 1)
            end = int(ends[last - 1])
            self._describe(rows[start:last], pairs[begin:end])
            start, begin = last, end
            yield

    def _describe(self, rows: Rows, pairs: Pairs) -> None:
        places, numbers = self.quotas_of(rows)
        before = np.sort(keys(rows[places], numbers))
        own, _ = split(pairs)
        counts = np.bincount(rows.searchsorted(own), minlength=len(rows))
        had = np.bincount(places, minlength=len(rows))
        is_beyond = counts > MAX_OF_ARM
        # In the order of rows: those that come before the limit is reached have room. A row that counts for
        # fewer than before is never refused.
        grows = np.cumsum(np.where(is_beyond, 0, counts) - had) + self.total > MAX_PAIRS
        is_beyond |= grows & (counts > had)
        if is_beyond.any():
            pairs = pairs[~is_beyond[rows.searchsorted(own)]]
            counts[is_beyond] = 0
        self.beyond[rows], self.waiting[rows] = is_beyond, False
        added, removed = (
            np.setdiff1d(one, other, assume_unique=True) for one, other in ((pairs, before), (before, pairs))
        )
        if not len(added) and not len(removed):
            return
        for own_rows, number in _by_number(removed):
            self._of_quota[number].remove(own_rows)
            self._change_size(number, -len(own_rows), own_rows)
        for own_rows, number in _by_number(added):
            self._of_quota[number].add(own_rows)
            self._change_size(number, len(own_rows), own_rows)
        changed = np.unique(np.concatenate((added, removed)) >> _BITS)
        # The chain of a row is written again as a whole: entries are never changed in place, since threads
        # read them.
        self._chains.newest[changed] = NONE
        self._garbage += int(had[rows.searchsorted(changed)].sum())
        own, numbers = split(pairs)
        differs = np.isin(own, changed)
        self._link(own[differs], numbers[differs])
        self.counts[rows] = counts
        self.total += int(counts.sum() - had.sum())

    def _change_size(self, number: int, count: int, rows: Rows) -> None:
        self.sizes[number] += count
        if self._applied[number]:
            if count > 0:
                self._blocking[rows] += 1
            else:
                self._blocking[rows] -= 1

    # What is out

    def work(self, out: NDArray[np.bool_]) -> int:
        """About how many pairs ``apply`` changes."""
        return int(self.sizes[self._toggled(out)].sum())

    def apply(self, out: NDArray[np.bool_]) -> Iterator[None]:
        """Bar the rows of the quotas that are ``out``, by number, and those of no others."""
        for number in self._toggled(out).tolist():
            rows, self._applied[number] = self._of_quota[number].rows, out[number]
            for start in range(0, len(rows), STEP):
                some = rows[start : start + STEP]
                if out[number]:
                    self._blocking[some] += 1
                else:
                    self._blocking[some] -= 1
                yield

    def _toggled(self, out: NDArray[np.bool_]) -> Rows:
        # Either may be ahead: of quotas whose arms are not found yet, or not heard of yet.
        known = min(len(out), len(self._applied))
        return np.flatnonzero((out[:known] != self._applied[:known]) & (self._since[:known] != _NEVER))

    # Compaction

    def moved(self, position: Rows | Rows32, rows: int) -> Iterator[Membership | None]:
        """The same in a table of ``rows`` rows, where row r is ``position[r]``, or is gone: -1.

        At last the result; this one is as it was. Rows that are not there are ``waiting``. Nothing that is
        gone takes memory any more. Cost: all pairs.
        """
        made = Membership(rows)
        position = position[: len(self)]
        there = position[position >= 0]
        # Until it is said otherwise: rows that are new in this table are not known.
        made.waiting[:] = True
        made.waiting[there] = self.waiting[: len(position)][position >= 0]
        made.beyond[there] = self.beyond[: len(position)][position >= 0]
        for number, own in self._of_quota.items():
            rows_before = own.rows
            rows_now = position[rows_before[self.counts[rows_before] > 0]]  # not of those that died
            for _ in made.add(number, rows_now[rows_now >= 0].astype(np.int32)):
                yield None
            yield None
        yield made

    def catch_up(self, before: Membership) -> None:
        """Know what happened to the arms of the other one while this one was made of it."""
        self.grow(len(before))
        self.waiting |= before.waiting
        self.beyond |= before.beyond
        self.forget(np.flatnonzero(before.dead))

    def _make_place(self, number: int) -> None:
        if number < len(self._since):
            return
        more = max(int(_SPARE * number), 64) - len(self._since)
        self._since = np.concatenate((self._since, np.full(more, _NEVER, dtype=np.int32)))
        self._applied = np.concatenate((self._applied, np.zeros(more, dtype=np.bool_)))
        self.sizes = np.concatenate((self.sizes, np.zeros(more, dtype=np.int32)))

    def _link(self, rows: Rows | Rows32, numbers: Numbers) -> None:
        """Entries for pairs (v,): those of one row follow each other."""
        last = self._entries + len(rows)
        newest, of_entries, before = self._chains
        if last > len(of_entries):
            # To copy many takes long, and memory that is not used takes none: soon there is room for all.
            capacity = max(int(_SPARE * last), 64 if last < _GARBAGE else 2 * (MAX_PAIRS + _GARBAGE))
            # Not written to, so the pages beyond the entries are not there: reserved space costs no memory.
            more_numbers, more_before = np.empty(capacity, np.int16), np.empty(capacity, np.int32)
            more_numbers[: self._entries] = of_entries[: self._entries]
            more_before[: self._entries] = before[: self._entries]
            # Readers of the arrays before go on with those alone.
            self._chains = _Chains(newest.copy(), more_numbers, more_before)
            newest, of_entries, before = self._chains
        entries = np.arange(self._entries, last, dtype=np.int32)
        of_entries[self._entries : last] = numbers
        before[self._entries : last] = newest[rows]
        again = np.flatnonzero(rows[1:] == rows[:-1]) + 1
        # A row with several new pairs: each but the first follows the one before it, not the old newest.
        before[self._entries + again] = entries[again - 1]
        newest[rows] = entries  # of a row named twice the last counts
        self._entries = last


def _by_number(pairs: Pairs) -> Iterator[tuple[Rows, int]]:
    """The rows of each number."""
    rows, numbers = split(pairs)
    order = np.argsort(numbers, kind="stable")
    rows, numbers = rows[order], numbers[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=NONE))
    for own, start in zip(np.split(rows, starts[1:]), starts.tolist(), strict=False):
        yield own, int(numbers[start])
