"""Answers of an evaluation: estimates, what was logged, and what to know before one believes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, Self

import numpy as np

from shortlist.evaluation.estimates import NOTHING
from shortlist.evaluation.off_policy import OffPolicyState
from shortlist_evaluation.evaluated import Evaluated, of_signal
from shortlist_evaluation.evaluation_warnings import warnings_of
from shortlist_evaluation.evaluator import TOO_MUCH_MISSING, Evaluator
from shortlist_evaluation.past_learners import StartMode

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
    """The earnings of these decisions. ``left_out``: others, which could not be used."""

    value: float | None
    interval: Interval | None
    decisions: int
    left_out: int


@dataclass(frozen=True, slots=True)
class LogSupport:
    """The support of the policy in the log, at the place where it is worst: shares of decisions, and the
    weight of one. ``unshown_arms``: arms which the policy would choose and no decision shows, beyond chance;
    ``unshown_share``: their part of the policy's choices.
    """

    unused_share: float
    missing_share: float
    largest_weight: float
    unshown_arms: int
    unshown_share: float


@dataclass(frozen=True, slots=True)
class LearnersUsed:
    """With what decisions were weighed; of ``before`` in how many ``blocks``, and how the first ``begin``s.

    ``known``: from what was known before the first decision, which earlier rows of the log say. ``log``: from
    nothing; the first block is left out.
    """

    when: When
    begin: StartMode | None
    blocks: int


@dataclass(frozen=True, slots=True)
class PropensitiesUsed:
    """The source of propensities. ``estimated``: number of estimated decisions, each from at least so many
    ``draws``.
    """

    source: Propensities
    estimated: int
    draws: int


@dataclass(frozen=True, slots=True)
class SignalEstimates:
    """Estimates of one signal by itself, as of the sum. There are no predictions, so ``dr`` is ``ips``."""

    estimates: list[PolicyEstimate]
    logged: LoggedValue


@dataclass(frozen=True, slots=True)
class WeightsEvaluation:
    """The estimated earnings of the policy by these weights."""

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
    """The estimated earnings of a policy.

    ``warnings``: caveats, as sentences. Where too much of the policy's choices was never shown, ``value`` and
    ``interval`` are null. ``complete_from``: as of a report. Of a bandit with signals the values are of the
    sum by ``weights``, and in ``signals`` of each. Where several weights were asked for, the answer is of the
    first, and ``results`` of each.
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
    """The answer of one evaluation, or of ``several`` by different weights.

    Without signals their fields are left out.
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
    """The evaluations so far of each of its policies. ``signal_places``: also of places of each signal.

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
    value_of_lists = state.logged().whole
    return LoggedValue(
        value_of_lists.value, value_of_lists.interval, state.support.decisions, evaluator.left_out
    )


def _estimated(state: OffPolicyState, name: str, unshown: float) -> PolicyEstimate:
    """The estimate of an estimator, without places which the log hardly shows."""
    estimates, sizes = state.estimates(name, unshown=unshown), state.support.effective_sample_size.tolist()
    lacking = state.lacking(TOO_MUCH_MISSING) | (unshown > TOO_MUCH_MISSING)
    shown = (~lacking).tolist()
    value_of_lists = estimates.whole if all(shown) else NOTHING
    places = [
        PlaceEstimate(estimate.value, estimate.interval, size)
        if is_shown
        else PlaceEstimate(None, None, size)
        for estimate, size, is_shown in zip(estimates.places, sizes, shown, strict=True)
    ]
    return PolicyEstimate(name, value_of_lists.value, value_of_lists.interval, min(sizes), places)
