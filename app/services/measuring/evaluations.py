"""Evaluations of policies on the decision log: what another setting of a bandit would have earned.

The policy is evaluated as it would choose now: with what the learners know, among the arms that there are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from app.algorithms.evaluation.estimates import Estimate
from app.algorithms.linear.ridge import Posterior
from app.errors import Invalid
from app.filters.filter import Filter
from app.services.bandits.bandits import GLOBAL_LEARNER, Bandit, Bandits
from app.services.bounded.places import Places
from app.services.catalogues.filtered_views import FilteredViews
from app.services.catalogues.learner_view import LearnerView
from app.services.choosing.covers import Covers
from app.services.decision_log.rows import LogPages
from app.services.learning.learners import Learners
from app.services.measuring.evaluation_warnings import warnings_of
from app.services.measuring.evaluator import Evaluator, check_estimators
from app.services.measuring.outcomes import terms_then
from app.storage.protocol import LearnerId

log = logging.getLogger("shortlist.evaluations")

AT_ONCE, WAITING = 2, 8
LOG_S = 10.0  # between two lines about how far an evaluation is

Interval = tuple[float, float]


class PlaceEstimate(msgspec.Struct, frozen=True):
    """``value`` and ``interval``: None where there is too little to tell."""

    value: float | None
    interval: Interval | None
    effective_sample_size: float


class PolicyEstimate(msgspec.Struct, frozen=True):
    """``value``: of a whole decision. ``effective_sample_size``: that of the place which has least."""

    estimator: str
    value: float | None
    interval: Interval | None
    effective_sample_size: float
    places: list[PlaceEstimate]


class LoggedValue(msgspec.Struct, frozen=True):
    """What the logged decisions have earned. ``left_out``: decisions that could not be used."""

    value: float | None
    interval: Interval | None
    decisions: int
    left_out: int


class SupportView(msgspec.Struct, frozen=True):
    """Of the place where it is worst; see ``algorithms.evaluation.support``."""

    unused_share: float
    missing_share: float
    largest_weight: float


class Evaluation(msgspec.Struct, frozen=True):
    """What a policy would have earned."""

    estimates: list[PolicyEstimate]
    logged: LoggedValue
    support: SupportView
    warnings: list[str]


def evaluation_of(evaluator: Evaluator, *more: str) -> Evaluation:
    """What there is to say so far. ``more``: warnings. Cost: O(places^2)."""
    state = evaluator.state
    sizes = state.support.effective_sample_size.tolist()
    found = []
    for name in evaluator.estimators:
        estimates = state.estimates(name)
        places = [
            PlaceEstimate(*_shown(each), size) for each, size in zip(estimates.places, sizes, strict=True)
        ]
        found.append(PolicyEstimate(name, *_shown(estimates.whole), min(sizes), places))
    support = state.support
    return Evaluation(
        found,
        LoggedValue(*_shown(state.logged().whole), support.decisions, evaluator.left_out),
        SupportView(
            *(
                float(np.max(column))
                for column in (support.unused_share, support.missing_share, state.ranges.largest)
            )
        ),
        [*warnings_of(evaluator), *more],
    )


def _shown(estimate: Estimate) -> tuple[float | None, Interval | None]:
    return estimate.value, estimate.interval


@dataclass(frozen=True, slots=True)
class _Served:
    """The source of a running service."""

    bandits: Bandits
    learners: Learners
    filtered: FilteredViews
    covers: Covers

    async def view(self, bandit: Bandit, wanted: Filter | None) -> LearnerView:
        return bandit.seen(await self.filtered.of(bandit.catalogue, wanted))

    async def posterior(self, bandit: Bandit, key: str | None) -> Posterior:
        return await self.learners.apart(
            bandit, LearnerId(bandit.uid, GLOBAL_LEARNER if key is None else key)
        )

    async def default(self, bandit: Bandit, version: int) -> float:
        return (await terms_then(self.bandits, bandit, version)).default


class Evaluations:
    """Evaluations of all bandits, a few at a time. ``evaluated`` is told how many decisions were done."""

    def __init__(
        self,
        bandits: Bandits,
        learners: Learners,
        filtered: FilteredViews,
        covers: Covers,
        pages: LogPages,
        *,
        evaluated: Callable[[int], None],
    ) -> None:
        self._source = _Served(bandits, learners, filtered, covers)
        self._pages = pages
        self._evaluated = evaluated
        self._places = Places("evaluations", running=AT_ONCE, waiting=WAITING)

    async def evaluate(
        self, bandit: Bandit, estimators: Sequence[str], *, from_ms: int | None, to_ms: int | None
    ) -> Evaluation:
        """What the policy of ``bandit`` would have earned.

        On decisions that were made at ``from_ms`` or later and before ``to_ms``; None: without a bound.

        ``bandit``: as ``Bandits.as_if`` makes it. Cancelled, it ends at once. Cost: one pass over the log, in
        threads, with one page in memory. Raises Invalid (policy, estimators; no decision has propensities),
        Unavailable (too many evaluations at once, the store).
        """
        check_estimators(estimators)
        evaluator = Evaluator(bandit, self._source, estimators)
        async with self._places.one():
            started = said = time.monotonic()
            async for page in self._pages.pages(bandit, from_ms=from_ms, to_ms=to_ms):
                await evaluator.add(page)
                self._evaluated(len(page))
                if time.monotonic() - said >= LOG_S:
                    said = time.monotonic()
                    _say(evaluator, said - started)
            _say(evaluator, time.monotonic() - started)
        check_propensities(evaluator)
        return evaluation_of(evaluator)


def check_propensities(evaluator: Evaluator) -> None:
    """Raise Invalid if there are decisions, but none with propensities."""
    if evaluator.unknown and evaluator.unknown == evaluator.decisions:
        having = "only softmax, igw and holdouts give them"
        message = f"none of the {evaluator.decisions:,} decisions in this time has propensities: {having}"
        raise Invalid(message, loc=("path", "bandit"))


def _say(evaluator: Evaluator, elapsed_s: float) -> None:
    log.info(
        "evaluated %s decisions of %s in %.1f s", f"{evaluator.decisions:,}", evaluator.bandit.name, elapsed_s
    )
