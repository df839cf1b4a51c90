"""The bandits that a process serves: all that are stored when it starts (``Bandits.load``); how they are
made, changed, found and deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from app.bandits import context as contexts
from app.bandits import signals
from app.bandits.bandit import Bandit, FormerCatalogue, bandit_of, learner_dim
from app.bandits.completion import (
    MAX_LEARNER_BYTES,
    PolicyTerms,
    check_size,
    completed,
    differences,
    measured,
    needs_arms,
    of_unit_one,
    ways_to_change,
    with_arm_clock,
    with_else,
    with_unit,
)
from app.bandits.context import Context
from app.bandits.history_prior import first_prior
from app.bandits.prior_version import version_of
from app.bandits.prior_version import version_to_bytes as prior_to_bytes
from app.bandits.settings import BanditRecord
from app.bandits.spaces import BanditMoved, MoveRecord, Moves
from app.bandits.versions import (
    BanditVersion,
    BanditVersions,
    Changed,
    Moved,
    bytes_to_version,
    check_known,
    first_version,
    uid_of,
    version_to_bytes,
)
from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogues import Catalogues
from app.platform.cache import BoundedCache
from app.platform.cursors import page_by_name
from app.platform.deadlines import shared_task
from app.platform.errors import Conflict, Invalid, NotFound, Unavailable
from app.platform.hooks import Hooks
from app.platform.pools import REQUESTS
from app.storage.store import Store

T = TypeVar("T")

log = logging.getLogger("shortlist")
EARLIER_BYTES = 4 << 20  # of earlier versions that are kept in memory
OBJECT_BYTES = 2_000  # that a bandit takes in memory besides its record
MISSED_BYTES = 1 << 20
UID_BYTES = 200  # that a uid takes in a cache


class Bandits:
    """All bandits of the service."""

    most_learner_bytes = MAX_LEARNER_BYTES

    def __init__(
        self,
        store: Store,
        catalogues: Catalogues,
        *,
        policies: Mapping[str, PolicyTerms],
        most_wait_s: float,
        hooks: Hooks,
        moves: Moves | None = None,
    ) -> None:
        self._store = store
        self._moves = moves or Moves(store.moves)
        self._hooks = hooks
        self._policies = policies
        self._most_wait_s = most_wait_s
        self._catalogues = catalogues
        self._served: dict[str, Bandit] = {}
        self._by_uid: dict[str, Bandit] = {}
        self._newer: dict[str, tuple[str, str]] = {}  # not served here, by name: uid and reason
        self._earlier: BoundedCache[tuple[str, int], Bandit] = BoundedCache(EARLIER_BYTES)
        # Uids which no poll brought, and uids hidden from a caller: both are answered as soon. Tokens
        # name former uids, and none comes twice: a missing one is gone for good.
        self._missed: BoundedCache[str, None] = BoundedCache(MISSED_BYTES)
        self._measuring: dict[bytes, asyncio.Task[BanditRecord]] = {}  # by the stored bandit
        self.versions = BanditVersions(store, rewarded_s=most_wait_s)
        self.changing = asyncio.Lock()  # one change at a time: what is served is what is stored

    def __len__(self) -> int:
        return len(self._served)

    def __iter__(self) -> Iterator[Bandit]:
        return iter(tuple(self._served.values()))

    async def load(self) -> None:
        async with self.changing:
            self.replace((await self._store.registry.read()).bandits)

    def replace(self, records: Mapping[str, bytes]) -> None:
        """Serve exactly these bandits, whose catalogues are served. The caller holds ``changing``."""
        self._newer.clear()
        for name, data in records.items():
            try:
                _, version = bytes_to_version(data)
                catalogue = self._catalogues.served(version.record.catalogue)
                served = self._served.get(name)
                # By the bytes: what is stored is the whole of a bandit. The catalogue may have been deleted
                # and made again.
                if served is None or served.stored != data or served.catalogue is not catalogue:
                    self._drop(name)
                    self._serve(self._make_served(name, data, catalogue))
            except Unavailable as error:
                self._drop(name)
                self._newer[name] = uid_of(data), error.detail
                log.warning("the bandit %s is not served here: %s", name, error.detail)
        for name in self._served.keys() - records.keys():
            self._drop(name)

    async def create(
        self, name: str, record: BanditRecord, absent: Collection[str] = (), *, by: str | None = None
    ) -> tuple[Bandit, bool]:
        """Make the bandit; (the bandit, False) when the same one exists. Raises Conflict, NotFound, Invalid.

        ``absent``: settings missing in the request: ridge and exploration then stay as stored. ``by``: the
        name of the caller's API key.
        """
        served = self._served.get(name)
        record = self._completed(record, None if served is None else served.record)
        catalogue = await self._catalogues.get(record.catalogue)
        contexts.check_size(record, catalogue.dim)
        record = await self._measured(record)
        if isinstance(record.interactions, int):
            record = await self._with_directions(name, record, absent)
        async with self.changing:
            return await self._create(name, record, absent, by)

    async def _measured(self, record: BanditRecord) -> BanditRecord:
        """The record with what the arms decide of the unit of the features."""
        if not needs_arms(record):
            return record
        arms = await self._catalogues.sampled(await self._catalogues.get_stocked(record.catalogue))
        return await REQUESTS.run(partial(measured, record, arms))

    async def _measured_for_all(self, bandit: Bandit) -> BanditRecord:
        """``_measured``, once for all waiting callers: of arms in an engine 20,000 are read from the
        store.
        """
        work = partial(self._measured, bandit.record)
        return await asyncio.shield(shared_task(self._measuring, bandit.stored, work))

    async def _with_directions(
        self, name: str, record: BanditRecord, absent: Collection[str]
    ) -> BanditRecord:
        """The record with the bandit's directions, or those of a bandit made now."""
        catalogue = await self._catalogues.get_stocked(record.catalogue)
        if name not in self._served:
            await self._hooks.poll_for_news()
        served = self._served.get(name)
        if served is not None and not differences(record, served.record, absent):
            return served.record
        arms = await self._catalogues.sampled(catalogue)
        return await REQUESTS.run(partial(contexts.with_directions, record, arms))

    async def _create(
        self, name: str, record: BanditRecord, absent: Collection[str], by: str | None
    ) -> tuple[Bandit, bool]:
        catalogue = self._catalogues.served(record.catalogue)
        self._policies[record.policy].check_arms(record, catalogue)
        if name not in self._served:  # one that a store has already goes on
            dim = learner_dim(record, catalogue.dim, Context.of(record, catalogue.dim))
            check_size(record, dim - record.intercept, self.most_learner_bytes)
        data = first_version(with_else(record, None, catalogue), by)
        since_ms = time.time_ns() // 1_000_000
        first = first_prior(record, catalogue.record.prior)
        prior = b"" if first is None else prior_to_bytes(version_of(1, since_ms, first))
        stored = await self._store.registry.create_bandit(
            name, data, catalogue=record.catalogue, prior=prior, since_ms=since_ms
        )
        if stored is None:
            raise NotFound("the catalogue was deleted during the request")
        check_known(stored)
        _, version = bytes_to_version(stored)
        if different := differences(record, version.record, absent):
            changed = "" if version.number == 1 else ", as it was changed since it was made"
            raise Conflict(
                f"a bandit with this name exists and has another {', '.join(different)}{changed}: "
                f"{ways_to_change(record, version.record, different)}"
            )
        return self._current(name, stored, catalogue), stored == data

    async def change(self, name: str, changed: Changed, *, by: str | None = None) -> Bandit:
        """Give a bandit another configuration, and keep its learners; without a difference nothing changes.

        ``by``: the name of the caller's API key. ``changed`` makes the new record of the present one, and
        again when another process changes the bandit at the same time; ``changed`` may raise. Raises
        NotFound, Invalid, QuotaReached, Unavailable.
        """
        if not await self._hooks.poll_for_news():  # the caller may have seen what is not known here
            raise Unavailable("the store does not answer")

        catalogue = self._get_served(name).catalogue
        arms = await self._catalogues.sampled(catalogue)

        def completed(uid: str, version: BanditVersion) -> BanditRecord:
            asked = changed(uid, version)
            # first: a signal which cannot be removed is refused as such, also when named by a guardrail
            signals.check_change(version.record, asked)
            record = self._completed(asked, version.record)
            record = with_else(record, version.record, catalogue)
            record = with_arm_clock(record, version.record, time.time_ns() // 1_000_000)
            self._policies[record.policy].check_arms(record, catalogue)
            return with_unit(record, version.record, arms)

        async with self.changing:
            # Again under the lock: another change may have come in between.
            bandit = self._get_served(name)
            stored = await self.versions.change(name, bandit.stored, completed, by)
            return self._current(name, stored, bandit.catalogue)

    async def as_if(self, name: str, changed: Changed) -> Bandit:
        """The bandit as ``change`` would make it, beside the served one. Raises NotFound, Invalid."""
        bandit = await self.get(name)
        asked = changed(bandit.uid, bandit.version)
        record = self._completed(asked, stored=asked)  # it is compared, not made
        self._policies[record.policy].check_arms(record, bandit.catalogue)
        record = with_unit(record, bandit.record, await self._catalogues.sampled(bandit.catalogue))
        version = replace(bandit.version, record=record)
        return self._make_served(name, version_to_bytes(bandit.uid, version), bandit.catalogue)

    async def get(self, name: str) -> Bandit:
        """The bandit, also when another process has just made it. Raises NotFound."""
        bandit = self._served.get(name)
        if bandit is not None:
            return bandit
        if not await self._hooks.poll_for_news() and name not in self._served:
            raise Unavailable("the store does not answer")
        return self._get_served(name)

    async def ready(self, name: str, *, keep: bool = True, brings_arms: bool = False) -> Bandit:
        """As ``get``, for a choice or an observation: with the constant of its intercept, if it has arms.

        The constant is settled by the first arms of the catalogue, once for all processes; without ``keep``
        for this answer alone. ``brings_arms``: the request has arms of its own: where the catalogue has none,
        the unit is 1. Awaits nothing for a known constant. Raises NotFound, NotFitted, Unavailable.
        """
        bandit = await self.get(name)
        if not bandit.catalogue.encoding.is_fitted:
            await self._catalogues.need_fitted(bandit.catalogue)
        if bandit.is_settled:
            return bandit
        record = await self._measured_for_all(bandit)
        if record.constant is None:  # one who came later may have written arms meanwhile
            record = await self._measured(bandit.record)
        if record.constant is None and brings_arms:
            record = of_unit_one(record)
        if record.constant is None:
            return bandit
        if not keep:
            return self._make_served(name, _with(bandit.stored, record), bandit.catalogue)
        async with self.changing:
            bandit = self._get_served(name)
            stored = await self.versions.settle(name, bandit.stored, partial(_settled, by=record))
            return self._current(name, stored, bandit.catalogue)

    async def find(self, uid: str, version: int, *, names: Collection[str] | None = None) -> Bandit | None:
        """The bandit of this uid in this version, also one just made by another process.

        ``names``: of the bandits visible to the caller; None: all.

        None: there is no such bandit, or the version is no longer kept. Awaits nothing for the present
        version. Raises Unavailable for a bandit not served here, or unknown while the store does not answer.
        """
        bandit = self._visible(uid, names)
        if bandit is None and uid in self._missed:
            return None
        # A token may name a version, or a constant, that another process has made since the last poll.
        if bandit is None or bandit.version.number < version or not bandit.is_settled:
            answers = await self._hooks.poll_for_news()
            bandit = self._visible(uid, names)
            if bandit is None and not answers:
                raise Unavailable("the store does not answer")
            for name, (newer, reason) in self._newer.items():
                if newer == uid and (names is None or name in names):
                    raise Unavailable(reason)
        if bandit is None:
            self._missed.put(uid, None, UID_BYTES)
        if bandit is None or bandit.version.number == version:
            return bandit
        earlier = self._earlier.get((uid, version))
        if earlier is None or not _is_before(earlier, bandit):
            stored = await self.versions.one(uid, version)
            if stored is None:
                return None
            record = bytes_to_version(stored)[1].record
            if record.space == bandit.record.space:
                stored = _with(stored, _settled(record, by=bandit.record))
                earlier = self._make_served(bandit.name, stored, bandit.catalogue)
            else:
                earlier = await self._before_move(bandit, stored, record)
            self._keep(earlier)
        return earlier

    async def moves(self, bandit: Bandit) -> Sequence[MoveRecord]:
        """The moves of a bandit to other catalogues, the earliest first. Raises Unavailable."""
        space = bandit.record.space
        by_space = await self._moves.of(bandit.uid, space) if space else {}
        return [move for number, move in sorted(by_space.items()) if number <= space]

    def by_name(self, name: str) -> Bandit | None:
        """The bandit of this name, if this process knows it."""
        return self._served.get(name)

    async def _before_move(self, bandit: Bandit, stored: bytes, record: BanditRecord) -> Bandit:
        """A version of a bandit from before a move. Raises Unavailable."""
        moves = await self._moves.of(uid := bandit.uid, bandit.record.space)
        left = moves[record.space + 1]
        catalogue = bandit.catalogue
        with contextlib.suppress(NotFound):
            served = self._catalogues.served(left.left)
            catalogue = served if served.uid == left.left_uid else catalogue
        # an unsettled version was settled by a later one of the same catalogue, or has no rewards
        for number in range(left.version - 1, 0, -1) if record.intercept and record.constant is None else ():
            if (later := await self.versions.one(uid, number)) is not None:
                stored = _with(stored, _settled(record, by=bytes_to_version(later)[1].record))
                break
        until = bandit.record.space
        former = FormerCatalogue(left.left_uid, left.left_dim, until)
        return bandit_of(bandit.name, stored, catalogue, self._policies, former)

    async def known_now(self, name: str) -> Bandit:
        """The bandit as the store has it now. Raises NotFound, Unavailable."""
        if not await self._hooks.poll_now():
            raise Unavailable("the store does not answer")
        await self.ready(name)
        return self._get_served(name)

    async def again_if_moved(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``step``; once more if one of its ``ready`` bandits was just moved.

        Raises what ``step`` raises.
        """
        try:
            return await step()
        except BanditMoved:
            await self._hooks.poll_now()
            return await step()

    async def move(self, name: str, expected: bytes, moved: Moved, *, by: str | None) -> Bandit:
        """Move a bandit to another catalogue: ``moved`` makes record and move of the present version.

        ``moved`` is called again if somebody changes the bandit meanwhile, and may raise. Raises NotFound,
        Unavailable.
        """
        async with self.changing:
            stored, catalogue = await self.versions.move(name, expected, moved, by)
            if catalogue is None:
                raise NotFound("the catalogue was deleted during the request")
            return self._current(name, stored, self._catalogues.served(catalogue))

    def by_uid(self, uid: str) -> Bandit | None:
        """The bandit of this uid, if this process knows it."""
        return self._by_uid.get(uid)

    def of_catalogue(self, name: str) -> list[str]:
        """The uids of the bandits of a catalogue."""
        return [uid for uid, bandit in self._by_uid.items() if bandit.record.catalogue == name]

    def with_learned_priors(self) -> Sequence[str]:
        """The uids of the bandits with a learned prior."""
        return [uid for uid, bandit in self._by_uid.items() if bandit.record.prior == "learned"]

    def page(
        self, cursor: str | None, limit: int, names: Collection[str] | None = None
    ) -> tuple[Sequence[Bandit], str | None]:
        """A page of bandits. ``names``: of those visible to the caller; None: all."""
        shown = [bandit for bandit in self if names is None or bandit.name in names]
        return page_by_name(shown, lambda b: b.name, cursor, limit)

    async def delete(self, name: str) -> None:
        """Delete the bandit and all its learners. Its tokens are worth nothing from now on."""
        await self.get(name)
        async with self.changing:
            bandit = self._get_served(name)
            self._drop(name)
            try:
                await self._store.registry.delete_bandit(name, bandit.uid, catalogue=bandit.record.catalogue)
            except BaseException:
                # the deletion is uncertain: the bandit is served until a poll says more
                self._serve(bandit)
                raise

    def _visible(self, uid: str, names: Collection[str] | None) -> Bandit | None:
        bandit = self._by_uid.get(uid)
        return bandit if bandit is None or names is None or bandit.name in names else None

    def _get_served(self, name: str) -> Bandit:
        if name in self._newer:
            raise Unavailable(self._newer[name][1])
        try:
            return self._served[name]
        except KeyError:
            raise NotFound("there is no bandit with this name") from None

    def _completed(self, record: BanditRecord, stored: BanditRecord | None) -> BanditRecord:
        """The record with its policy's defaults, and those of its context. Raises Invalid."""
        if (record.reward.wait_s or 0.0) > self._most_wait_s:
            raise Invalid(
                f"wait_s must not be longer than a decision can be rewarded, {self._most_wait_s:g} s",
                path=("reward", "wait_s"),
            )
        return completed(record, self._policies, stored)

    def _current(self, name: str, stored: bytes, catalogue: Catalogue) -> Bandit:
        """The bandit as it is stored, which is served from now on. The caller holds ``changing``."""
        bandit = self._served.get(name)
        if bandit is None or bandit.stored != stored:
            self._drop(name)
            bandit = self._serve(self._make_served(name, stored, catalogue))
        return bandit

    def _make_served(self, name: str, stored: bytes, catalogue: Catalogue) -> Bandit:
        return bandit_of(name, stored, catalogue, self._policies)

    def _drop(self, name: str) -> None:
        bandit = self._served.pop(name, None)
        if bandit is not None:
            self._by_uid.pop(bandit.uid, None)
            self._keep(bandit)

    def _keep(self, bandit: Bandit) -> None:
        """Have an earlier version at hand: decisions of it come to be rewarded."""
        if not bandit.is_settled:
            return
        size = len(bandit.stored) + OBJECT_BYTES
        self._earlier.put((bandit.uid, bandit.version.number), bandit, size)

    def _serve(self, bandit: Bandit) -> Bandit:
        self._served[bandit.name] = bandit
        self._by_uid[bandit.uid] = bandit
        return bandit


def _is_before(earlier: Bandit, bandit: Bandit) -> bool:
    """True if an earlier version in memory fits the bandit as it is now."""
    if earlier.former is not None:
        return earlier.former.until == bandit.record.space
    return earlier.record.space == bandit.record.space and earlier.catalogue is bandit.catalogue


def _settled(record: BanditRecord, by: BanditRecord) -> BanditRecord:
    """The record of a version of a bandit, with the constant of another one: there is only one of both."""
    if not record.intercept or record.constant is not None:
        return record
    square = by.mean_square if record.mean_square is None else record.mean_square
    filled = by.filled if record.filled is None else record.filled
    return replace(record, constant=by.constant, mean_square=square, filled=filled)


def _with(stored: bytes, record: BanditRecord) -> bytes:
    """The stored bytes of a version, with another record."""
    uid, version = bytes_to_version(stored)
    return version_to_bytes(uid, replace(version, record=record))
