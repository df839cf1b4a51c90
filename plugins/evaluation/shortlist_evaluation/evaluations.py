"""Evaluations of policies on the decision log: what another setting of a bandit would have earned.

The policy is evaluated among the arms that there are now; with what the learners knew before each decision,
or with what they know now.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Literal, Self

import numpy as np

from shortlist.evaluation.estimates import NOTHING
from shortlist.evaluation.off_policy import OffPolicyState
from shortlist.linear.ridge import Posterior
from shortlist_evaluation.drawn_propensities import check_past
from shortlist_evaluation.evaluated import Evaluated, check_estimators, evaluated_policy, of_signal
from shortlist_evaluation.evaluation_warnings import (
    CATALOGUE_CHANGED,
    UNREADABLE,
    warnings_of,
    without_propensities,
)
from shortlist_evaluation.evaluator import TOO_MUCH_MISSING, Evaluator, EvaluatorLimits, LearnerLookup
from shortlist_evaluation.past_learners import PastLearners, StartMode, learner_of
from shortlist_evaluation.seen_rewards import SeenRewards
from shortlist_evaluation.sources import ServedSource
from shortlist_service.constraints import LearnerId
from shortlist_service.decision_log import LATEST_MS
from shortlist_service.errors import Invalid
from shortlist_service.jobs import Progress
from shortlist_service.learners import LearnerState
from shortlist_service.policies import Bandit
from shortlist_service.routes import RouteDependencies
from shortlist_service.work import MEASURING, Slots

log = logging.getLogger("shortlist.evaluations")

AT_ONCE, WAITING = 2, 8
JOBS_WAITING = 8  # one runs at a time, beside those that clients wait for

Interval = tuple[float, float]
When = Literal["before", "now"]
Propensities = Literal["logged", "draws"]


@dataclass(frozen=True, slots=True)
class PlaceEstimate:
    """``value`` and ``interval``: null where there is too little to tell."""

    value: float | None
    interval: Interval | None
    effective_sample_size: float


@dataclass(frozen=True, slots=True)
class PolicyEstimate:
    """``value`` is of a whole decision, ``places`` of each place of its list, of a signal only where they
    were asked for. ``interval``: 95 %.

    ``effective_sample_size``: that of the place which has least.
    """

    estimator: str
    value: float | None
    interval: Interval | None
    effective_sample_size: float
    places: list[PlaceEstimate]


@dataclass(frozen=True, slots=True)
class LoggedValue:
    """What these decisions have earned. ``left_out``: others, which could not be used."""

    value: float | None
    interval: Interval | None
    decisions: int
    left_out: int


@dataclass(frozen=True, slots=True)
class LogSupport:
    """How well the log shows what the policy would do, at the place where it is worst: shares of decisions,
    and the weight of one. ``unshown_arms``: that the policy would choose and no decision shows, though chance
    does not explain it; ``unshown_share``: of what it would choose.
    """

    unused_share: float
    missing_share: float
    largest_weight: float
    unshown_arms: int
    unshown_share: float


@dataclass(frozen=True, slots=True)
class LearnersUsed:
    """With what decisions were weighed; of ``before`` in how many ``blocks``, and how the first ``begin``s.

    ``known``: from what was known before the first decision. ``log``: from nothing; the first block is left
    out.
    """

    when: When
    begin: StartMode | None
    blocks: int


@dataclass(frozen=True, slots=True)
class PropensitiesUsed:
    """Where the propensities of decisions are from. ``estimated``: how many were estimated, each from so many
    ``draws`` at least.
    """

    source: Propensities
    estimated: int
    draws: int


@dataclass(frozen=True, slots=True)
class SignalEstimates:
    """Of one signal by itself, as of the sum. There are no predictions, so ``dr`` is ``ips``."""

    estimates: list[PolicyEstimate]
    logged: LoggedValue


@dataclass(frozen=True, slots=True)
class WeightsEvaluation:
    """What the policy would have earned by these weights."""

    weights: dict[str, float]
    estimates: list[PolicyEstimate]
    logged: LoggedValue
    signals: dict[str, SignalEstimates]
    warnings: list[str]

    @classmethod
    def of(cls, evaluation: Evaluation) -> Self:
        return cls(
            evaluation.weights or {},
            evaluation.estimates,
            evaluation.logged,
            evaluation.signals or {},
            evaluation.warnings,
        )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a policy would have earned.

    ``warnings``: what one must know before one believes it, as sentences. Where they say that too much of
    what the policy does was never done, ``value`` and ``interval`` are null.
    ``complete_from``: as of a report. Of a bandit with signals the values are of the sum by ``weights``, and
    in ``signals`` of each. Where several weights were asked for, it is of the first, and ``results`` of each.
    """

    estimates: list[PolicyEstimate]
    logged: LoggedValue
    support: LogSupport
    learners: LearnersUsed
    propensities: PropensitiesUsed
    warnings: list[str]
    complete_from: int | None
    weights: dict[str, float] | None = None
    signals: dict[str, SignalEstimates] | None = None
    results: list[WeightsEvaluation] | None = None


