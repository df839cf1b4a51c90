"""The service without its HTTP face: what it is made of, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import shutil
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.api.plugin_routes import RouteDependencies, Routes
from app.api.rate_limits import Rates
from app.bandits.served_bandits import Bandits
from app.bandits.spaces import Moves
from app.catalogues.adaptive_solver import IndependentSolvers
from app.catalogues.candidates import CandidateArms
from app.catalogues.catalogue_kinds import engines_of
from app.catalogues.catalogues import Catalogues
from app.catalogues.engines import check_engines
from app.decision_log.buffer import RowBuffer
from app.decision_log.reading import DecisionLog
from app.exposure_limits.caps import FrequencyCaps
from app.exposure_limits.quotas import Quotas
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.indexes.index_limits import IndexLimits
from app.indexes.shared_arms import SharingGroup
from app.learners.effect_fits import EffectFits
from app.learners.learned_priors import LearnedPriors
from app.learners.learner_copies import LearnerCopies
from app.learners.learners import Learners
from app.learners.prior_fits import PriorFits
from app.learners.served_effects import ServedEffects
from app.measuring.explain import Explanations
from app.measuring.export import Exports
from app.measuring.jobs import Jobs
from app.measuring.report import Reports
from app.moving.moving import Moving
from app.moving.plan_steps import PlanSteps
from app.platform.background import BackgroundWork, end
from app.platform.directory_lock import try_lock
from app.platform.errors import StartupError
from app.platform.group_metrics import ShownMetrics
from app.platform.hooks import Hooks
from app.platform.metrics import Metrics
from app.platform.pauses import Pauses
from app.platform.plugins import start_errors
from app.platform.settings import Settings
from app.policies.base import PolicyDependencies
from app.policies.elimination_state import EliminationCache
from app.policies.policy_states import PolicyStates
from app.policies.registry import POLICIES
from app.queries.mips import Mips
from app.replication import health
from app.replication.expected_store import ExpectedStore
from app.replication.health import Health
from app.replication.sync import RemoteWorkers, Sync
from app.rewards.decisions import Decisions
from app.rewards.erasure import Erasure
from app.rewards.events import Events
from app.rewards.learned_log import LearnedLog
from app.rewards.reward_entries import RewardEntries
from app.rewards.rewards import Rewards
from app.rewards.tokens import TokenSecrets, TokenSigner
from app.rewards.warm_start import WarmStart
from app.selection.covers import Covers
from app.selection.effect_tables import EffectTables
from app.serving.arm_list import ArmList, NoArmList
from app.serving.choice import kept_decision
from app.serving.choosing import Choosing
from app.serving.constraints.base import Constraint
from app.serving.constraints.of_plugins import PLUGIN_CONSTRAINTS, Missing, missing_of
from app.serving.constraints.order import constraints_of
from app.serving.dry_runs import DryRuns
from app.serving.pipeline import Pipeline
from app.storage.embedded.losses import Losses
from app.storage.store import Store
from app.storage.types import LearnerChanges, LearnerId
from workers import arm_following, index_maintenance
from workers.bandit_moves import Carrying
from workers.effect_fitting import EffectFitting
from workers.housekeeping import Housekeeping
from workers.log_retention import LogRetention
from workers.partition_leases import Leases, OnlyWorker, SharedWorker
from workers.prior_fitting import PriorFitting
from workers.reward_ingestion import RewardWorker, Step

SHARED = "shared"
POLL_S = 5.0  # ``Sync`` wakes the worker when another process has appended to a log


class Service:
    """All services of one process, over one store. ``start`` before use, ``stop`` afterwards.

    ``name`` is that of its worker among all workers of the store. ``group_dir``: the folder of index files of
    a group of processes, see ``index_folder``; None: it has one of its own. ``number``: its place in
    the group, from 1. ``routes``: of plug-ins, by name.
    """

    def __init__(  # noqa: PLR0915 - one after the other
        self,
        settings: Settings,
        store: Store,
        metrics: Metrics,
        *,
        name: str | None = None,
        group_dir: Path | None = None,
        number: int = 1,
        pauses: Pauses = Pauses(),
        index_limits: IndexLimits = IndexLimits(),
        routes: Mapping[str, Routes] = MappingProxyType({}),
    ) -> None:
        self.settings = settings
        self.store = store
        self.metrics = metrics
        self._pauses = pauses
        shared_dir = None if group_dir is None else group_dir / SHARED
        self.shown_metrics = ShownMetrics(metrics, shared_dir, number)
        self.rates = Rates(metrics)
        self._ending = contextlib.AsyncExitStack()
        # The stack ends in the opposite order: what is pushed first, the store, is closed last.
        self._ending.push_async_callback(store.close)
        self._expected = ExpectedStore(store, settings.data_dir, accept_loss=settings.accept_loss)
        self._ending.push_async_callback(self._expected.finish)
        token_ttl_ms = settings.token_ttl_s * 1_000
        self.signer = TokenSigner()
        self.secrets = TokenSecrets(
            store, self.signer, period_ms=settings.token_secret_s * 1_000, token_ttl_ms=token_ttl_ms
        )
        self.engines = engines_of(settings)
        for engine in self.engines.values():
            self._ending.push_async_callback(engine.close)
        hooks = Hooks(
            poll_for_news=lambda: self.sync.poll_for_news(),  # noqa: PLW0108 - made below
            poll_now=lambda: self.sync.poll_now(),  # noqa: PLW0108 - as above
            has_taught=self._has_taught,
        )
        self.catalogues = Catalogues(
            store,
            index_dir=group_dir or index_folder(settings.data_dir),
            keep_ms=token_ttl_ms,
            hooks=hooks,
            group=SharingGroup(shared_dir) if shared_dir is not None else None,
            engines=self.engines,
            index_limits=index_limits,
        )
        self.moves = Moves(store.moves)
        self.bandits = Bandits(
            store,
            self.catalogues,
            policies=POLICIES,
            most_wait_s=settings.token_ttl_s,
            hooks=hooks,
            moves=self.moves,
        )
        learner_bytes, search_bytes = settings.posterior_cache_mb << 20, settings.search_cache_mb << 20
        self.learners = Learners(store, capacity_bytes=learner_bytes, moves=self.moves)
        self.priors = LearnedPriors(store.priors, capacity_bytes=max(4 << 20, learner_bytes // 8))
        self.prior_fits = PriorFits(store, self.priors, metrics, moves=self.moves)
        self.effects = ServedEffects(store.effects, capacity_bytes=max(4 << 20, learner_bytes // 2))
        self.effect_fits = EffectFits(store, self.effects, self.priors, metrics)
        self._remote = remote = RemoteWorkers(self.learners, self._learners_changed, wait_s=pauses.applied_s)
        is_alone = name is not None and group_dir is None  # its store is its own, and no other process serves
        leases = OnlyWorker() if is_alone else Leases(store, name or secrets.token_hex(8))
        self.worker = self._make_worker(leases) if settings.worker else None
        self._prior_fitting = PriorFitting(
            store.priors, self.bandits, self.priors, self.prior_fits, owns=leases.owns
        )
        self._effect_fitting = EffectFitting(store, self.bandits, self.effect_fits, owns=leases.owns)
        self.quotas = Quotas(store, metrics)
        self.sync = Sync(
            store=store,
            catalogues=self.catalogues,
            bandits=self.bandits,
            learners=self.learners,
            quotas=self.quotas,
            priors=self.priors,
            effects=self.effects,
            learners_changed=self._learners_changed,
        )
        events = Events(store, self.bandits)
        self.decisions = Decisions(
            store, self.catalogues, self.bandits, self.signer, self.quotas, events=events
        )
        self.elimination = EliminationCache(self.learners, capacity_bytes=learner_bytes)
        self.policy_states = PolicyStates(self.elimination.states)
        self.independent = IndependentSolvers(capacity_bytes=search_bytes)
        self.covers = Covers()
        self.filtered = FilteredSnapshots(capacity_bytes=search_bytes)
        dependencies = PolicyDependencies(
            learners=self.learners,
            filtered=self.filtered,
            independent=self.independent,
            elimination=self.elimination,
            states=self.policy_states,
            covers=self.covers,
            effects=EffectTables(capacity_bytes=max(16 << 20, learner_bytes // 2)),
        )
        self.rows = RowBuffer(store, metrics, rest_s=pauses.rows_s)
        self.decision_log = DecisionLog(store, self.bandits)
        self.frequency_caps = FrequencyCaps(store.frequency_caps, metrics)
        constraints = constraints_of(
            self.sync, self.frequency_caps, self.quotas, Missing(), PLUGIN_CONSTRAINTS
        )
        self.jobs = Jobs(store.jobs, metrics)
        candidates = CandidateArms(store.followed_arms)
        self.pipeline = Pipeline(dependencies, self.sync, constraints, candidates)
        self.dry_runs = DryRuns(store.arms, self.pipeline, self.sync, self.priors, self.effects)
        self.choosing = Choosing(
            store,
            self.pipeline,
            self.signer,
            self.decisions,
            priors=self.priors,
            sync=self.sync,
            token_ttl_ms=token_ttl_ms,
            effects=self.effects,
            rows=self.rows,
            metrics=metrics,
        )
        entries = RewardEntries(
            self.catalogues, self.bandits, self.signer, observation_ttl_ms=settings.observation_ttl_s * 1_000
        )
        workers = self.worker or remote
        self.rewards = Rewards(
            store,
            self.bandits,
            entries,
            workers,
            self.quotas,
            events=events,
            frequency_caps=self.frequency_caps,
            learners=self.learners,
            priors=self.priors,
            effects=self.effects,
            metrics=metrics,
        )
        self.learner_copies = LearnerCopies(store, workers, self.moves)
        steps = PlanSteps(
            store=store,
            catalogues=self.catalogues,
            bandits=self.bandits,
            learners=self.learners,
            log=self.decision_log,
            quotas=self.quotas,
            moves=self.moves,
            priors=self.priors,
            fits=self.prior_fits,
            policies=POLICIES,
        )
        self.moving = Moving(steps, workers)
        self._owns = leases.owns
        self.erasure = Erasure(
            store,
            workers,
            token_ttl_ms=token_ttl_ms,
            event_decision=kept_decision,
            forgotten=self._forgotten,
        )
        self.reports = Reports(self.bandits, self.decision_log, metrics)
        self.exports, self.learned_log = Exports(self.decision_log), LearnedLog(store)
        self.explanations = Explanations(
            bandits=self.bandits,
            catalogues=self.catalogues,
            log=self.decision_log,
            pipeline=self.pipeline,
            priors=self.priors,
            effects=self.effects,
        )
        self.warm_start = WarmStart(self.rewards, ttl_ms=settings.observation_ttl_s * 1_000)
        self.mips = Mips(cache_bytes=search_bytes, independent=self.independent, filtered=self.filtered)
        self.health = Health(
            store=store,
            catalogues=self.catalogues,
            bandits=self.bandits,
            learners=self.learners,
            quotas=self.quotas,
            priors=self.priors,
            sync=self.sync,
            metrics=metrics,
            max_backlog=settings.max_backlog,
            worker=settings.worker,
            losses=Losses(settings.data_dir),
            data_dir=settings.data_dir,
            missing_plugins=missing_of,
        )
        for service in (
            self.elimination,
            self.independent,
            self.filtered,
            self.exports,
            self.mips,
        ):
            self._ending.enter_context(contextlib.closing(service))
        self.arm_list: ArmList = NoArmList()
        self._of_plugins = list[BackgroundWork]()
        for name_of_routes, routes_of_plugin in routes.items():
            self._add_services(name_of_routes, routes_of_plugin)
        if self.worker is not None:
            self._ending.push_async_callback(self.worker.stop)
        self._ending.push_async_callback(self.jobs.stop)
        self._ending.push_async_callback(self.rows.stop)
        self.background: list[asyncio.Task[None]] = []
        # Pushed last, so it is ended first: background work uses all the others.
        self._ending.push_async_callback(end, self.background)

    async def start(self) -> None:
        """Load everything from the store; afterwards all endpoints answer, exactly until graphs are there.

        Raises StartupError when the store lacks something that it must have.
        """
        # First: nothing is served, and nothing written, from a store that has lost something.
        await self._expected.check()
        self._run(self._expected.run())
        await self.secrets.refresh()
        self._run(self.secrets.run())
        for engine in self.engines.values():
            await engine.open()
        # Before the bandits, which are served only with their catalogues.
        await self.catalogues.load()
        check_engines(self.catalogues)
        await self.bandits.load()
        # What was written while all that was loaded.
        await self.sync.poll()
        if self.worker is not None:
            await self.worker.start()
            housekeeping = Housekeeping(
                self.store,
                self.erasure,
                self.metrics,
                wake=self.worker.wake,
                every_s=self._pauses.housekeeping_s,
            )
            retention = LogRetention(self.store, self.metrics, most_bytes=self.settings.max_log_mb << 20)
            carrying = Carrying(
                self.store, self.metrics, owns=self._owns, wake=self.worker.wake, moves=self.moves
            )
            self._run(housekeeping.run(), retention.run(), carrying.run())
            self._run(self._prior_fitting.run(), self._effect_fitting.run())
        self._run(
            self.sync.run(),
            self.rows.run(),
            health.watch_memory(self.store, self._pauses.memory_s),
            self.shown_metrics.run(self.health.measure_process),
            arm_following.run(self.catalogues, self.store, self.engines),
            index_maintenance.run(self.catalogues, self.metrics, self._pauses),
            *(work.run() for work in self._of_plugins),
        )
        self.health.ready = True

    async def stop(self) -> None:
        """Finish what is under way and leave; what was acknowledged is in the store."""
        self.health.ready = False
        await self._ending.aclose()

    def _add_services(self, name: str, routes: Routes) -> None:
        """Make what the calls of a plug-in ask for. Raises StartupError: a name is taken."""
        dependencies = RouteDependencies(
            settings=self.settings,
            store=self.store,
            event_logs=self.store.event_logs,
            bandits=self.bandits,
            catalogues=self.catalogues,
            filtered=self.filtered,
            copies=self.mips.copies,
            learners=self.learners,
            rewards=self.rewards,
            warm_start=self.warm_start,
            decision_log=self.decision_log,
            priors=self.priors,
            effects=self.effects,
            covers=self.covers,
            constraints=self.pipeline.constraints,
            jobs=self.jobs,
            moving=self.moving,
            metrics=self.metrics,
        )
        with start_errors(f"the routes {name} of a plug-in cannot make their services"):
            services = routes.services(dependencies)
        for parameter, service in services.items():
            if hasattr(self, parameter):
                raise StartupError(
                    f"the routes {name} of a plug-in have a service {parameter}, which is taken"
                )
            setattr(self, parameter, service)
            if isinstance(service, ArmList):
                if not isinstance(self.arm_list, NoArmList):
                    raise StartupError(f"the routes {name} of a plug-in are the second with lists of arms")
                self.arm_list = service
            if isinstance(service, BackgroundWork):
                self._of_plugins.append(service)
            if hasattr(service, "close"):
                self._ending.enter_context(contextlib.closing(service))

    def _run(self, *work: Coroutine[Any, Any, None]) -> None:
        """Run this until ``stop``."""
        self.background += map(asyncio.create_task, work)

    async def _has_taught(self, catalogue: str) -> bool:
        """Return whether a bandit has learned from the arms of a catalogue."""
        uids = self.bandits.of_catalogue(catalogue)
        return any(counts.entries for counts in await self.store.priors.folded(uids))

    def _make_worker(self, leases: Leases | OnlyWorker) -> SharedWorker:
        worker = RewardWorker(
            self.store,
            poll_s=POLL_S,
            reward_log_s=self.settings.reward_log_s,
            capacity_bytes=self.settings.worker_cache_bytes,
            owns=leases.owns,
            moves=self.moves,
            wait_s=self._pauses.applied_s,
            folded=self._folded,
            resync=self._remote.sync,
        )
        return SharedWorker(worker, leases, self._remote)

    def _folded(self, step: Step) -> None:
        self.learners.applied(step.partition, step.before, step.after, step.states)
        uids = {learner.bandit_uid for learner in step.states}
        self._prior_fitting.changed(uids)
        self._effect_fitting.changed(uids)
        self._forgotten([learner for learner, state in step.states.items() if state is None])
        self.metrics.applied.inc(step.entries)

    def _learners_changed(self, partition: int, changes: LearnerChanges) -> None:
        learners = changes.learners
        self._forgotten(None if learners is None else changes.removed)
        uids = None if learners is None else {learner.bandit_uid for learner in learners}
        self._prior_fitting.changed(uids)
        self._effect_fitting.changed(uids)
        if self.worker is not None:
            self.worker.changed(partition, changes)

    def _forgotten(self, learners: Sequence[LearnerId] | None) -> None:
        constraints = [row.constraint for row in self.pipeline.constraints]
        states: Sequence[EliminationCache | PolicyStates] = [self.elimination, self.policy_states]
        memories: Sequence[EliminationCache | PolicyStates | Constraint] = [*states, *constraints]
        for memory in memories:
            if learners is None:
                memory.forget_all()
            for learner in learners or ():
                memory.forget(learner)


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
            obstacle = error.filename
            raise StartupError(
                f"the folder {obstacle} cannot be made: remove the file or link of this name"
            ) from None
        except OSError as error:
            raise StartupError(f"{error.filename or path} cannot be made: {error.strerror}") from None
        return path
    raise AssertionError
