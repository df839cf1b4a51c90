"""Evaluations of policies on the decision log: what another setting of a bandit would have earned.

The policy is evaluated among the arms that there are now; with what the learners knew before each decision,
or with what they know now.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from app.errors import Invalid
from app.filters.filter import Filter
from app.services.bandits.bandits import GLOBAL_LEARNER, Bandit, Bandits
from app.services.bounded.slots import Slots
from app.services.catalogues.catalogues import Catalogues
from app.services.catalogues.filtered_snapshots import FilteredSnapshots
from app.services.catalogues.learner_snapshot import LearnerSnapshot
from app.services.choosing.covers import Covers
from app.services.decision_log.decision_log import LATEST_MS
from app.services.decision_log.rows import CompleteLog, Row
from app.services.formats.records import LearnerState
from app.services.learning.learners import Learners
from app.services.measuring.evaluation_warnings import lacking, warnings_of
from app.services.measuring.evaluator import Evaluator, Known, check_estimators, targets_of
from app.services.measuring.logged_lists import revision_in
from app.services.measuring.outcomes import terms_then
from app.services.measuring.past_learners import Beginning, PastLearners
from app.storage.protocol import LearnerId
from shortlist.evaluation.estimates import NOTHING, Estimate
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix, Vector

log = logging.getLogger("shortlist.evaluations")

AT_ONCE, WAITING = 2, 8
LOG_S = 10.0  # between two lines about how far an evaluation is

Interval = tuple[float, float]
When = Literal["before", "now"]


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


class LearnersView(msgspec.Struct, frozen=True):
    """With what decisions were weighed: see ``PastLearners``. ``begin``, ``blocks``: of ``before``."""

    when: When
    begin: Beginning | None
    blocks: int


class Evaluation(msgspec.Struct, frozen=True):
    """What a policy would have earned. ``complete_from``: as of a report."""

    estimates: list[PolicyEstimate]
    logged: LoggedValue
    support: SupportView
    learners: LearnersView
    warnings: list[str]
    complete_from: int | None = None


def evaluation_of(evaluator: Evaluator, when: When) -> Evaluation:
    """What there is to say so far. Cost: O(places^2)."""
    state, past = evaluator.state, evaluator.past
    sizes = state.support.effective_sample_size.tolist()
    shown = (~lacking(state)).tolist()
    found = []
    for name in evaluator.estimators:
        estimates = state.estimates(name)
        places = [
            PlaceEstimate(*_shown(each if is_shown else NOTHING), size)
            for each, size, is_shown in zip(estimates.places, sizes, shown, strict=True)
        ]
        whole = estimates.whole if all(shown) else NOTHING
        found.append(PolicyEstimate(name, *_shown(whole), min(sizes), places))
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
        LearnersView(when, None if past is None else past.beginning, 0 if past is None else len(past.blocks)),
        warnings_of(evaluator),
    )


def _shown(estimate: Estimate) -> tuple[float | None, Interval | None]:
    return estimate.value, estimate.interval


@dataclass(frozen=True, slots=True)
class _Served:
    """The source of a running service."""

    bandits: Bandits
    catalogues: Catalogues
    filtered: FilteredSnapshots
    covers: Covers

    async def view(self, bandit: Bandit, arm_filter: Filter | None) -> LearnerSnapshot:
        return bandit.seen(await self.filtered.of(bandit.catalogue, arm_filter))

    async def features(
        self, bandit: Bandit, shown: Sequence[tuple[Row, str]]
    ) -> tuple[Matrix, Sequence[bool]]:
        """A catalogue that did not change since a decision has its features still."""
        index, version = bandit.catalogue.index.snapshot(), bandit.catalogue.version
        rows = index.view.row_of_each([arm for _, arm in shown])
        features = index.features_of(np.maximum(rows, 0)) if index.view.rows else np.zeros((len(shown), 0))
        known = rows >= 0
        then = dict[tuple[str, int], Vector | None]()
        for place, (row, arm) in enumerate(shown):
            if row.catalogue_version == version and known[place]:
                continue
            revision = revision_in(row, arm)
            if revision is None:
                continue
            if (arm, revision) not in then:
                then[arm, revision] = await self.catalogues.features_at(bandit.catalogue, arm, revision)
            found = then[arm, revision]
            known[place] = found is not None
            if found is not None:
                features[place] = found
        return features, known.tolist()

    async def default(self, bandit: Bandit, version: int) -> float:
        return (await terms_then(self.bandits, bandit, version)).default


@dataclass(frozen=True, slots=True)
class _Today:
    """What the learners of a bandit know now."""

    bandit: Bandit
    learners: Learners

    async def posterior(self, key: str | None) -> Posterior:
        learner = LearnerId(self.bandit.uid, GLOBAL_LEARNER if key is None else key)
        return await self.learners.apart(self.bandit, learner)

    async def state(self, learner: LearnerId) -> LearnerState | None:
        return await self.learners.state(learner)


class Evaluations:
    """Evaluations of all bandits, a few at a time. ``evaluated`` is told how many decisions were done.

    ``rewarded_ms``: how long a decision can be rewarded.
    """

    def __init__(
        self,
        bandits: Bandits,
        catalogues: Catalogues,
        learners: Learners,
        filtered: FilteredSnapshots,
        covers: Covers,
        *,
        pages: CompleteLog,
        rewarded_ms: int,
        evaluated: Callable[[int], None],
    ) -> None:
        self._source = _Served(bandits, catalogues, filtered, covers)
        self._learners = learners
        self._pages = pages
        self._rewarded_ms = rewarded_ms
        self._evaluated = evaluated
        self._places = Slots("evaluations", running=AT_ONCE, waiting=WAITING)

    async def evaluate(
        self, bandit: Bandit, estimators: Sequence[str], *, from_ms: int | None, to_ms: int | None, when: When
    ) -> Evaluation:
        """What the policy of ``bandit`` would have earned.

        On decisions that were made at ``from_ms`` or later and before ``to_ms``, where the log is complete;
        None: without a bound.

        ``bandit``: as ``Bandits.as_if`` makes it. ``when``: whether decisions are weighed with what learners
        knew before them, or with what they know now. Cancelled, it ends at once. Cost: one pass over the log,
        two with ``before``, in threads, with one page in memory. Raises Invalid (policy, estimators; no
        decision can be used), TooLarge (too many learners), Unavailable (too many evaluations at once, the
        store).
        """
        check_estimators(estimators)
        targets_of(bandit)
        today = _Today(bandit, self._learners)
        async with self._places.one():
            started = said = time.monotonic()
            complete_from = await self._pages.complete_from(bandit, from_ms)
            from_ms = complete_from or from_ms
            known: Known = today
            if when == "before":
                known = past = PastLearners(bandit, self._source, today)
                to_ms = min(time.time_ns() // 1_000_000, to_ms or LATEST_MS)
                pages = self._pages.pages(bandit, from_ms=from_ms, to_ms=to_ms)
                if past.takes_back:
                    first_ms = None if from_ms is None else from_ms - self._rewarded_ms
                    pages = self._pages.pages(bandit, from_ms=first_ms, to_ms=None)
                await past.survey(pages, from_ms=from_ms, to_ms=to_ms)
            evaluator = Evaluator(bandit, self._source, known, estimators)
            async for page in self._pages.pages(bandit, from_ms=from_ms, to_ms=to_ms):
                await evaluator.add(page)
                self._evaluated(len(page))
                if time.monotonic() - said >= LOG_S:
                    said = time.monotonic()
                    _say(evaluator, said - started)
            _say(evaluator, time.monotonic() - started)
        check_usable(evaluator)
        return msgspec.structs.replace(evaluation_of(evaluator, when), complete_from=complete_from)


def check_usable(evaluator: Evaluator) -> None:
    """Raise Invalid if there are decisions, but none that can be used."""
    weighed = evaluator.decisions - evaluator.unweighed
    if not weighed or evaluator.unknown + evaluator.unreadable < weighed:
        return
    if evaluator.unknown:
        why = "has propensities: only softmax, igw and holdouts give them"
    else:
        why = "says which arms it was drawn from: their rules limited how many arms share a value"
    raise Invalid(f"none of the {evaluator.decisions:,} decisions in this time {why}", path=("bandit",))


def _say(evaluator: Evaluator, elapsed_s: float) -> None:
    log.info(
        "evaluated %s decisions of %s in %.1f s", f"{evaluator.decisions:,}", evaluator.bandit.name, elapsed_s
    )
