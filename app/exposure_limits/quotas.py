"""The quotas of all bandits: how they are made, counted and polled.

A bandit without quotas has none here, and costs nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from app.bandits.bandit import Bandit
from app.exposure_limits.bandit_quotas import BanditQuotas
from app.exposure_limits.closed_arms import FINDING
from app.exposure_limits.known_quotas import KnownQuotas
from app.exposure_limits.rules import MAX_QUOTAS, BanditQuota, QuotaRule
from app.filters.overview import no_arm_has, unknown_fields
from app.platform.cursors import page_by_name
from app.platform.errors import Conflict, Invalid, NotFound, TooManyQuotas
from app.platform.metrics import Metrics
from app.platform.phrases import counted
from app.storage.store import Store
from app.storage.types import QuotaWindow

MOST_NAMED = 10  # quotas, in a finding
LATEST_MS = 253_370_764_800_000  # the year 9999
FOREVER_MS = 2**52
LOOK_S, TRIM_S = 5.0, 3_600.0  # between two looks at the arms of all quotas, or two trims of changes
KEPT_MS = 86_400_000  # changes, beyond the rows that name them


class QuotaState(msgspec.Struct, frozen=True):
    """A quota, and its counts in the current window. Times: ms since 1970; no ``window``: the quota does not
    hold.

    ``outstanding``: exposures without reward; None of a quota of exposures. ``ends_ms``: when the quota is
    used up at the rate since the window began; None: not in this window.
    """

    quota: BanditQuota
    used: int
    left: int
    window: tuple[int, int | None] | None
    ends_ms: int | None
    outstanding: int | None


class Quotas:
    """For the event loop. ``of``: the quotas of each bandit with some, by its uid."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self.of: dict[str, BanditQuotas] = {}
        # By bandit how many changes had been noted when its quotas were read.
        self._noted: dict[str, int] = {}
        self._without_arms: dict[str, Sequence[str]] = {}
        self._look_at = self._trim_at = 0.0

    async def replace(self, noted: Mapping[str, int]) -> None:
        """Read changed quotas of bandits. ``noted``: number of noted changes of each.

        Raises Unavailable.
        """
        for uid in (self.of.keys() | self._noted.keys()) - noted.keys():
            await self._read(uid)
            self._noted.pop(uid, None)
        for uid, number in noted.items():
            # Not "less than": a store restored from a backup counts from an earlier number.
            if number != self._noted.get(uid):
                await self._read(uid)
                self._noted[uid] = number  # last: if a read fails, it is read again in the next round

    async def put(self, bandit: Bandit, quota_id: str, rule: QuotaRule) -> tuple[QuotaState, bool]:
        """Make a quota, or change ``most``, ``pace`` and ``to`` of one; (the quota, whether it is new).

        Raises Invalid, TooManyQuotas, Conflict (the existing one counts something else), Unavailable.
        """
        # In an engine there is no table of arms here whose rows could be counted.
        bandit.catalogue.need_arms("a quota")
        rule = rule.checked()
        _check_known(bandit, rule)
        is_stored: bool | None = False
        while not is_stored:
            stored = await self._find(bandit, quota_id)
            # What was counted would be of other arms, or of another window.
            if stored is not None and (field := stored.rule.changed_field(rule)) is not None:
                reason = "only most, pace and to of a quota can be changed"
                raise Conflict(f"{field} differs: {reason}", path=(field,))
            if stored is None and rule.to_ms is not None and rule.to_ms <= 1_000 * time.time():
                raise Invalid("must not be past: the quota would never hold", path=("to",))
            quota = BanditQuota.of_rule(
                quota_id, secrets.token_hex(8) if stored is None else stored.uid, rule
            )
            before, terms = b"" if stored is None else stored.record, rule.terms(quota.uid)
            # Refused where another process has changed the quota since.
            is_stored = await self._store.quotas.put(
                bandit.uid, quota_id, quota.record, before, terms, most=MAX_QUOTAS
            )
            if is_stored is None:
                path = ("filter" if rule.arm is None else "arm",)
                raise TooManyQuotas(f"a bandit has at most {MAX_QUOTAS:,} quotas", path=path)
        await self._changed(bandit.uid)
        return await self.get(bandit, quota_id), stored is None

    async def get(self, bandit: Bandit, quota_id: str) -> QuotaState:
        """Raises NotFound, Unavailable."""
        quota = await self._find(bandit, quota_id)
        if quota is None:
            raise NotFound("there is no quota with this id")
        (state,) = await self._states(bandit, [quota])
        return state

    async def page(
        self, bandit: Bandit, cursor: str | None, limit: int
    ) -> tuple[Sequence[QuotaState], str | None]:
        """In the order of their ids. Raises Unavailable."""
        of = self.of.get(bandit.uid)
        quotas = [] if of is None else [*of.known.by_id.values()]
        page, following = page_by_name(quotas, lambda quota: quota.id, cursor, limit)
        return await self._states(bandit, page), following

    async def delete(self, bandit: Bandit, quota_id: str) -> None:
        """Raises NotFound, Unavailable."""
        of = self.of.get(bandit.uid)
        # Read before the store is asked: a poll may drop the quota meanwhile.
        is_known = of is not None and quota_id in of.known.by_id
        was_there = await self._store.quotas.delete(bandit.uid, quota_id)
        if was_there or is_known:  # it may have been deleted by a call whose answer was lost
            await self._changed(bandit.uid)
        if not was_there:
            raise NotFound("there is no quota with this id")

    async def count_rewards(self, bandit: Bandit, rewarded: Sequence[tuple[str, str | None]]) -> None:
        """Count rewards for the quotas of rewards: (arm, signal or None). Raises Unavailable."""
        quotas = self.of.get(bandit.uid)
        if quotas is not None:
            await quotas.reward(bandit.catalogue.index.snapshot(), rewarded)

    def rules(self, bandit: Bandit) -> list[tuple[str, QuotaRule]]:
        """The quotas of a bandit, by their ids, as this process knows them."""
        quotas = self.of.get(bandit.uid)
        by_id = {} if quotas is None else quotas.known.by_id
        return sorted((quota_id, quota.rule) for quota_id, quota in by_id.items())

    def warnings(self, bandit: Bandit) -> Iterator[str]:
        """Sentences on the quotas of a bandit without arms, as last looked at."""
        empty = self._without_arms.get(bandit.uid, ())
        if empty:
            others = counted(len(empty) - MOST_NAMED, "other", "others")
            more = f" and {others}" if len(empty) > MOST_NAMED else ""
            yield f"has quotas that no arm counts for: {', '.join(empty[:MOST_NAMED])}{more}"

    async def poll(self, bandits: Iterable[Bandit]) -> None:
        """Hear of all changes of quotas of these bandits, and look at their arms now and then.

        Raises Unavailable.
        """
        # A copy: a quota may be put or deleted while the store is awaited.
        served = [(bandit, of) for bandit in bandits if (of := self.of.get(bandit.uid)) is not None]
        await asyncio.gather(*(of.poll() for _, of in served))
        closed = sum(len(of.known.closed().quotas) for _, of in served)
        self._metrics.quotas.labels("closed").set(closed)
        self._metrics.quotas.labels("open").set(sum(len(of.known.by_id) for _, of in served) - closed)
        clock_s = time.monotonic()
        if clock_s >= self._look_at:
            self._look_at = clock_s + LOOK_S
            for bandit, of in served:
                find = partial(of.known.members.absent, bandit.catalogue.index.snapshot().whole)
                self._without_arms[bandit.uid] = await FINDING.run(find)
        if clock_s >= self._trim_at:
            self._trim_at = clock_s + TRIM_S
            for bandit, of in served:
                kept_ms = KEPT_MS + (0 if bandit.record.log is None else bandit.record.log.keep_ms)
                await self._store.quotas.trim(bandit.uid, of.known.now_ms - kept_ms)

    async def _find(self, bandit: Bandit, quota_id: str) -> BanditQuota | None:
        """A quota as stored now. Raises Unavailable."""
        await self._read(bandit.uid)
        quotas = self.of.get(bandit.uid)
        return None if quotas is None else quotas.known.by_id.get(quota_id)

    async def _states(self, bandit: Bandit, quotas: Sequence[BanditQuota]) -> list[QuotaState]:
        of = self.of.get(bandit.uid)
        if of is None or not quotas:
            return []
        windows = await of.windows(quotas)
        return [_state(quota, window, of.known.now_ms) for quota, window in zip(quotas, windows, strict=True)]

    async def _changed(self, bandit_uid: str) -> None:
        # Others first: if this process dies now, they hear of the change all the same.
        await self._store.quotas.changed(bandit_uid)
        await self._read(bandit_uid)

    async def _read(self, bandit_uid: str) -> None:
        """Read the stored quotas of a bandit. Cost: the changed ones."""
        quotas = self.of.get(bandit_uid) or BanditQuotas(self._store.quotas, bandit_uid, KnownQuotas())
        await quotas.poll()
        # A bandit without quotas must not pay for them in every choice.
        if quotas.known.by_id:
            self.of.setdefault(bandit_uid, quotas)
        else:
            self.of.pop(bandit_uid, None)


