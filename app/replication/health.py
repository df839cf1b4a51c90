"""The readiness of this process, its memory, and the findings of /v1/status about its parts."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.catalogues.catalogues import Catalogues
from app.catalogues.engines import engine_titles, reach_engines
from app.exposure_limits.quotas import Quotas
from app.learners.learned_priors import LearnedPriors
from app.learners.learners import Learners
from app.learners.one_key_teaches import OneKeyTeaches, found_lately
from app.platform.background import repeat
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.platform.pauses import Pauses
from app.platform.phrases import counted
from app.replication.sync import Sync
from app.storage.embedded.losses import Loss, Losses
from app.storage.memory import Level
from app.storage.redis_errors import DISK_FULL, IS_REPLICA, is_full, refused
from app.storage.store import Store
from app.storage.types import Lag

FINDINGS = (
    "store",
    "dead",
    "disk",
    "durability",
    "space",
    "index",
    "quotas",
    "features_replaced",
    "one_key_teaches",
    "plugins",
    "move",
    "loss",
)
"""The names of findings that are not well."""
REFUSED = {
    Level.OPTIONAL: "jobs are refused; rows of decision logs, what keys without a history are shown "
    "(repeats) and what arms learn (arm_effects) are left out",
    Level.NEW: "only rewards, activations and choices that leave nothing are taken, besides what makes room",
    Level.REWARDS: "rewards are refused, too",
}
PROBE_S, STATUS_S = 2.0, 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement: well (``good``), or not, or neither (null). ``text``: without a full stop."""

    name: str
    good: bool | None
    text: str


def features_replaced(catalogue: str) -> Finding:
    """The finding of a catalogue whose features were replaced by those of another space."""
    return Finding(
        "features_replaced",
        False,
        f"the features of many arms of {catalogue} were replaced by others that have little to do with them, "
        "so what its bandits had learned is noise: put back the old features, import the new ones into "
        "another catalogue and move the bandits there (shortlist move)",
    )


def one_key_gives_most(bandit: str, taught: OneKeyTeaches) -> Finding:
    """The finding of a bandit whose arm effects one key moves."""
    what = f"the arm {taught.arm}" if taught.arm else "all arms"
    return Finding(
        "one_key_teaches",
        False,
        f"one key gave more than half of the last {taught.rewards:,} rewards of {what} of the bandit "
        f"{bandit}, so it moves the arm effects that everybody is served with: see docs/arm-effects.md",
    )


async def watch_memory(store: Store, every_s: float = Pauses().memory_s) -> None:
    """Have the process know how full the store is, until cancelled."""
    await repeat(store.memory.look, every_s=every_s)


@dataclass(frozen=True, slots=True)
class Readiness:
    """``backlog``: rewards that are not yet applied. ``lag_s``: the age of the oldest."""

    backlog: int
    lag_s: float


@dataclass(frozen=True, slots=True)
class Status:
    """The served parts of this process, and their sizes.

    ``store``: when its writes reach the disk, as ``appendfsync`` says. ``loss``: lost data. ``findings``:
    those of `shortlist doctor`. ``store_away_since``: in ms since 1970, since when the store does not answer;
    null: it does. Meanwhile all is as this process last knew it, and ``store`` may be unknown.
    """

    uptime_s: float
    ready: bool
    store: str
    worker: bool
    backlog: int
    catalogues: int
    arms: int
    bandits: int
    cached_learners: int
    cached_learner_bytes: int
    loss: Loss | None
    findings: Sequence[Finding]
    store_away_since: int | None


