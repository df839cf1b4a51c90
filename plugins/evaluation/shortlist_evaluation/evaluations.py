"""Evaluations of policies on the decision log: what another setting of a bandit would have earned.

The policy is evaluated among the arms that there are now; with what the learners knew before each decision,
or with what they know now.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from shortlist_evaluation.answers import Evaluation, When
from shortlist_evaluation.evaluation import Log, Pages, evaluate
from shortlist_evaluation.evaluator import EvaluatorLimits
from shortlist_evaluation.sources import ServedSource
from shortlist_service.decision_log import LATEST_MS
from shortlist_service.jobs import Progress
from shortlist_service.metrics import Counter
from shortlist_service.policies import Bandit
from shortlist_service.routes import RouteDependencies
from shortlist_service.work import Slots

log = logging.getLogger("shortlist.evaluations")

EVALUATED = "shortlist_evaluated_decisions", "Logged decisions on which a policy was evaluated."
AT_ONCE, WAITING = 2, 8
JOBS_WAITING = 8  # one runs at a time, beside those that clients wait for


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
            served_learners=service.learners,
        )
        self.pages = service.decision_log
        self._done = service.metrics.of_plugin(Counter, *EVALUATED)
        self._slots = Slots("evaluations", running=AT_ONCE, waiting=WAITING)
        self._job_slots = Slots("evaluations", running=1, waiting=JOBS_WAITING)

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
        """As ``evaluation.evaluate``, on decisions that were made at ``from_ms`` or later and before
        ``to_ms``, where the log is complete; None: without a bound.

        ``progress``: of a job. Jobs have slots of their own. Raises also Unavailable: too many evaluations at
        once.
        """
        started, decisions = time.monotonic(), 0

        def told(done: int, of: int | None) -> None:
            nonlocal decisions
            self._done.inc(done - decisions)
            decisions = done
            if progress is not None:
                progress(done, of)

        async with (self._slots if progress is None else self._job_slots).one():
            result = await evaluate(
                weighed,
                await self._log(weighed[0], from_ms, to_ms, when),
                self._source,
                estimators,
                when=when,
                draws=draws,
                signal_places=signal_places,
                constraints=self.constraints,
                limits=self.limits,
                progress=told,
            )
        elapsed_s, name = time.monotonic() - started, weighed[0].name
        log.info("evaluated %s decisions of %s in %.1f s", f"{decisions:,}", name, elapsed_s)
        return result

    async def _log(self, bandit: Bandit, from_ms: int | None, to_ms: int | None, when: When) -> Log:
        first_ms = max(await self.pages.complete_from(bandit, None) or 0, bandit.record.moved_ms)
        complete_from = first_ms if first_ms > (from_ms or 0) else None  # before it, of another catalogue
        from_ms = complete_from or from_ms
        if when == "before":
            to_ms = min(time.time_ns() // 1_000_000, to_ms or LATEST_MS)

        def pages(reason: str) -> Pages:  # noqa: ARG001 - nobody waits to be told
            return self.pages.pages(bandit, from_ms=from_ms, to_ms=to_ms)

        def earlier() -> Pages:
            return self.pages.pages(bandit, from_ms=first_ms, to_ms=from_ms)

        is_whole = from_ms is None or from_ms <= first_ms
        return Log(pages, None if is_whole else earlier, complete_from)
