"""The service without its HTTP face: what it is made of, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import shutil
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from app.api.rates import Rates
from app.bandits.registry import Bandits
from app.bandits.spaces import Moves
from app.campaigns.campaigns import Campaigns
from app.campaigns.noisy_centers import CenterCampaigns, NoisyCenters
from app.campaigns.slate_warm_start import SlateWarmStart
from app.campaigns.slates import SlateCampaigns, Slates
from app.caps.quotas import Quotas
from app.catalogues.adaptive_solver import IndependentSolvers
from app.catalogues.catalogues import Catalogues
from app.decision_log.buffer import RowBuffer
from app.decision_log.reading import DecisionLog
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.indexes.shared_arms import SharingGroup
from app.learning.decisions import Decisions
from app.learning.forgetting import Forgetting
from app.learning.learned_log import LearnedLog
from app.learning.learned_priors import LearnedPriors
from app.learning.learner_copies import LearnerCopies
from app.learning.learners import Learners
from app.learning.prior_fits import PriorFits
from app.learning.reward_entries import RewardEntries
from app.learning.rewards import Receipt, Rewards
from app.learning.tokens import TokenSecrets, TokenSigner
from app.measuring.evaluation_jobs import EvaluationJobs
from app.measuring.evaluations import Evaluations
from app.measuring.explain import Explanations
from app.measuring.export import Exports
from app.measuring.report import Reports
from app.milvus.engine import Engine
from app.moving.moving import Moving
from app.platform.background import end
from app.platform.directory_lock import try_lock
from app.platform.errors import StartupError
from app.platform.metrics import Metrics, WatchedGuardrails
from app.platform.settings import Settings
from app.policies.base import PolicyDependencies
from app.policies.elimination_state import EliminationCache
from app.policies.registry import POLICIES
from app.policies.warm_up import Covers, WarmUp
from app.queries.centers import CatalogueCenters
from app.queries.mips import Mips
from app.queries.sampling import Sampling
from app.replication import health
from app.replication.expected_store import ExpectedStore
from app.replication.health import Health
from app.replication.sync import RemoteWorkers, Sync
from app.serving.choice import known_entry_of
from app.serving.constraints.frequency_caps import FrequencyCaps
from app.serving.constraints.registry import Constraints
from app.serving.dry_runs import DryRuns
from app.serving.pipeline import Choosing, Pipeline
from app.storage.embedded.losses import Losses
from app.storage.store import Store
from app.storage.types import LearnerChanges
from workers import arm_following, index_maintenance
from workers.carrying import Carrying
from workers.housekeeping import Housekeeping
from workers.leases import Leases, OnlyWorker, SharedWorker
from workers.log_retention import LogRetention
from workers.prior_fitting import PriorFitting
from workers.reward_ingestion import RewardWorker, Step

SHARED = "shared"
POLL_S = 5.0  # ``Sync`` wakes the worker when another process has appended to a log


class Service:
    """All services of one process, over one store. ``start`` before use, ``stop`` afterwards.

    ``name`` is that of its worker among all workers of the store. ``group_dir``: the folder of index files of
    a group of processes, see ``index_folder``; None: this process has one of its own.
    """

    def __init__(  # noqa: PLR0915 - one after the other
        self,
        settings: Settings,
        store: Store,
        metrics: Metrics,
        *,
        name: str | None = None,
        group_dir: Path | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.metrics = metrics
        self.rates = Rates(lambda key, by: metrics.rate_refused.labels(key, by).inc())
        self._ending = contextlib.AsyncExitStack()
        self._ending.push_async_callback(store.close)
        self._expected = ExpectedStore(store, settings.data_dir, accept_loss=settings.accept_loss)
        self._ending.push_async_callback(self._expected.finish)
        self._accepted, self._duplicate = map(metrics.rewards.labels, ("accepted", "duplicate"))
        token_ttl_ms = settings.token_ttl_s * 1_000
        self.signer = TokenSigner()
        self.secrets = TokenSecrets(
            store, self.signer, period_ms=settings.token_secret_s * 1_000, token_ttl_ms=token_ttl_ms
        )
        uri = settings.milvus_uri
        self.engine = None if uri is None else Engine(uri.get_secret_value())
        if self.engine is not None:
            self._ending.push_async_callback(self.engine.close)
        self.catalogues = Catalogues(
            store,
            index_dir=group_dir or index_folder(settings.data_dir),
            keep_ms=token_ttl_ms,
            refresh=self._poll_for_news,
            group=SharingGroup(group_dir / SHARED) if group_dir is not None else None,
            engine=self.engine,
            has_taught=self._has_taught,
        )
        self.moves = Moves(store.moves)
        self.bandits = Bandits(
            store,
            self.catalogues,
            policies=POLICIES,
            most_wait_s=settings.token_ttl_s,
            refresh=self._poll_for_news,
            moves=self.moves,
        )
        learner_bytes = settings.posterior_cache_mb << 20
        self.learners = Learners(store, capacity_bytes=learner_bytes, moves=self.moves)
        self.priors = LearnedPriors(store.priors, capacity_bytes=max(4 << 20, learner_bytes // 8))
        self.prior_fits = PriorFits(store, self.priors, fitted=metrics.prior_was_fitted, moves=self.moves)
        remote = RemoteWorkers(self._sync_learners)
        is_alone = name is not None and group_dir is None  # its store is its own, and no other process serves
        leases = (
            OnlyWorker()
            if is_alone
            else Leases(store, name or secrets.token_hex(8), lease_s=settings.lease_s)
        )
        self._worker = self._make_worker(leases, remote) if settings.worker else None
        self._prior_fitting = PriorFitting(
            store.priors, self.bandits, self.priors, self.prior_fits, owns=leases.owns
        )
        self.quotas = Quotas(store, counted=metrics.set_quota_states)
        self.sync = Sync(
            store,
            self.catalogues,
            self.bandits,
            self.learners,
            self.quotas,
            priors=self.priors,
            every_s=settings.follow_s,
            changed=self._changed,
        )
        self.decisions = Decisions(store, self.catalogues, self.bandits, self.signer, self.quotas)
        self.elimination = EliminationCache(self.learners, capacity_bytes=settings.elimination_cache_mb << 20)
        self.independent = IndependentSolvers(capacity_bytes=settings.adaptive_cache_mb << 20)
        covers = Covers()
        self.filtered = FilteredSnapshots(capacity_bytes=settings.filter_cache_mb << 20)
        dependencies = PolicyDependencies(
            learners=self.learners,
            filtered=self.filtered,
            independent=self.independent,
            elimination=self.elimination,
            warm_up=WarmUp(store, covers, ttl_ms=token_ttl_ms),
            covers=covers,
        )
        self.rows = RowBuffer(
            store, reported=lambda outcome, count: metrics.log_rows.labels(outcome).inc(count)
        )
        self.decision_log = DecisionLog(store, self.bandits)
        self.evaluations = Evaluations(
            self.bandits,
            self.catalogues,
            self.learners,
            self.filtered,
            covers,
            priors=self.priors,
            pages=self.decision_log,
            rewarded_ms=token_ttl_ms,
            evaluated=metrics.evaluated.inc,
        )
        self.evaluation_jobs = EvaluationJobs(
            store.jobs, ended=lambda outcome: metrics.evaluation_jobs.labels(outcome).inc()
        )
        self.frequency_caps = caps = FrequencyCaps(
            store.choices, unlimited=metrics.unlimited.labels("shown").inc
        )
        constraints = Constraints(self.sync, caps, self.quotas)
        self.pipeline = Pipeline(dependencies, self.sync, constraints)
        self.dry_runs = DryRuns(store.arms, self.pipeline, self.sync, self.priors)
        self.choosing = Choosing(
            store,
            self.learners,
            self.pipeline,
            self.signer,
            self.decisions,
            priors=self.priors,
            sync=self.sync,
            token_ttl_ms=token_ttl_ms,
            rows=self.rows,
            grouped=lambda group: metrics.group_decisions.labels(group).inc(),
        )
        entries = RewardEntries(
            self.catalogues,
            self.bandits,
            self.signer,
            observation_ttl_ms=settings.observation_ttl_s * 1_000,
        )
        workers = self._worker or remote
        self.rewards = Rewards(
            store,
            self.bandits,
            entries,
            workers,
            self.quotas,
            received=self._received,
            unlimited=metrics.unlimited.labels("rewarded").inc,
        )
        self.learner_copies = LearnerCopies(store, workers, self.moves)
        self.moving = Moving(
            store,
            self.catalogues,
            self.bandits,
            self.learners,
            self.decision_log,
            self.quotas,
            moves=self.moves,
            priors=self.priors,
            fits=self.prior_fits,
            workers=workers,
            policies=POLICIES,
            rewarded_ms=token_ttl_ms,
        )
        self._owns = leases.owns
        self.forgetting = Forgetting(
            store, workers, [self.elimination, caps], token_ttl_ms=token_ttl_ms, event_knew=known_entry_of
        )
        self.centers = CatalogueCenters(self.filtered)
        self.reports = Reports(
            self.bandits, self.decision_log, watched=WatchedGuardrails(metrics.guardrails).set_states
        )
        self.exports, self.learned_log = Exports(self.decision_log), LearnedLog(store)
        self.explanations = Explanations(self.bandits, self.decision_log, self.pipeline, self.priors)
        campaign_bytes = settings.campaign_cache_mb << 20
        self.center_campaigns: CenterCampaigns = Campaigns(
            store, NoisyCenters(), capacity_bytes=campaign_bytes
        )
        self.slates: SlateCampaigns = Campaigns(store, Slates(), capacity_bytes=campaign_bytes)
        self.slate_warm_start = SlateWarmStart(self.rewards, ttl_ms=settings.observation_ttl_s * 1_000)
        self.mips = Mips(
            cache_bytes=settings.mips_cache_mb << 20, independent=self.independent, filtered=self.filtered
        )
        self.sampling = Sampling(self.mips.copies, self.filtered)
        self.health = Health(
            store,
            self.catalogues,
            self.bandits,
            self.learners,
            quotas=self.quotas,
            priors=self.priors,
            sync=self.sync,
            metrics=metrics,
            max_backlog=settings.max_backlog,
            worker=settings.worker,
            losses=Losses(settings.data_dir),
            data_dir=settings.data_dir,
        )
        for service in (
            self.elimination,
            self.independent,
            self.filtered,
            self.centers,
            self.exports,
            self.center_campaigns,
            self.slates,
            self.mips,
            self.sampling,
        ):
            self._ending.enter_context(contextlib.closing(service))
        if self._worker is not None:
            self._ending.push_async_callback(self._worker.stop)
        self._ending.push_async_callback(self.evaluation_jobs.stop)
        self._ending.push_async_callback(self.rows.stop)
        self._ending.push_async_callback(self.quotas.stop)
        self._background: list[asyncio.Task[None]] = []
        self._ending.push_async_callback(end, self._background)

    async def start(self) -> None:
        """Load everything from the store; afterwards all endpoints answer, exactly until graphs are there.

        Raises StartupError when the store lacks something that it must have.
        """
        await self._expected.check()
        self._run(self._expected.run())
        await self.secrets.refresh()
        self._run(self.secrets.run())
        if self.engine is not None:
            await self.engine.open()
        await self.catalogues.load()
        self.catalogues.check_engine()
        await self.bandits.load()
        await self.sync.poll()
        if self._worker is not None:
            await self._worker.start()
            housekeeping = Housekeeping(
                self.store, self.forgetting, wake=self._worker.wake, done=self._on_housekeeping
            )
            retention = LogRetention(
                self.store, most_bytes=self.settings.max_log_mb << 20, done=self._on_housekeeping
            )
            carrying = Carrying(
                self.store,
                owns=self._owns,
                wake=self._worker.wake,
                moves=self.moves,
                carried=partial(self._on_housekeeping, "carried"),
            )
            self._run(housekeeping.run(), retention.run(), self._prior_fitting.run(), carrying.run())
        self._run(
            self.sync.run(),
            self.rows.run(),
            self.quotas.run(),
            health.watch(self.store),
            arm_following.run(self.catalogues, self.store, self.engine),
            index_maintenance.run(
                self.catalogues, lambda outcome: self.metrics.index_builds.labels(outcome).inc()
            ),
        )
        self.health.ready = True

    async def stop(self) -> None:
        """Finish what is under way and leave; what was acknowledged is in the store."""
        self.health.ready = False
        await self._ending.aclose()

    def _run(self, *work: Coroutine[Any, Any, None]) -> None:
        """Run this until ``stop``."""
        self._background += map(asyncio.create_task, work)

    def _on_housekeeping(self, kind: str, count: int) -> None:
        self.metrics.housekeeping.labels(kind).inc(count)

    async def _has_taught(self, catalogue: str) -> bool:
        """Whether a bandit has learned from the arms of a catalogue."""
        uids = self.bandits.of_catalogue(catalogue)
        return any(counts.entries for counts in await self.store.priors.folded(uids))

    async def _poll_for_news(self) -> bool:
        return await self.sync.poll_for_news()

    def _make_worker(self, leases: Leases | OnlyWorker, remote: RemoteWorkers) -> SharedWorker:
        worker = RewardWorker(
            self.store,
            applied=self._applied,
            resync=self._sync_learners,
            poll_s=POLL_S,
            reward_log_s=self.settings.reward_log_s,
            capacity_bytes=self.settings.worker_cache_mb << 20,
            owns=leases.owns,
            moves=self.moves,
        )
        return SharedWorker(worker, leases, remote)

    def _applied(self, step: Step) -> None:
        self.learners.applied(step.partition, step.before, step.after, step.states)
        self._prior_fitting.changed(learner.bandit_uid for learner in step.states)
        self.forgetting.dropped([learner for learner, state in step.states.items() if state is None])
        self.metrics.applied.inc(step.entries)

    async def _sync_learners(self, partition: int) -> LearnerChanges:
        """Take over what others have written to the learners of a partition."""
        changes = (await self.learners.sync([partition]))[partition]
        self._heard(changes)
        return changes

    def _heard(self, changes: LearnerChanges) -> None:
        """Of what others have written to the learners of a partition."""
        learners = changes.learners
        self.forgetting.dropped(None if learners is None else changes.removed)
        self._prior_fitting.changed(None if learners is None else (each.bandit_uid for each in learners))

    def _changed(self, partition: int, changes: LearnerChanges) -> None:
        self._heard(changes)
        if self._worker is not None:
            self._worker.changed(partition, changes)

    def _received(self, receipt: Receipt) -> None:
        self._accepted.inc(receipt.accepted)
        if receipt.duplicate:
            self._duplicate.inc(receipt.duplicate)
        for group, count in receipt.rewarded.items():
            self.metrics.group_rewards.labels(group).inc(count)
        for _, code in receipt.rejected:
            self.metrics.rewards.labels(code).inc()


def index_folder(data_dir: Path, *, is_group: bool = False) -> Path:
    """A folder for index files that no other process or group uses, without what a group shared.

    ``is_group``: with an empty folder for what this one will share. Raises StartupError.
    """
    for number in itertools.count(1):
        path = data_dir / ("indexes" if number == 1 else f"indexes-{number}")
        try:
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)  # the mode is not that of parents
            path.mkdir(exist_ok=True, mode=0o700)
            if try_lock(path) is None:
                continue
            shutil.rmtree(path / SHARED, ignore_errors=True)
            if is_group:
                (path / SHARED).mkdir(mode=0o700)  # a link is not followed: what it leads to may be of others
        except FileExistsError as error:
            found = error.filename
            raise StartupError(
                f"the folder {found} cannot be made: remove the file or link of this name"
            ) from None
        except OSError as error:
            raise StartupError(f"{error.filename or path} cannot be made: {error.strerror}") from None
        return path
    raise AssertionError
