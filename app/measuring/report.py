"""Reports on the earnings of the policy and the holdout, and whether the difference can be chance.

Notation
    value       of a decision: the sum of the rewards of its arms (``outcomes``)
    stage       decisions made with one share of the holdout (``stages``)
    unit        drawn for a group: the keys of a per_key bandit, the decisions of a global one
    ungrouped   decisions without a group: of a bandit without a holdout, of the time before, and baselines of
                callers
    look        of keys, when intervals are made anew: means and the lift are of the same decisions as the
                intervals

Only groups drawn at the same time are compared. So decisions from while the holdout was all or nothing are
counted apart where there are others. So are ungrouped ones, which are the policy's where there are no others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from types import MappingProxyType

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.bandits.settings import MAX_EXAMINATION, GuardrailRule
from app.decision_log.reading import DecisionLog
from app.decision_log.rows import NO_LOG, Agreement, Row
from app.measuring.outcomes import Terms, counted_rewards, terms_of, value_of
from app.measuring.report_answer import (
    AgreementReport,
    Bucket,
    GroupName,
    GroupReport,
    Guardrail,
    GuardrailState,
    Lift,
    PlaceReport,
    Report,
    ReportedMove,
    ReportedStage,
    SignalReport,
    Unit,
)
from app.measuring.stages import Counts, Stages
from app.platform.errors import Invalid, shown_time
from app.platform.long_work import Slots
from app.platform.metrics import Metrics
from app.platform.pools import MEASURING
from shortlist.evaluation import asymptotic_confidence_sequence as asymptotic
from shortlist.evaluation import clustered_t_sequence as clustered
from shortlist.evaluation import examination
from shortlist.evaluation.asymptotic_confidence_sequence import Missing
from shortlist.evaluation.examination import RandomLists
from shortlist.evaluation.two_groups import GroupNumber
from shortlist.types import Vector

MAX_BUCKETS = 1_000
MOST_PLACES = MAX_EXAMINATION
AT_ONCE, WAITING = 2, 16

LEVEL = 0.95
GROUPS: tuple[GroupName, ...] = ("policy", "holdout")
POLICY_WORSE_THAN_HOLDOUT = (
    "the policy earns less than the holdout: docs/it-does-not-learn.md says what to look at"
)
REASONS: Mapping[Unit, Mapping[Missing, str]] = {
    "key": {
        "few": f"no interval below {clustered.MIN_KEYS} keys",
        "alike": "no interval while all keys have earned the same",
        "uneven": "no interval while a few keys have most of the decisions, or of the rewards",
    },
    "decision": {
        "few": f"no interval below {asymptotic.MIN_REWARDS} decisions",
        "alike": "no interval while all decisions have earned the same",
        "uneven": "no interval while few decisions are rewarded, or a few much more than others",
    },
}


@dataclass(slots=True)
class Places:
    """The earnings of lists of several arms by place. ``settle`` takes up added rows.

    ``counts``, ``totals``   of all lists. Shapes: (K,)
    ``random``    of lists drawn at random, without a pinned arm
    """

    counts: Vector = field(default_factory=lambda: np.zeros(MOST_PLACES))
    totals: Vector = field(default_factory=lambda: np.zeros(MOST_PLACES))
    random: RandomLists = field(default_factory=examination.start)
    _drawn: list[list[float]] = field(default_factory=list)

    def add(self, row: Row, terms: Terms) -> None:
        counted, _ = counted_rewards(row, terms)
        values = [counted.get(arm.id, terms.default) for arm in row.arms[:MOST_PLACES]]
        self.counts[: len(values)] += 1
        self.totals[: len(values)] += values
        if is_random(row):
            self._drawn.append(values)

    def settle(self) -> None:
        if self._drawn:
            longest = max(map(len, self._drawn))
            padded = [values + [math.nan] * (longest - len(values)) for values in self._drawn]
            self.random = examination.add(self.random, np.array(padded))
            self._drawn.clear()

    def report(self, group: GroupName, *, level: float) -> list[PlaceReport]:
        estimates = examination.estimates(self.random, level=level)
        return [
            PlaceReport(
                group,
                position + 1,
                int(self.counts[position]),
                float(self.totals[position] / self.counts[position]),
                *((estimate.value, estimate.interval) if estimate else ()),
            )
            for position, estimate in zip_longest(range(np.count_nonzero(self.counts)), estimates)
        ]


def is_random(row: Row) -> bool:
    """True if the holdout's list was drawn by chance: where it always has the same arms each is certain."""
    first = row.arms[0].propensity if row.group == "holdout" else None
    return first is not None and first < 1.0 and not any(arm.pinned for arm in row.arms)


