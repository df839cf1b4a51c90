"""Reading the decision log: rows of all learners of a bandit, in the order in which they were decided.

Each partition has its rows in this order. They are merged here, a bounded number of each at a time.
"""

from __future__ import annotations

import asyncio
import binascii
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from app.bandits.bandit import GLOBAL_LEARNER, Bandit
from app.bandits.served_bandits import Bandits
from app.decision_log.rows import (
    NOTHING_BARRED,
    Agreement,
    Barred,
    LoggedArm,
    LoggedCandidate,
    LoggedReward,
    Row,
)
from app.exposure_limits.closed_history import ClosedHistory
from app.exposure_limits.exposures import field_value
from app.platform.answer_memory import hold
from app.platform.cursors import decode_cursor, encode_cursor, foreign
from app.platform.deadlines import yield_to_others
from app.records.arm_sums import numbers_of
from app.records.logged import LoggedRequest, LogPart, asked_of, rewards_of
from app.records.logged_candidates import LoggedCandidates, candidates_of
from app.records.place_sums import examined_at
from app.rewards.tokens import Decision, decision_of, raw_of, text_of
from app.storage.store import Store
from app.storage.types import LearnerId, StoredRow

READ_TOGETHER = 500  # rows of one partition
READ_BYTES = 8 << 20  # of all partitions, about
PAGE_BYTES = 4 << 20  # stored bytes of the rows of one page
COPIES = 8  # about what a page takes for each byte of a row: as it is stored, as objects, as JSON
CANDIDATE_COPIES = 6  # as many more of their bytes, which are compressed, or float32
LATEST_MS = 10**13 - 1

_NEWEST_FIRST = "<"  # before the position of a cursor
_position = attrgetter("position")


@dataclass(frozen=True, slots=True)
class LoggedChoice:
    """A row, and further data with which the choice can be made again.

    ``asked``    the request; None: too large to be kept
    ``candidates``    the request's; None: none, or they are not kept
    """

    row: Row
    decision: Decision
    part: LogPart
    asked: LoggedRequest | None
    candidates: LoggedCandidates | None = None


@dataclass(slots=True)
class _Source:
    """The read rows of one partition, and the position after which to go on, if there are more.

    In the order with the newest first: the position before which to go on.
    """

    partition: int
    after: str | None
    rows: Sequence[StoredRow] = ()


@dataclass(frozen=True, slots=True)
class _Between:
    """Positions of rows, and whether they are read from the newest on."""

    after: str
    before: str
    newest_first: bool = False

    def beyond(self, position: str) -> _Between:
        """The rows left once the row at this position was read."""
        if self.newest_first:
            return replace(self, before=min(self.before or position, position))
        return replace(self, after=max(self.after, position))


@dataclass(slots=True)
class _Filters:
    """The filters of the versions of one bandit, and the arms barred by quotas, read on demand."""

    bandits: Bandits
    uid: str
    quotas: ClosedHistory
    known: dict[int, Mapping[str, Any] | None] = field(default_factory=dict)

    async def of(self, version: int) -> Mapping[str, Any] | None:
        if version not in self.known:
            bandit = await self.bandits.find(self.uid, version)
            self.known[version] = None if bandit is None else bandit.record.filter
        return self.known[version]

    async def barred(self, part: LogPart) -> Barred | None:
        """The arms barred by quotas and frequency caps; None: no longer known."""
        if not part.is_told or (part.closed and isinstance(part.closed, str)):
            return None
        if not part.closed and not part.had:
            return NOTHING_BARRED
        closed = await self.quotas.closed(*part.closed) if isinstance(part.closed, tuple) else []
        if closed is None:
            return None
        values = [*map(field_value, part.had)]
        filters: list[Mapping[str, Any]] = [rule.filter for rule in closed if rule.filter is not None]
        filters += [{named[0]: named[1]} for named in values if named is not None]
        arms = [rule.arm for rule in closed if rule.arm is not None]
        arms += [arm for arm, named in zip(part.had, values, strict=True) if named is None]
        return Barred(filters, arms)


