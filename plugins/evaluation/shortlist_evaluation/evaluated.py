"""Policies that are evaluated on a log, their estimators, and what these have seen so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shortlist.evaluation import off_policy
from shortlist.evaluation.off_policy import ESTIMATORS, OffPolicyState
from shortlist_evaluation.logged_lists import UnshownArms
from shortlist_service.decision_log import Bounds, Terms, terms_of, terms_of_rule
from shortlist_service.errors import Invalid
from shortlist_service.policies import Bandit

ESTIMATOR_NAMES = tuple(ESTIMATORS)


@dataclass(slots=True, eq=False)
class Evaluated:
    """A policy, by one weighing of its signals. ``number``: its place among several.

    ``gone``    decisions with an arm that it could not draw now
    ``state``   sums of the estimators, and ``signals`` the same of each signal by itself, without
    predictions: there dr is ips ``rewards`` between which bounds predictions are held; None: nobody knows any
    ``unshown`` arms that it would choose, and that the log does not show
    """

    number: int
    bandit: Bandit
    state: OffPolicyState
    signals: dict[str, OffPolicyState]
    rewards: Bounds | None
    unshown: UnshownArms
    gone: int = 0


def begin(
    number: int, bandit: Bandit, estimators: Sequence[str], rewards: Bounds | None, unshown: UnshownArms
) -> Evaluated:
    """A policy before it has seen a decision."""
    signals = (bandit.record.signals or {}).items()
    of_signals = list(dict.fromkeys(of_signal(name) for name in estimators))
    return Evaluated(
        number,
        bandit,
        _start(estimators, terms_of(bandit.record, bandit.weights)),
        {name: _start(of_signals, terms_of_rule(rule)) for name, rule in signals},
        rewards,
        unshown,
    )


def of_signal(estimator: str) -> str:
    """The estimator of a signal in place of this one: nothing is predicted of signals."""
    return "ips" if ESTIMATORS[estimator].needs_model else estimator


def _start(estimators: Sequence[str], terms: Terms) -> OffPolicyState:
    rewards = None if terms.low is None or terms.high is None else (terms.low, terms.high)
    return off_policy.start(estimators, places=1, rewards=rewards)


def check_estimators(estimators: Sequence[str]) -> None:
    """Raise Invalid for an estimator that there is not, and for none at all or one given twice."""
    errors = [
        (("estimators", number), f"must be one of {', '.join(ESTIMATOR_NAMES)}, each once")
        for number, name in enumerate(estimators)
        if name not in ESTIMATORS or name in estimators[:number]
    ]
    if errors:
        raise Invalid.many(errors)
    if not estimators:
        raise Invalid("estimators must name at least one", path=("estimators",))


def check_values(weights: int, signals: int, places: int, values: int) -> None:
    """Raise Invalid where there would be too many values, of each signal at each place by each weights."""
    if weights > 1 and weights * signals * places > values:
        most = max(1, values // (signals * places))
        many = f"{signals} signals in lists of {places}"
        message = f"at most {most} weight sets are allowed with {many}: {values:,} values in all"
        raise Invalid(message, path=("policy", "weights"))