@dataclass(slots=True)
class Agreements:
    """Sums over decisions of which a row says how far the policy agrees."""

    decisions: int = 0
    same_first: int = 0
    overlap: float = 0.0

    def add(self, agreement: Agreement) -> None:
        self.decisions += 1
        self.same_first += agreement.same_first
        self.overlap += agreement.overlap

    def report(self) -> AgreementReport | None:
        count = self.decisions
        return AgreementReport(count, self.same_first / count, self.overlap / count) if count else None


class ReportFold:
    """Takes up rows in the order of time, and reports on those so far.

    Its memory grows with the buckets, and with the keys where they are the unit. ``level``: of each interval.

    ``bucket_ms``: length of a bucket; None: no buckets are made. They begin at its multiples.
    ``share``: of the holdout, now; None: there is none.
    """

    def __init__(
        self,
        bucket_ms: int | None = None,
        unit: Unit = "decision",
        *,
        level: float = LEVEL,
        share: float | None = None,
    ) -> None:
        self._share = share
        self._bucket_ms = bucket_ms
        self._unit = unit
        self._level = level
        self._drawn, self._undrawn, self._ungrouped = (Stages(unit, level=level) for _ in range(3))
        self._buckets: dict[str | None, dict[int, Counts]] = {name: {} for name in (*GROUPS, None)}
        self._places: dict[str | None, Places] = {name: Places() for name in (*GROUPS, None)}
        self._agreements = Agreements()
        self._first = self._last = 0

    def add(
        self,
        rows: Iterable[Row],
        terms: Mapping[int, Terms],
        shares: Mapping[int, float | None] = MappingProxyType({}),
    ) -> None:
        """Count decisions. ``terms``: by version of the bandit. Cost: some microseconds a row.

        ``shares``: of the holdout, by version; for others the present one. Raises Invalid (bucket_s): there
        would be too many buckets.
        """
        for row in rows:
            bucket = None if self._bucket_ms is None else self._bucket_of(row, self._bucket_ms)
            value, rewarded = value_of(row, terms[row.bandit_version])
            bounds = terms[row.bandit_version].bounds(len(row.arms))
            if bucket is not None:
                self._buckets[row.group].setdefault(bucket, Counts()).add(value, rewarded=rewarded)
            if len(row.arms) > 1:
                self._places[row.group].add(row, terms[row.bandit_version])
            if row.agreement is not None:
                self._agreements.add(row.agreement)
            share = shares.get(row.bandit_version, self._share)
            if row.group is None:
                stages, share = self._ungrouped, None
            else:
                stages = self._undrawn if share in {0.0, 1.0} else self._drawn
            group: GroupNumber = 1 if row.group == "holdout" else 0
            stages.add(share, group, row.key, value, bounds, rewarded=rewarded)
        for family in (self._drawn, self._undrawn, self._ungrouped):
            family.settle()
        for places in self._places.values():
            places.settle()

    def report(self, complete_from: int | None = None) -> Report:
        """The report so far. Cost: O(1), and the buckets."""
        stages, others = self._compared()
        compared = stages.intervals()
        totals = stages.totals(compared.weights)
        means = [total.mean for total in totals]
        apart = None if means[0] is None or means[1] is None else means[0] - means[1]
        trails = compared.difference is not None and compared.difference[1] < 0
        names = self._names(stages)
        return Report(
            groups=[
                GroupReport(name, total.decisions, total.rewarded, total.mean, interval)
                for name, total, interval in zip(GROUPS, totals, compared.groups, strict=True)
            ],
            lift=Lift(apart, compared.difference),
            unit=self._unit,
            decisions=stages.decisions,
            as_of_decisions=compared.decisions,
            next_look=compared.next_look,
            interval_kind=compared.kind,
            interval_decisions=compared.decisions,
            ungrouped=sum(family.decisions for family in others),
            buckets=self._shown_buckets(names),
            places=[
                place_report
                for name, names_of_group in zip(GROUPS, names, strict=True)
                for place_report in self._places[names_of_group].report(name, level=self._level)
            ],
            warnings=[
                f"{name}: {REASONS[self._unit][why]}{self._when(name, why, needed)}"
                for name, total, why, needed in zip(
                    GROUPS, totals, compared.missing, compared.needed, strict=True
                )
                if why and total.decisions
            ]
            + [POLICY_WORSE_THAN_HOLDOUT] * trails,
            complete_from=complete_from,
            agreement=self._agreements.report(),
            stages=self._reported_stages(stages, compared.weights),
        )

    def _when(self, name: GroupName, why: Missing, needed: int | None) -> str:
        """The number of units from which on a group can have an interval, and the way to an earlier one."""
        words = ""
        if why == "uneven" and needed is not None:
            words = f"; by what was seen that takes {_two_digits(needed)} {self._unit}s at least"
        if needed is not None and self._share is not None and 0.0 < self._share < 1.0:
            share = self._share if name == "holdout" else 1.0 - self._share
            words += f"; of both groups together that is about {_two_digits(needed / share - 1e-9)}"
        if why == "uneven" and self._unit == "decision":
            words += "; rewards with min and max, not added up, have one at once"
        return words

    def _compared(self) -> tuple[Stages, Sequence[Stages]]:
        """The decisions of the report, and the ones counted apart.

        The report has the decisions drawn for a group; without any, those of a holdout of all or nothing;
        without these, those without a group.
        """
        families = [self._drawn, self._undrawn, self._ungrouped]
        shown = next((family for family in families if family.decisions), self._drawn)
        return shown, [family for family in families if family is not shown]

    def _names(self, shown: Stages) -> Sequence[str | None]:
        """Under which groups of rows the policy and the holdout of the report are."""
        return (None, "holdout") if shown is self._ungrouped else GROUPS

    def _reported_stages(self, shown: Stages, weights: Sequence[float]) -> list[ReportedStage]:
        """The stages in the answer: those in which the holdout was all or nothing come before the others."""
        drawn = self._drawn.reported(weights if shown is self._drawn else ())
        return [*self._undrawn.reported(()), *drawn]

    def _bucket_of(self, row: Row, bucket_ms: int) -> int:
        bucket = row.time // bucket_ms
        if not self._last:
            self._first = bucket
        self._last = max(self._last, bucket)
        if self._last - self._first >= MAX_BUCKETS:
            raise too_many_buckets()
        return bucket

    def _shown_buckets(self, names: Sequence[str | None]) -> list[Bucket]:
        """From the first decision to the last, those without any among them."""
        groups = [self._buckets[name] for name in names]
        used = [bucket for group in groups for bucket in group]
        if self._bucket_ms is None or not used:
            return []
        return [
            Bucket(
                bucket * self._bucket_ms,
                [group.get(bucket, Counts()).shown(name) for name, group in zip(GROUPS, groups, strict=True)],
            )
            for bucket in range(min(used), max(used) + 1)
        ]