class DecisionLog:
    """All calls raise Unavailable while the store does not answer. Pages are in the order of time.

    ``together``: rows of one partition in one read.
    """

    def __init__(self, store: Store, bandits: Bandits, *, together: int = READ_TOGETHER) -> None:
        self.together = together
        self._store = store
        self._bandits = bandits

    async def complete_from(self, bandit: Bandit, from_ms: int | None) -> int | None:
        """The time from which on no row was dropped, in any partition, if after ``from_ms``; else None."""
        partitions = range(self._store.partitions)
        result = max(
            await asyncio.gather(
                *(self._store.rows.kept_from(partition, bandit.uid) for partition in partitions)
            )
        )
        return result if result > (from_ms or 0) else None

    async def pages(
        self, bandit: Bandit, *, from_ms: int | None, to_ms: int | None
    ) -> AsyncIterator[Sequence[Row]]:
        """Rows of decisions made at ``from_ms`` or later and before ``to_ms``; None: without a bound."""
        filters = self._filters(bandit)
        before = _before(to_ms)
        async for stored in self._merged(bandit.uid, _Between(_after(from_ms), before), self.together):
            for portion in _portions(stored, self.together):
                yield [await _row(item, filters) for item in portion]

    async def stored_pages(
        self, bandit: Bandit, *, from_ms: int | None, together: int, newest_first: bool = False
    ) -> AsyncIterator[Sequence[StoredRow]]:
        """As ``pages``, rows as they are stored. ``together``: of one partition."""
        async for stored in self._merged(bandit.uid, _Between(_after(from_ms), "", newest_first), together):
            for start in range(0, len(stored), together):
                await yield_to_others()
                yield stored[start : start + together]

    async def page(
        self,
        bandit: Bandit,
        *,
        from_ms: int | None,
        to_ms: int | None,
        cursor: str | None,
        limit: int,
        newest_first: bool = False,
    ) -> tuple[Sequence[Row], str | None]:
        """The first rows after the cursor, and the cursor of the next page. Large rows make a page shorter.

        Raises Invalid: the cursor does not belong to this list, in this order.
        """
        between, last = _Between(_after(from_ms), _before(to_ms), newest_first), ""
        if cursor is not None:
            between = between.beyond(_decoded(cursor, newest_first=newest_first))
        filters, page, size = self._filters(bandit), list[Row](), 0
        # One more than asked for: the extra row tells whether there is another page.
        together = min(limit + 1, self.together)
        hold(READ_BYTES)
        async for stored in self._merged(bandit.uid, between, together):
            for item in stored:
                if len(page) == limit or size > PAGE_BYTES:
                    return page, encode_cursor(_NEWEST_FIRST + last if newest_first else last)
                read_bytes = _read_bytes(item)
                hold(COPIES * read_bytes)
                page.append(await _row(item, filters))
                size += read_bytes
                last = item.position
        return page, None

    async def find(self, bandit: Bandit, decision: str) -> LoggedChoice | None:
        """The row of a decision of this bandit, by its token; None: there is none."""
        try:
            raw = raw_of(decision)
            named = decision_of(raw)
        except (ValueError, binascii.Error, msgspec.DecodeError):
            return None
        if named.bandit_uid != bandit.uid or not 0 <= named.issued_ms <= LATEST_MS:
            return None
        stored = await self._store.rows.read_row(named.identity, named.issued_ms)
        # The row holds the token itself: a changed token, or one of another decision with the same id,
        # differs.
        if stored is None or stored.record != raw or named.logged is None:
            return None
        row = await _row(stored, self._filters(bandit))
        asked, candidates = asked_of(named.logged.asked), candidates_of(stored.candidates)
        return LoggedChoice(row, named, named.logged, asked, candidates)

    async def of_learner(self, bandit: Bandit, learner: LearnerId, limit: int) -> Sequence[Row]:
        """The newest rows of one learner of a bandit, the oldest first. Raises Unavailable."""
        filters = self._filters(bandit)
        return [await _row(stored, filters) for stored in await self._store.rows.of_learner(learner, limit)]

    def _filters(self, bandit: Bandit) -> _Filters:
        return _Filters(self._bandits, bandit.uid, ClosedHistory(self._store.quotas, bandit.uid))

    async def _merged(self, uid: str, between: _Between, together: int) -> AsyncIterator[Sequence[StoredRow]]:
        """The rows of all partitions in order; of each, ``together`` are held at most."""
        newest_first = between.newest_first
        start = between.before if newest_first else between.after
        sources = [_Source(partition, start) for partition in range(self._store.partitions)]
        while sources:
            wanting = (source for source in sources if not source.rows)
            await asyncio.gather(*(self._read(source, uid, between, together) for source in wanting))
            # Unread rows stand after the last read one of the same partition.
            open_ends = [source.after for source in sources if source.after is not None]
            # A tilde is above all characters of positions.
            last = max(open_ends, default="") if newest_first else min(open_ends, default="~")
            ready: list[StoredRow] = []
            for source in sources:
                count = len(source.rows)
                if open_ends:
                    count = sum(
                        (row.position >= last) if newest_first else (row.position <= last)
                        for row in source.rows
                    )
                ready += source.rows[:count]
                source.rows = source.rows[count:]
            sources = [source for source in sources if source.rows or source.after is not None]
            ready.sort(key=_position, reverse=newest_first)
            if ready:
                yield ready

    async def _read(self, source: _Source, uid: str, between: _Between, together: int) -> None:
        ends = between.beyond(source.after) if source.after else between
        result = await self._store.rows.read(
            source.partition,
            uid,
            after=ends.after,
            before=ends.before,
            count=together,
            most_bytes=READ_BYTES // self._store.partitions,
            newest_first=between.newest_first,
        )
        source.rows, source.after = result.rows, result.following or None


async def _row(stored: StoredRow, filters: _Filters) -> Row:
    await yield_to_others()
    decision = decision_of(stored.record)
    demanded = await filters.of(decision.bandit_version)
    barred = NOTHING_BARRED if decision.logged is None else await filters.barred(decision.logged)
    candidates = candidates_of(stored.candidates)
    return row_of(decision, text_of(stored.record), stored.rewards, demanded, barred, candidates=candidates)


