"""Every metric of the service, in one table: name, labels and help are what /metrics shows.

``table`` is what docs/metrics.md prints, and what the dashboard is tested against. Units are in the names:
``_seconds``, ``_bytes``, otherwise a count of what the name says. Labels are from closed sets (routes, status
classes, policies), never from input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

GROUPS = ("policy", "holdout")
HOUSEKEEPING = ("waited_for", "erased", "expired", "deletions_finished", "rows_dropped", "carried")

Kind = TypeVar("Kind", Counter, Gauge)


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.requests = counter("shortlist_requests", "Requests answered.", ["method", "route", "status"])
        self.request_seconds = Histogram(
            "shortlist_request_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.rate_refused = counter(
            "shortlist_rate_refused",
            "Requests beyond the rate of their API key, or of a visitor with a pass of it (429).",
            ["key", "by"],
        )
        self.rewards = counter("shortlist_rewards", "Rewards and observations received.", ["outcome"])
        self.applied = counter("shortlist_rewards_applied", "Entries of the reward log folded.")
        self.backlog = gauge(
            "shortlist_reward_backlog",
            "Entries of the reward log not yet folded; as the next two, NaN while the store is away.",
        )
        self.lag = gauge("shortlist_reward_lag_seconds", "Age of the oldest entry not yet folded.")
        self.dead = gauge("shortlist_dead_letters", "Entries that could not be folded.")
        self.store_bytes = gauge(
            "shortlist_store_bytes",
            "Memory of the server of the store that is fullest, without buffers; NaN while it is away.",
        )
        self.store_most_bytes = gauge(
            "shortlist_store_most_bytes", "What it may take (SHORTLIST_MAX_STORE_MB), 0 if that is not known."
        )
        self.log_bytes = gauge(
            "shortlist_log_bytes", "What rows of decision logs take, about: their number by their mean size."
        )
        self.housekeeping = counter(
            "shortlist_housekeeping",
            "Decisions waited for to the end, idle learners forgotten, deletions finished, rows dropped, "
            "learners carried to another catalogue.",
            ["kind"],
        )
        self.log_rows = counter(
            "shortlist_log_rows",
            "Rows of the decision log written after their choices, or dropped: the store was slow or full.",
            ["outcome"],
        )
        self.evaluation_jobs = counter(
            "shortlist_evaluation_jobs",
            "Evaluations that went on by themselves, and how they ended.",
            ["outcome"],
        )
        self.group_decisions = counter(
            "shortlist_group_decisions",
            "Decisions that are to be logged, of bandits with a holdout.",
            ["group"],
        )
        self.group_rewards = counter(
            "shortlist_group_rewards", "Rewards accepted for such decisions.", ["group"]
        )
        self.guardrails = gauge(
            "shortlist_guardrails",
            "Guardrails of bandits, by what the last report of this process on each bandit says.",
            ["state"],
        )
        self.guardrail_states: dict[str, Sequence[str]] = {}  # as the last report on each bandit says, by uid
        self.unlimited = counter(
            "shortlist_unlimited_repeats",
            "Choices and rewards that `repeats` did not remember, or in place of older ones: no room.",
            ["counts"],
        )
        self.quotas = gauge(
            "shortlist_quotas", "Quotas of all bandits, as this process sees them now.", ["state"]
        )
        self.prior_fits = counter("shortlist_prior_fits", "Learned priors fitted.", ["outcome"])
        self.prior_seconds = Histogram(
            "shortlist_prior_fit_seconds",
            "Time of a core that a fit of a learned prior took.",
            buckets=SECONDS,
            registry=registry,
        )
        self.prior_keys = gauge("shortlist_prior_keys", "Keys with rewards in the last fit of this process.")
        self.prior_age = gauge(
            "shortlist_prior_age_seconds", "Age of the oldest learned prior that this process serves."
        )
        self.effect_fits = counter(
            "shortlist_effect_fits", "Versions of arm effects that were fitted.", ["outcome"]
        )
        self.without_effects = counter(
            "shortlist_decisions_without_effects",
            "Decisions whose arms learn nothing, since sums of arms take as much of the store as they may.",
        )
        self.learners = gauge("shortlist_cached_learners", "Learners in memory.")
        self.learner_bytes = gauge("shortlist_cached_learner_bytes", "Memory they take.")
        self.arms = gauge("shortlist_arms", "Arms of all catalogues.")
        self.index_builds = counter(
            "shortlist_index_maintenance", "Builds and folds of indexes.", ["outcome"]
        )
        self.index_exact = gauge("shortlist_catalogues_exact", "Catalogues that are searched exactly now.")
        self.below_target = gauge(
            "shortlist_catalogues_below_target",
            "Catalogues whose index was measured to find less than their target_recall.",
        )
        self.store_up = gauge("shortlist_store_up", "1: the store answers this process; 0: it does not.")
        self.store_replica = gauge(
            "shortlist_store_replica",
            "1: the store is a replica, which takes no writes; NaN while it is away.",
        )
        self.found = gauge(
            "shortlist_findings",
            "What `GET /v1/status` finds to be wrong, by name; NaN while the store is away.",
            ["name"],
        )
        self.disk_free = gauge("shortlist_disk_free_bytes", "Free space of the disk of the data folder.")
        self.disk = gauge("shortlist_disk_bytes", "Size of that disk.")
        self._of_plugins = dict[str, MetricWrapperBase]()
        self._begin_series()

    def of_plugin(self, kind: type[Kind], name: str, text: str) -> Kind:
        """A metric of a plug-in, the same one at each call. ``text``: its meaning."""
        metric = self._of_plugins.get(name)
        if not isinstance(metric, kind):
            metric = self._of_plugins[name] = kind(name, text, registry=self.registry)
        return metric

    def _begin_series(self) -> None:
        """Have the counters of known labels begin at 0: what the first event adds is an increase then."""
        for counter, values in (
            (self.rewards, ("accepted", "duplicate")),
            (self.housekeeping, HOUSEKEEPING),
            (self.log_rows, ("written", "dropped")),
            (self.evaluation_jobs, ("done", "failed", "cancelled")),
            (self.group_decisions, GROUPS),
            (self.group_rewards, GROUPS),
            (self.unlimited, ("shown", "rewarded")),
            (self.prior_fits, ("made", "nothing", "late")),
            (self.effect_fits, ("made", "late")),
            (self.index_builds, ("done", "failed")),
        ):
            for value in values:
                counter.labels(value)

    @property
    def of_store(self) -> frozenset[str]:
        """The names of metrics measured at a call of /metrics, by a read of the store."""
        gauges = [self.backlog, self.lag, self.dead, self.store_bytes, self.store_most_bytes]
        gauges += [self.store_up, self.store_replica, self.found]
        return frozenset(family.name for gauge in gauges for family in gauge.describe())

    def prior_was_fitted(self, outcome: str, *, seconds: float, keys: int) -> None:
        """``outcome``: made, nothing (the keys say nothing) or late (another process was faster)."""
        self.prior_fits.labels(outcome).inc()
        self.prior_seconds.observe(seconds)
        self.prior_keys.set(keys)

    def count_guardrails(self, bandits: Collection[str]) -> None:
        """Count the states of guardrails of these bandits, by uid; states of others are forgotten."""
        for gone in self.guardrail_states.keys() - bandits:
            del self.guardrail_states[gone]
        every = [state for states in self.guardrail_states.values() for state in states]
        for state in ("kept", "broken", "unknown"):
            self.guardrails.labels(state).set(every.count(state))

    def table(self) -> Iterator[tuple[str, str, str, str, str]]:
        """(name, kind, unit, labels, help) of every metric, as Prometheus shows it; the last of plug-ins."""
        for metric in [*vars(self).values(), *self._of_plugins.values()]:
            if isinstance(metric, MetricWrapperBase):
                (family,) = metric.describe()
                name = family.name + ("_total" if family.type == "counter" else "")
                unit = next((unit for unit in ("seconds", "bytes") if unit in name.split("_")), "1")
                yield name, family.type, unit, ", ".join(metric._labelnames), family.documentation