class Reports:
    """Reports on bandits, a few at a time. Their guardrails are counted in the metrics."""

    def __init__(self, bandits: Bandits, log: DecisionLog, metrics: Metrics) -> None:
        self._metrics = metrics
        self._bandits = bandits
        self._log = log
        self._places = Slots("reports", running=AT_ONCE, waiting=WAITING)

    async def report(
        self, bandit: Bandit, *, from_ms: int | None, to_ms: int | None, bucket_ms: int | None
    ) -> Report:
        """Report on the decisions from ``from_ms`` on and before ``to_ms``, where the log is complete.

        Cost: one pass over the log, in threads, with one page in memory and two numbers for each key. Raises
        Invalid (bucket_s), Unavailable (too many reports at once, the store).
        """
        unit: Unit = "key" if bandit.record.scope == "per_key" else "decision"
        names = list(bandit.record.signals or ())
        # Bonferroni: each of the intervals may fail with an equal part of the 5 %.
        level = 1.0 - (1.0 - LEVEL) / (1 + len(names))
        # Of the sum (None), and of each signal.
        weights: dict[str | None, Mapping[str, float] | None] = {None: bandit.weights}
        weights |= {name: {name: 1.0} for name in names}
        share = share_of(bandit)
        folds = {
            name: ReportFold(None if name else bucket_ms, unit, level=level, share=share) for name in weights
        }
        terms = {name: dict[int, Terms]() for name in weights}
        shares = dict[int, float | None]()
        async with self._places.one():
            complete_from = await self._log.complete_from(bandit, from_ms)
            async for page in self._log.pages(bandit, from_ms=complete_from or from_ms, to_ms=to_ms):
                for number in {row.bandit_version for row in page} - terms[None].keys():
                    bandit_then = await self._bandits.find(bandit.uid, number) or bandit
                    shares[number] = share_of(bandit_then)
                    for name, weight in weights.items():
                        terms[name][number] = terms_of(bandit_then.record, weight)
                for name, fold in folds.items():
                    await MEASURING.run(partial(fold.add, page, terms[name], shares))
            reports = {name: fold.report(complete_from) for name, fold in folds.items()}
        moves = [
            ReportedMove(move.moved_ms, move.left, move.joined)
            for move in await self._bandits.moves(bandit)
            if (complete_from or from_ms or 0) <= move.moved_ms and (to_ms is None or move.moved_ms < to_ms)
        ]
        warnings = [
            *reports[None].warnings,
            *(
                f"on {shown_time(move.time)} the bandit was moved from {move.left} to {move.joined}"
                for move in moves
            ),
        ]
        if bandit.record.log is None and not any(group.decisions for group in reports[None].groups):
            warnings.append(NO_LOG)
        reports[None] = replace(reports[None], moves=moves, warnings=warnings)
        if not names:
            return reports[None]
        report = _with_signals(bandit, reports)
        self._metrics.guardrail_states[bandit.uid] = [guardrail.state for guardrail in report.guardrails]
        return report


