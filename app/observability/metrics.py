"""Every metric of the service, in one table: name, labels and help are what /metrics shows.

``table`` is what docs/metrics.md prints, and what the dashboard is tested against. Units are in the names:
``_seconds``, ``_bytes``, otherwise a count of what the name says. Labels are from closed sets (routes, status
classes, policies), never from input.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "shortlist_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "shortlist_request_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.rewards = Counter(
            "shortlist_rewards", "Rewards and observations received.", ["outcome"], registry=registry
        )
        self.applied = Counter(
            "shortlist_rewards_applied", "Entries of the reward log folded.", registry=registry
        )
        self.backlog = Gauge(
            "shortlist_reward_backlog",
            "Entries of the reward log not yet folded; as the next two, NaN while the store is away.",
            registry=registry,
        )
        self.lag = Gauge(
            "shortlist_reward_lag_seconds", "Age of the oldest entry not yet folded.", registry=registry
        )
        self.dead = Gauge("shortlist_dead_letters", "Entries that could not be folded.", registry=registry)
        self.held = Gauge(
            "shortlist_held_bytes",
            "Memory of the store for what requests left there; NaN while it is away.",
            ["kind"],
            registry=registry,
        )
        self.held_most = Gauge(
            "shortlist_held_most_bytes", "The bound of each kind.", ["kind"], registry=registry
        )
        self.housekeeping = Counter(
            "shortlist_housekeeping",
            "Decisions waited for to the end, idle learners forgotten, deletions finished, rows dropped.",
            ["kind"],
            registry=registry,
        )
        self.log_rows = Counter(
            "shortlist_log_rows",
            "Rows of the decision log written after their choices, and dropped since the store was slow.",
            ["outcome"],
            registry=registry,
        )
        self.evaluated = Counter(
            "shortlist_evaluated_decisions",
            "Logged decisions on which a policy was evaluated.",
            registry=registry,
        )
        self.group_decisions = Counter(
            "shortlist_group_decisions",
            "Decisions that are to be logged, of bandits with a holdout.",
            ["group"],
            registry=registry,
        )
        self.group_rewards = Counter(
            "shortlist_group_rewards", "Rewards accepted for such decisions.", ["group"], registry=registry
        )
        self.learners = Gauge("shortlist_cached_learners", "Learners in memory.", registry=registry)
        self.learner_bytes = Gauge("shortlist_cached_learner_bytes", "Memory they take.", registry=registry)
        self.arms = Gauge("shortlist_arms", "Arms of all catalogues.", registry=registry)
        self.index_builds = Counter(
            "shortlist_index_maintenance", "Builds and folds of indexes.", ["outcome"], registry=registry
        )
        self.index_exact = Gauge(
            "shortlist_catalogues_exact", "Catalogues that are searched exactly now.", registry=registry
        )

    def table(self) -> Iterator[tuple[str, str, str, str, str]]:
        """(name, kind, unit, labels, help) of every metric of ours, as Prometheus shows it."""
        for metric in vars(self).values():
            if isinstance(metric, MetricWrapperBase):
                (family,) = metric.describe()
                name = family.name + ("_total" if family.type == "counter" else "")
                unit = next((unit for unit in ("seconds", "bytes") if unit in name.split("_")), "1")
                yield name, family.type, unit, ", ".join(metric._labelnames), family.documentation