@dataclass(slots=True, kw_only=True, eq=False)
class Health:
    """Answers about one process and its store.

    ``max_backlog``      with more rewards waiting the process is not ready
    ``worker``           True if the process applies rewards
    ``missing_plugins``  needs of a bandit which no loaded plug-in provides
    ``ready``            set at the start and the stop of the services
    ``engine_start_s``   an engine of arms without an answer counts as starting for so long
    """

    store: Store
    catalogues: Catalogues
    bandits: Bandits
    learners: Learners
    quotas: Quotas
    priors: LearnedPriors
    sync: Sync
    metrics: Metrics
    max_backlog: int
    worker: bool
    losses: Losses
    data_dir: Path
    missing_plugins: Callable[[Bandit], Sequence[str]]
    ready: bool = False
    engine_start_s: float = 60.0
    _started_at: float = field(default_factory=time.time)
    _durability: str = "unknown"
    _last_backlog: int = 0
    _engine_lost_at: float = 0.0  # 0: it answers, as far as is known

    async def readiness(self) -> Readiness:
        """Return when requests can be served. Raises Unavailable, with the reason, when they cannot."""
        try:
            async with asyncio.timeout(PROBE_S):
                backlog = await self._backlog()
                lag = await self._lag()
                # after calls by keys, from which the client of a cluster learns who its primaries are
                await self.store.ping()
                use = await self.store.memory.look()
        except TimeoutError:
            raise Unavailable("the store does not answer") from None
        if await self.sync.confirm(PROBE_S):
            raise Unavailable("this process has not yet read all changes from the store")
        if not self.ready:
            raise Unavailable("catalogues are being loaded, or the service is stopping")
        await self._reach_engine()
        if self.store.memory.is_reached(Level.REWARDS):
            raise Unavailable(f"{use}: it takes no rewards until some data expire or are deleted")
        if backlog > self.max_backlog:
            raise Unavailable("too many rewards are waiting to be applied")
        return Readiness(backlog, lag.age_s)

    async def _reach_engine(self) -> None:
        """Raise Unavailable while the engine of the arms starts, or loads them.

        An engine which stays away is not waited for: rewards and other catalogues go on without it.
        """
        try:
            async with asyncio.timeout(PROBE_S):
                await reach_engines(self.catalogues)
        except (TimeoutError, Unavailable) as error:
            clock_s = time.monotonic()
            self._engine_lost_at = self._engine_lost_at or clock_s
            if clock_s - self._engine_lost_at < self.engine_start_s:
                reason = error.detail if isinstance(error, Unavailable) else "it does not answer in time"
                raise Unavailable(f"{engine_titles(self.catalogues)} is not ready: {reason}") from None
        else:
            self._engine_lost_at = 0.0

    async def status(self) -> Status:
        """The status by the store and this process; while the store is away, by this process."""
        try:
            async with asyncio.timeout(STATUS_S):
                return await self._status_of_store()
        except (Unavailable, TimeoutError) as error:
            detail = error.detail if isinstance(error, Unavailable) else "the store does not answer"
        since_s = self.sync.confirmed_s()
        text = f"{detail}: {time.time() - since_s:.0f} s ago it last did"
        findings = [Finding("store", False, text), *self._findings_of_process()]
        return self._status(findings, since_ms=round(1_000 * since_s), ready=False)

    async def _status_of_store(self) -> Status:
        """Raises Unavailable."""
        self._durability, backlog = await self.store.redis.durability(), await self._backlog()
        faults = await self.store.redis.faults()
        lag, refusal = await self._lag(), await self._refusal()
        await self.store.memory.look()
        faults = faults if IS_REPLICA in faults else [*faults, *refusal]
        findings = [
            *self._store_findings(backlog, lag.dead, self._durability, faults),
            *self._findings_of_process(),
            *await self._served_findings(),
        ]
        is_ready = self.ready and not refusal and not self.store.memory.is_reached(Level.REWARDS)
        return self._status(findings, since_ms=None, ready=is_ready)

    def _status(self, findings: Sequence[Finding], *, since_ms: int | None, ready: bool) -> Status:
        loss, catalogues = self.losses.known(), list(self.catalogues)
        if loss is not None:
            findings = [*findings, Finding("loss", False, f"{loss.at}: {loss.what}")]
        return Status(
            uptime_s=round(time.time() - self._started_at, 3),
            ready=ready,
            store=self._durability,
            worker=self.worker,
            backlog=self._last_backlog,
            catalogues=len(catalogues),
            arms=sum(len(catalogue.index) for catalogue in catalogues),
            bandits=len(self.bandits),
            cached_learners=len(self.learners),
            cached_learner_bytes=self.learners.bytes,
            loss=loss,
            findings=findings,
            store_away_since=since_ms,
        )

    def _store_findings(
        self, backlog: int, dead: int, durability: str, faults: Sequence[str]
    ) -> Iterator[Finding]:
        """The findings of the store. ``dead``: rewards which could not be applied. ``faults``: reasons why
        the store cannot be used.
        """
        for fault in faults:
            yield Finding("store", False, f"the store {fault}")
        yield Finding(
            "backlog", True, f"{counted(backlog, 'reward is', 'rewards are')} waiting to be applied"
        )
        if dead:
            letters = counted(dead, "reward", "rewards")
            yield Finding("dead", False, f"{letters} could not be applied: shortlist dead-letters list")
        yield Finding("durability", durability == "always", f"the store's appendfsync is {durability}")
        memory = self.store.memory
        if reached := [level for level in Level if memory.is_reached(level)]:
            yield Finding("space", False, f"{memory.use}: {REFUSED[reached[-1]]}")

    def _findings_of_process(self) -> Iterator[Finding]:
        """The findings of this process, without the store."""
        if not self.worker:
            yield Finding("worker", None, "this process applies no rewards: shortlist worker does")
        if is_full(self.data_dir):
            text = f"{DISK_FULL}: the embedded store cannot write, and indexes are not kept"
            yield Finding("disk", False, text)
        for catalogue in list(self.catalogues):
            if failure := catalogue.index.failure:
                text = f"the index of {catalogue.name} stays as it was, because work on it failed: {failure}"
                yield Finding("index", False, text)
        for bandit in list(self.bandits):
            for warning in self.quotas.warnings(bandit):
                yield Finding("quotas", False, f"the bandit {bandit.name} {warning}")
            if missing := self.missing_plugins(bandit):
                text = f"the bandit {bandit.name} chooses nothing: no loaded plug-in provides "
                yield Finding("plugins", False, text + ", ".join(missing))

    async def _served_findings(self) -> list[Finding]:
        """The findings of catalogues and bandits in the store. Raises Unavailable."""
        catalogues, bandits, result = list(self.catalogues), list(self.bandits), list[Finding]()
        used = [catalogue for catalogue in catalogues if self.bandits.of_catalogue(catalogue.name)]
        replaced = await asyncio.gather(
            *(self.catalogues.has_replaced_features(catalogue) for catalogue in used)
        )
        result += [features_replaced(catalogue.name) for catalogue in compress(used, replaced)]
        names = {bandit.uid: bandit.name for bandit in bandits if bandit.record.arm_effects == "auto"}
        one_key = await found_lately(self.store, list(names))
        result += [one_key_gives_most(names[uid], taught) for uid, taught in one_key.items()]
        return result

    async def _refusal(self) -> Sequence[str]:
        """Why the store takes no writes: what follows "the store"."""
        try:
            await self.store.write()
        except Unavailable as error:
            if not refused(error):
                raise
            return [error.detail.removeprefix("the store ")]
        return []

    async def measure(self) -> None:
        """Bring the gauges up to date; those of the store are NaN while it does not answer."""
        self.measure_process()
        metrics = self.metrics
        backlog = age_s = dead = is_replica = math.nan
        counts = dict.fromkeys(FINDINGS, math.nan)
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(PROBE_S):
                backlog, lag = await self._backlog(), await self._lag()
                age_s, dead = lag.age_s, lag.dead
                findings = (await self._status_of_store()).findings
                wrong = [finding.name for finding in findings if finding.good is False]
                is_replica = float(IS_REPLICA in await self.store.redis.faults())
                counts = {name: float(wrong.count(name)) for name in FINDINGS}
        metrics.backlog.set(backlog)
        metrics.lag.set(age_s)
        metrics.dead.set(dead)
        metrics.store_up.set(not math.isnan(is_replica))
        metrics.store_replica.set(is_replica)
        is_away = math.isnan(is_replica)
        metrics.store_bytes.set(math.nan if is_away else self.store.memory.use.used)
        metrics.store_most_bytes.set(math.nan if is_away else self.store.memory.use.most)
        for name, count in counts.items():
            metrics.found.labels(name).set(count)

    def measure_process(self) -> None:
        """Bring the gauges of this process up to date, without a call of the store."""
        metrics, catalogues = self.metrics, list(self.catalogues)
        metrics.count_guardrails({bandit.uid for bandit in self.bandits})
        metrics.learners.set(len(self.learners))
        metrics.learner_bytes.set(self.learners.bytes)
        metrics.prior_age.set(self.priors.oldest_s())
        metrics.arms.set(sum(len(catalogue.index) for catalogue in catalogues))
        statuses = [catalogue.index.status() for catalogue in catalogues]
        metrics.index_exact.set(sum(status.exact for status in statuses))
        metrics.below_target.set(
            sum(status.state == "ready" and status.recall_at_1 < status.target_recall for status in statuses)
        )
        with contextlib.suppress(OSError):
            total, _, free = shutil.disk_usage(self.data_dir)
            metrics.disk.set(total)
            metrics.disk_free.set(free)

    async def _backlog(self) -> int:
        self._last_backlog = sum(
            await asyncio.gather(*map(self.store.rewards.backlog, range(self.store.partitions)))
        )
        return self._last_backlog

    async def _lag(self) -> Lag:
        """The largest age and the number of all dead letters, over all partitions."""
        lags = await asyncio.gather(*map(self.store.rewards.lag, range(self.store.partitions)))
        return Lag(max(lag.age_s for lag in lags), sum(lag.dead for lag in lags))