def share_of(bandit: Bandit) -> float | None:
    """The share of its holdout; None without one."""
    return None if bandit.record.holdout is None else bandit.record.holdout.share


def _with_signals(bandit: Bandit, reports: Mapping[str | None, Report]) -> Report:
    parts = {
        name: SignalReport(
            name, report.groups, report.lift, report.interval_kind, report.interval_decisions, report.places
        )
        for name, report in reports.items()
        if name is not None
    }
    return replace(
        reports[None],
        weights=bandit.weights,
        signals=list(parts.values()),
        guardrails=[_guardrail(rule, parts[rule.signal]) for rule in bandit.record.guardrails or ()],
    )


def _guardrail(rule: GuardrailRule, part: SignalReport) -> Guardrail:
    """The state of a guardrail, by the interval of the policy; unknown without one."""
    policy = part.groups[0]
    state: GuardrailState = "unknown"
    if policy.interval is not None:
        low, high = policy.interval
        if rule.most is not None:
            state = "kept" if high <= rule.most else "broken" if low > rule.most else "unknown"
        elif rule.least is not None:
            state = "kept" if low >= rule.least else "broken" if high < rule.least else "unknown"
    return Guardrail(rule.signal, rule.most, rule.least, state, policy.mean_reward, policy.interval)


def _two_digits(count: float) -> str:
    """Rounded up from 1,000 on: what was seen does not tell more."""
    step = 10 ** max(0, len(str(math.ceil(count))) - 2) if count > 1_000 else 1
    return f"{math.ceil(count / step) * step:,}"


def too_many_buckets() -> Invalid:
    return Invalid(f"must make at most {MAX_BUCKETS:,} buckets", path=("bucket_s",))