def _read_bytes(row: StoredRow) -> int:
    return len(row.record) + len(row.rewards) + CANDIDATE_COPIES * len(row.candidates)


def _portions(rows: Sequence[StoredRow], together: int) -> Iterator[Sequence[StoredRow]]:
    """The rows in parts of at most so many, or of a page of bytes."""
    start, size = 0, 0
    for position, row in enumerate(rows):
        size += _read_bytes(row)
        if position - start == together or (size > PAGE_BYTES and position > start):
            yield rows[start:position]
            start, size = position, _read_bytes(row)
    if start < len(rows):
        yield rows[start:]


def row_of(
    decision: Decision,
    token: str,
    rewards: bytes,
    demanded: Mapping[str, Any] | None,
    barred: Barred | None = NOTHING_BARRED,
    *,
    candidates: LoggedCandidates | None = None,
) -> Row:
    """The row of a logged decision. ``demanded``: the filter of its bandit, then.

    ``candidates``: the row's.
    """
    part = decision.logged
    if part is None:
        raise ValueError("the decision is not logged")
    ids = decision.arms
    numbers = np.frombuffer(part.numbers, "<f8").tolist()
    scores, propensities = numbers[: len(ids)], numbers[len(ids) :] or [None] * len(ids)
    pinned, signals = set(part.pinned), list(decision.weights or ())
    columns = zip(ids, scores, propensities, strict=True)
    context = decision.encoded_context
    return Row(
        token,
        decision.issued_ms,
        None if decision.learner == GLOBAL_LEARNER else decision.learner,
        decision.bandit_version,
        part.learner_version,
        part.catalogue_version,
        part.policy,
        part.group,
        None if context is None else context.tolist(),
        _filter(asked_of(part.asked), demanded),
        part.eligible,
        [
            LoggedArm(arm, number + 1, score, propensity, number in pinned, **_taught(decision, number))
            for number, (arm, score, propensity) in enumerate(columns)
        ],
        [
            LoggedReward(
                ids[reward.place],
                reward.value,
                decision.issued_ms + reward.after_ms,
                reward.default,
                None if reward.signal is None else signals[reward.signal],
                reward.revised,
            )
            for reward in rewards_of(rewards)
        ],
        decision.weights,
        barred,
        part.prior_version,
        part.effects_version,
        _candidates(candidates) if part.has_candidates else (),
        agreement=None if part.agreement is None else Agreement(*part.agreement),
    )


def _candidates(logged: LoggedCandidates | None) -> list[LoggedCandidate] | None:
    if logged is None:
        return None
    candidates = list(map(LoggedCandidate, logged.ids))
    if logged.own:
        for position, numbers in zip(logged.own, logged.own_features.tolist(), strict=True):
            candidates[position] = LoggedCandidate(logged.ids[position], numbers)
    if logged.said:
        for position, numbers_of_match in zip(logged.said, logged.said_numbers.tolist(), strict=True):
            candidates[position] = msgspec.structs.replace(candidates[position], match=numbers_of_match)
    return candidates


def _taught(decision: Decision, number_of_arm: int) -> Mapping[str, Any]:
    """The terms of learning from the arm at a place: of the place and of the arm; empty where there were
    none.
    """
    terms = dict[str, Any]()
    if decision.places is not None:
        terms["examined"], terms["weight"] = examined_at(decision.places, number_of_arm)
    if (at_age := decision.age_at(number_of_arm)) is not None:
        terms["age"] = at_age.effect
    pair = decision.effect_at(number_of_arm)
    if pair is None:
        return terms
    expected, served = (
        [number if math.isfinite(number) else None for number in numbers_of(data)] for data in pair
    )
    if not decision.weights:
        return {**terms, "expected": expected[0], "effect": served[0]}
    return {**terms, "expected": expected, "effect": served}


def _filter(asked: LoggedRequest | None, demanded: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The conditions on arms, by the bandit and the request; None if unknown."""
    if asked is None or asked.filter is None or demanded is None:
        return None if asked is None else asked.filter or demanded
    return demanded if demanded == asked.filter else {"$and": [demanded, asked.filter]}


def _after(from_ms: int | None) -> str:
    """The end of positions before all rows from this time on."""
    first = min(max(from_ms or 0, 0), LATEST_MS)
    return f"{first - 1:013}-~" if first else ""


def _before(to_ms: int | None) -> str:
    return "" if to_ms is None or to_ms > LATEST_MS else f"{max(to_ms, 0):013}"


def _decoded(cursor: str, *, newest_first: bool) -> str:
    position = decode_cursor(cursor)
    if position.startswith(_NEWEST_FIRST) != newest_first:
        raise foreign()
    position = position.removeprefix(_NEWEST_FIRST)
    milliseconds, dash, decision_id = position.partition("-")
    if len(milliseconds) != len(str(LATEST_MS)) or not milliseconds.isdigit() or not dash or not decision_id:
        raise foreign()
    return position