def _check_known(bandit: Bandit, rule: QuotaRule) -> None:
    """Raise Invalid for a missing arm, a field of no arm, a signal which the bandit lacks."""
    index = bandit.catalogue.index
    if rule.signal is not None and rule.signal not in (bandit.record.signals or {}):
        raise Invalid("the bandit has no signal with this name", path=("signal",))
    if rule.arm is not None and rule.arm not in index:
        raise Invalid("no arm has this id", path=("arm",))
    for field in unknown_fields(index.snapshot().attributes, rule.fields):
        raise Invalid(no_arm_has(field), path=("filter", field))


def _state(quota: BanditQuota, window: QuotaWindow, now_ms: int) -> QuotaState:
    rule, (start_ms, finish_ms, shown, rewarded) = quota.rule, window
    counts_rewards = rule.counts == "rewarded"
    used = rewarded if counts_rewards else shown
    # ``most`` may have been lowered below what was shown already.
    left, outstanding = max(rule.most - used, 0), max(shown - used, 0) if counts_rewards else None
    if start_ms < 0:
        return QuotaState(quota, used, left, None, None, outstanding)
    ends_ms = None
    if used and now_ms > start_ms:
        ends_ms = now_ms + round(left * (now_ms - start_ms) / used)
        # A time beyond the year 9999 cannot be written as a date; and a time after the window says nothing.
        if ends_ms >= min(finish_ms, LATEST_MS):
            ends_ms = None
    window_ends = finish_ms if finish_ms < FOREVER_MS else None
    return QuotaState(quota, used, left, (start_ms, window_ends), ends_ms, outstanding)