def answer_of(evaluations: Sequence[Evaluation], *, several: bool = False) -> object:
    """What is answered of one, or of ``several`` by different weights.

    Of a bandit without signals without what only those have.
    """
    first = evaluations[0]
    if several:
        return replace(first, results=list(map(WeightsEvaluation.of, evaluations)))
    if first.signals is not None:
        return first
    every = {field.name: getattr(first, field.name) for field in fields(first)}
    return {name: value for name, value in every.items() if name not in {"weights", "signals", "results"}}


def evaluations_of(
    evaluator: Evaluator, when: When, complete_from: int | None = None, *, signal_places: bool = False
) -> list[Evaluation]:
    """What there is to say so far of each of its policies. ``signal_places``: also of places of each signal.

    Cost: O(places^2) for each of its policies and each of its signals.
    """
    return [
        _evaluation_of(evaluator, policy, when, complete_from, signal_places=signal_places)
        for policy in evaluator.policies
    ]


def _evaluation_of(
    evaluator: Evaluator, policy: Evaluated, when: When, complete_from: int | None, *, signal_places: bool
) -> Evaluation:
    state, past, support = policy.state, evaluator.past, policy.state.support
    unshown_arms, unshown_share = policy.unshown.found()
    drawn = evaluator.drawn
    signals = dict[str, SignalEstimates]()
    for name, signal in policy.signals.items():
        by_name = {
            estimator: _estimated(signal, of_signal(estimator), unshown_share)
            for estimator in evaluator.estimators
        }
        estimates = [
            replace(estimated, estimator=name_of_estimator, places=estimated.places if signal_places else [])
            for name_of_estimator, estimated in by_name.items()
        ]
        signals[name] = SignalEstimates(estimates, _logged(signal, evaluator))
    return Evaluation(
        estimates=[_estimated(state, name, unshown_share) for name in evaluator.estimators],
        logged=_logged(state, evaluator),
        support=LogSupport(
            unused_share=float(np.max(support.unused_share)),
            missing_share=max(float(np.max(support.missing_share)), unshown_share),
            largest_weight=float(np.max(state.ranges.largest)),
            unshown_arms=unshown_arms,
            unshown_share=unshown_share,
        ),
        learners=LearnersUsed(when, past.beginning if past else None, len(past.blocks) if past else 0),
        propensities=PropensitiesUsed("draws", drawn.estimated, drawn.draws)
        if drawn
        else PropensitiesUsed("logged", 0, 0),
        warnings=warnings_of(evaluator, policy),
        complete_from=complete_from,
        weights=policy.bandit.weights,
        signals=signals or None,
    )


def _logged(state: OffPolicyState, evaluator: Evaluator) -> LoggedValue:
    whole = state.logged().whole
    return LoggedValue(whole.value, whole.interval, state.support.decisions, evaluator.left_out)


