"""Campaigns: a service asks for measurements that others make, until its answer is certain.

The store holds a record of what the campaign was made with, and a log of events: "n pulls were asked
for", "these results came". The state of a campaign is the fold of its log by a pure ask/tell algorithm.
Nothing else has to be stored, and any process continues a campaign bit for bit, after a crash at any point.

An event is appended by compare-and-set on the length of the log, and is durable before the answer leaves. A
process that was overtaken reads the events of the others, folds them, and tries again from there. Snapshots
of the state keep the fold short. A snapshot that cannot be read is ignored: the log is folded from its start.

To add an algorithm, write a class with the members of ``Algorithm`` over its pure functions, and make
``Campaigns(event_logs, ThatClass(), capacity_bytes=...)`` of it in the ``services`` of its routes.
``slates`` is an example.

- Its pulls are numbered 0, 1, 2, ... in the order of asking.
- Its state is a frozen dataclass of numbers, strings, tuples, dataclasses and arrays (``NDArray[...]``),
  which is all that the snapshots' format knows.
- ``tell`` returns the state object that it was given when no result is new. Then nothing is appended.
- Errors that name an argument (``path=("k",)``) become errors on that field of the body.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from pydantic import BaseModel

from shortlist_campaigns.fold import (
    Algorithm,
    Campaign,
    CampaignRecord,
    Event,
    P,
    PullsAsked,
    Q_co,
    ResultsTold,
    S,
    advance,
    fold,
    numbers_of,
    pack_state,
    seed_of,
    size_of,
    unpack_event,
)
from shortlist_service.errors import Conflict, NotFound, Unavailable
from shortlist_service.routes import page_by_name
from shortlist_service.storage import EventLogs, StoredEventLog, differing, pack, split_uid, unpack, with_uid
from shortlist_service.work import BoundedCache, LongWork

SNAPSHOT_EVENTS = 500
READ_EVENTS = 2_000
ATTEMPTS = 100
COMPUTING = 2
WAITING = 256


@dataclass(frozen=True, slots=True)
class ResultsReceipt:
    """The outcome of a batch of results: numbers of new ones, and of repeated ones."""

    observed: int
    duplicate: int


class CampaignName(BaseModel):
    id: str


T = TypeVar("T")


class Campaigns(Generic[P, S, Q_co]):
    """All campaigns of one kind. ``capacity_bytes`` bounds those that are held in memory.

    ``read_events`` are read at once, and after ``snapshot_events`` a snapshot is saved.
    """

    def __init__(
        self,
        event_logs: EventLogs,
        algorithm: Algorithm[P, S, Q_co],
        *,
        capacity_bytes: int,
        read_events: int = READ_EVENTS,
        snapshot_events: int = SNAPSHOT_EVENTS,
    ) -> None:
        self._read_events, self._snapshot_events = read_events, snapshot_events
        self._logs = event_logs
        self._algorithm = algorithm
        self._known: BoundedCache[str, Campaign[P, S]] = BoundedCache(capacity_bytes)
        # Weak: a lock goes with the last one who waits for it, and names that are made up leave nothing.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._work = LongWork(threads=COMPUTING, waiting=WAITING)

    @property
    def cached_bytes(self) -> int:
        """About how much memory the campaigns take that this process holds."""
        return self._known.bytes

    async def create(self, name: str, parameters: P, *, seed: int | None) -> tuple[Campaign[P, S], bool]:
        """Make a campaign. Returns it with True, or with False when the same one exists.

        ``seed`` None: it gets a seed of its own. Raises Conflict, InvalidArgument.
        """
        uid = secrets.token_hex(8)
        data = with_uid(uid, CampaignRecord(seed, pack(parameters)))
        # Before it is stored: parameters that the algorithm refuses must not become a campaign.
        await self._compute(self._algorithm.start, parameters, seed_of(uid, seed))
        stored = await self._logs.create(self._algorithm.kind, name, data)
        _, existing = split_uid(stored, CampaignRecord)
        different = differing(unpack(existing.parameters, self._algorithm.parameters), parameters)
        if different := different + ["seed"] * (existing.seed != seed):
            raise Conflict(f"a campaign with this id exists and has another {', '.join(different)}")
        return await self.get(name), stored == data

    async def get(self, name: str) -> Campaign[P, S]:
        """The campaign after every event that is stored by now. Raises NotFound."""
        async with self._lock(name):
            return await self._current(name)

    async def ask(self, name: str, count: int) -> tuple[Campaign[P, S], Sequence[Q_co]]:
        """Ask for ``count`` more pulls; none after the end. Raises NotFound, InvalidArgument."""

        def step(campaign: Campaign[P, S]) -> tuple[Event | None, S, Sequence[Q_co]]:
            state, pulls = self._algorithm.ask(campaign.state, count)
            return (PullsAsked(count) if pulls else None), state, pulls

        return await self._commit(name, step)

    async def tell(
        self, name: str, results: Sequence[tuple[str, float]]
    ) -> tuple[Campaign[P, S], ResultsReceipt]:
        """Take all results (pull id, value) or none.

        Raises NotFound, Invalid (it names each result whose pull this campaign did not ask for).
        """

        def step(campaign: Campaign[P, S]) -> tuple[Event | None, S, ResultsReceipt]:
            event = ResultsTold(
                numbers_of(campaign, results, self._algorithm.pull), [value for _, value in results]
            )
            state = fold(self._algorithm, campaign.state, event)
            observed = state.observed - campaign.state.observed
            new = state is not campaign.state
            return (event if new else None), state, ResultsReceipt(observed, len(results) - observed)

        return await self._commit(name, step)

    async def delete(self, name: str) -> None:
        """Delete the campaign with its results. Raises NotFound."""
        async with self._lock(name):
            self._known.drop(name)
            if not await self._logs.delete(self._algorithm.kind, name):
                raise _no_campaign()

    async def page(self, cursor: str | None, limit: int) -> tuple[Sequence[str], str | None]:
        """Ids of campaigns, ascending."""
        return page_by_name(await self._logs.names(self._algorithm.kind), str, cursor, limit)

    async def events(self, campaign: Campaign[P, S], position: int) -> Sequence[Event]:
        """The campaign's events from ``position`` on, at most ``read_events``. Raises NotFound."""
        stored = await self._read(campaign.name, campaign.uid, position)
        return [unpack_event(data) for data in stored.events]

    async def _commit(
        self, name: str, step: Callable[[Campaign[P, S]], tuple[Event | None, S, T]]
    ) -> tuple[Campaign[P, S], T]:
        """Take one step from the current state. It counts as soon as its event is in the store.

        ``step`` returns the event, None if there is nothing to append, the state after it, and the outcome.
        """
        async with self._lock(name):
            for _ in range(ATTEMPTS):
                campaign = await self._current(name)
                event, state, outcome = await self._compute(step, campaign)
                # Nothing to append: the outcome holds at the position that was just read.
                if event is None or await self._append(campaign, event):
                    moved = replace(campaign, state=state, position=campaign.position + (event is not None))
                    return await self._keep(moved, ended=state.done and not campaign.state.done), outcome
        raise Unavailable("concurrent updates changed this campaign; retry")

    async def _append(self, campaign: Campaign[P, S], event: Event) -> bool:
        uid, position = campaign.uid, campaign.position
        appended = await self._logs.append(
            self._algorithm.kind, campaign.name, uid=uid, position=position, event=pack(event)
        )
        return appended == "appended"  # missing: the next read says so

    async def _current(self, name: str) -> Campaign[P, S]:
        """The campaign after every stored event. Those that are not known here yet are read and folded."""
        campaign = self._known.get(name)
        while True:
            stored = await self._read(
                name, campaign.uid if campaign else "", campaign.position if campaign else 0
            )
            # Another uid: the campaign was deleted and made again under its name.
            if campaign is None or stored.events or not stored.record.startswith(campaign.uid.encode()):
                campaign = await self._keep(
                    await self._compute(advance, self._algorithm, name, campaign, stored)
                )
            # A full page: there may be more events.
            count = len(stored.events)
            if campaign.position == stored.position + count and count < self._read_events:
                return campaign

    async def _read(self, name: str, uid: str, position: int) -> StoredEventLog:
        stored = await self._logs.read(
            self._algorithm.kind, name, uid=uid, position=position, count=self._read_events
        )
        if stored is None:
            self._known.drop(name)
            raise _no_campaign()
        return stored

    async def _keep(self, campaign: Campaign[P, S], *, ended: bool = False) -> Campaign[P, S]:
        """Hold the campaign in memory, and save a snapshot when one is due.

        A snapshot that could not be saved does no harm: the next fold is longer.
        """
        if ended or campaign.position - campaign.saved >= self._snapshot_events:
            uid, position = campaign.uid, campaign.position
            with suppress(Unavailable):
                data = await self._compute(pack_state, campaign.state)
                await self._logs.save_snapshot(
                    self._algorithm.kind, campaign.name, uid=uid, position=position, state=data
                )
                campaign = replace(campaign, saved=position)
        self._known.put(campaign.name, campaign, size_of(campaign.state))
        return campaign

    def close(self) -> None:
        """Drop the computations that wait. All that was acknowledged is in the store."""
        self._work.close()

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _compute(self, function: Callable[..., T], *arguments: object) -> T:
        """Call the function in a thread, where only a few run at a time: a step may take a second."""
        return await self._work.run(partial(function, *arguments))


def _no_campaign() -> NotFound:
    return NotFound("there is no campaign with this id")