def _estimated(state: OffPolicyState, name: str, unshown: float) -> PolicyEstimate:
    """What an estimator says, but nothing of a place that the log hardly shows."""
    estimates, sizes = state.estimates(name, unshown=unshown), state.support.effective_sample_size.tolist()
    lacking = state.lacking(TOO_MUCH_MISSING) | (unshown > TOO_MUCH_MISSING)
    shown = (~lacking).tolist()
    whole = estimates.whole if all(shown) else NOTHING
    places = [
        PlaceEstimate(estimate.value, estimate.interval, size)
        if is_shown
        else PlaceEstimate(None, None, size)
        for estimate, size, is_shown in zip(estimates.places, sizes, shown, strict=True)
    ]
    return PolicyEstimate(name, whole.value, whole.interval, min(sizes), places)


class Evaluations:
    """Evaluations of all bandits, a few at a time. ``evaluated`` is told how many decisions were done."""

    def __init__(self, service: RouteDependencies, limits: EvaluatorLimits | None = None) -> None:
        self.limits = limits or EvaluatorLimits()
        self.constraints = service.constraints
        self._source = ServedSource(
            service.covers,
            service.filtered,
            bandits=service.bandits,
            catalogues=service.catalogues,
            learned_priors=service.priors,
            served_effects=service.effects,
        )
        self._priors = service.priors
        self._effects = service.effects
        self._learners = service.learners
        self.pages = service.decision_log
        self._rewarded_ms = service.settings.token_ttl_s * 1_000
        self._metrics = service.metrics
        self._slots = Slots("evaluations", running=AT_ONCE, waiting=WAITING)
        self._job_slots = Slots("evaluations", running=1, waiting=JOBS_WAITING)

    @staticmethod
    def check(bandit: Bandit, estimators: Sequence[str]) -> None:
        """Raise Invalid for what cannot be evaluated on any log (policy, estimators)."""
        check_estimators(estimators)
        bandit.catalogue.need_arms("an evaluation")
        evaluated_policy(bandit)

    @staticmethod
    def check_draws(bandit: Bandit, when: When) -> None:
        """Raise Invalid where propensities cannot be estimated by draws (propensities, learners)."""
        if when != "before":
            needed = "draws need what learners knew before each decision"
            raise Invalid(f'{needed}: set it to "before", or leave it out', path=("learners",))
        check_past(bandit)

    async def evaluate(
        self,
        weighed: Sequence[Bandit],
        estimators: Sequence[str],
        *,
        from_ms: int | None,
        to_ms: int | None,
        when: When,
        signal_places: bool = False,
        draws: bool = False,
        progress: Progress | None = None,
    ) -> list[Evaluation]:
        """What the policy of a bandit would have earned, by each of several weights of its signals.

        On decisions that were made at ``from_ms`` or later and before ``to_ms``, where the log is complete;
        None: without a bound.

        ``weighed``: the bandit by each of the weights, as ``Bandits.as_if`` makes it. ``when``: whether
        decisions are weighed with what learners knew before them, or with what they know now. ``draws``:
        whether propensities that the log does not have are estimated; ``check_draws`` it first.
        ``progress``: of a job, is told how many decisions were evaluated, of how many; None while that is
        not known. Jobs have slots of their own. It ends early where the log shows nothing of what the policy
        does. Cancelled, it ends at once.

        Cost: one pass over the log, two with ``before``, where propensities are drawn or rewards have no
        bounds, however many weights there are, in threads, with one page in memory. Raises Invalid (policy,
        estimators; no decision can be used), TooLarge (too many learners), Unavailable (too many evaluations
        at once, the store).
        """
        self.check(bandit := weighed[0], estimators)
        async with (self._slots if progress is None else self._job_slots).one():
            complete_from = await self.pages.complete_from(bandit, from_ms)
            if bandit.record.moved_ms > max(complete_from or 0, from_ms or 0):
                complete_from = bandit.record.moved_ms  # earlier ones are of another catalogue
            from_ms = complete_from or from_ms
            if when == "before":
                to_ms = min(time.time_ns() // 1_000_000, to_ms or LATEST_MS)
            elif bandit.record.prior == "learned":
                version = await self._priors.newest(bandit.uid)
                weighed = [as_weighed.with_prior(version) for as_weighed in weighed]
                if bandit.record.arm_effects == "auto":
                    effects = await self._effects.newest(bandit.uid)
                    weighed = [as_weighed.with_effects(effects) for as_weighed in weighed]
                bandit = weighed[0]
            lookup, seen = await self._surveyed(bandit, from_ms, to_ms, when)
            evaluator = Evaluator(
                bandit,
                self._source,
                lookup,
                estimators,
                weighed=weighed,
                seen=seen,
                constraints=self.constraints,
                limits=self.limits,
                draws=draws,
            )
            await self._read(evaluator, from_ms, to_ms, progress or (lambda done, of: None))  # noqa: ARG005
            check_usable(evaluator)
            evaluate_all = partial(
                evaluations_of, evaluator, when, complete_from, signal_places=signal_places
            )
            return await MEASURING.run(evaluate_all)

    async def _surveyed(
        self, bandit: Bandit, from_ms: int | None, to_ms: int | None, when: When
    ) -> tuple[LearnerLookup, SeenRewards | None]:
        """What learners know, and what must be known of the whole log before it is evaluated, if anything."""
        seen = SeenRewards(bandit, self._source.versions)
        pages = self.pages.pages(bandit, from_ms=from_ms, to_ms=to_ms)
        if when == "before":

            async def known_today(learner: LearnerId) -> LearnerState | None:
                return await self._learners.carried(bandit, await self._learners.state(learner))

            past = PastLearners(bandit, self._source, known_today)
            if past.takes_back:
                first_ms = None if from_ms is None else from_ms - self._rewarded_ms
                pages = self.pages.pages(bandit, from_ms=first_ms, to_ms=None)
            noted = seen.noted(pages, from_ms=from_ms, to_ms=to_ms)
            await past.survey(noted, from_ms=from_ms, to_ms=to_ms)
            return past, seen

        async def known_now(key: str | None, owner: Bandit) -> Posterior:
            return await self._learners.load_uncached(owner, learner_of(owner, key))

        if not evaluated_policy(bandit).target_draws and seen.are_bounded:
            return known_now, None
        async for _ in seen.noted(pages):
            pass
        return known_now, seen

    async def _read(
        self, evaluator: Evaluator, from_ms: int | None, to_ms: int | None, progress: Progress
    ) -> None:
        """Evaluate the log, as long as it tells anything."""
        started = time.monotonic()
        progress(0, evaluator.expected)
        async for page in self.pages.pages(evaluator.bandit, from_ms=from_ms, to_ms=to_ms):
            await evaluator.add(page)
            self._metrics.evaluated.inc(len(page))
            progress(evaluator.decisions, evaluator.expected)
            if evaluator.is_unsupported:
                break
        count, elapsed_s = f"{evaluator.decisions:,}", time.monotonic() - started
        log.info("evaluated %s decisions of %s in %.1f s", count, evaluator.bandit.name, elapsed_s)


def check_usable(evaluator: Evaluator) -> None:
    """Raise Invalid if there are decisions, but none that can be used."""
    weighed = evaluator.decisions - evaluator.unweighed
    if not weighed or evaluator.counts.unknown + evaluator.counts.unreadable < weighed:
        return
    why = UNREADABLE
    if evaluator.counts.unknown:
        why = without_propensities(evaluator.bandit.record, was_drawn=evaluator.drawn is not None)
    if evaluator.drawn is not None and evaluator.drawn.changed == weighed:
        why = f"they were made before {CATALOGUE_CHANGED}"
    message = f"none of the {evaluator.decisions:,} decisions in this time can be used: {why}"
    raise Invalid(message, path=("bandit",))
