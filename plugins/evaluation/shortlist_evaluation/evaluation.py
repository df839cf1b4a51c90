"""The entrance: rows of a log in, estimates out, wherever the rows come from.

    evaluations = await evaluate([bandit], log, source, ["ips"], when="before")

What learners knew before a decision is folded from the rows alone (``past_learners``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from shortlist_evaluation.answers import Evaluation, When, evaluations_of
from shortlist_evaluation.drawn_propensities import check_past
from shortlist_evaluation.evaluated import check_estimators
from shortlist_evaluation.evaluation_warnings import CATALOGUE_CHANGED, UNREADABLE, without_propensities
from shortlist_evaluation.evaluator import Evaluator, EvaluatorLimits, LearnerLookup
from shortlist_evaluation.past_learners import PastLearners
from shortlist_evaluation.seen_rewards import SeenRewards
from shortlist_evaluation.sources import HeldSource
from shortlist_service.decision_log import STATELESS, ConstraintRow, Row, evaluable_policy
from shortlist_service.errors import Invalid
from shortlist_service.jobs import Progress
from shortlist_service.policies import Bandit
from shortlist_service.work import MEASURING

Pages = AsyncIterator[Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Log:
    """The decisions of a bandit in the order of time, by pages, as often as they are asked for.

    ``pages``     those that are evaluated. It is told what they are read for: counting, learning, evaluating
    ``earlier``   all that the log has from before them
    ``complete_from``  of the answer: as of a report
    """

    pages: Callable[[str], Pages]
    earlier: Callable[[], Pages] | None = None
    complete_from: int | None = None


def check(bandit: Bandit, estimators: Sequence[str]) -> None:
    """Raise Invalid for what cannot be evaluated on any log (policy, estimators)."""
    check_estimators(estimators)
    bandit.catalogue.need_arms("an evaluation")
    evaluable_policy(bandit.record)


def check_draws(bandit: Bandit, when: When) -> None:
    """Raise Invalid where propensities cannot be estimated by draws (propensities, learners)."""
    if when != "before":
        needed = "draws need what learners knew before each decision"
        raise Invalid(f'{needed}: set it to "before", or leave it out', path=("learners",))
    check_past(bandit)


async def evaluate(
    weighed: Sequence[Bandit],
    log: Log,
    source: HeldSource,
    estimators: Sequence[str],
    *,
    when: When,
    draws: bool = False,
    signal_places: bool = False,
    constraints: Sequence[ConstraintRow] = STATELESS,
    limits: EvaluatorLimits = EvaluatorLimits(),
    progress: Progress = lambda done, of: None,  # noqa: ARG005
) -> list[Evaluation]:
    """What the policy of a bandit would have earned on a log, by each of several weights of its signals.

    ``weighed``      the bandit by each of the weights, as ``Bandits.as_if`` makes it
    ``source``       has the arms; and, unless the rows are to tell it, what learners know now
    ``when``         whether decisions are evaluated with what learners knew before them, or with what they
                     know now
    ``draws``        whether propensities that the log does not have are estimated: ``check_draws`` first
    ``constraints``  what may have had a say in the decisions
    ``progress``     is told how many decisions were evaluated, of how many; None while that is not known

    It ends early where the log shows nothing of what the policy does. Cancelled, it ends at once.

    Cost: one pass over the log, two with ``before``, where the policy draws or rewards have no bounds,
    however many weights there are, in threads, with one page in memory. Raises Invalid (policy, estimators;
    no decision can be used), TooLarge (too many learners), Unavailable.
    """
    check(weighed[0], estimators)
    if when == "now" and source.knows_learners:
        weighed = await source.of_now(weighed)
    lookup, seen = await _surveyed(weighed[0], log, source, when)
    evaluator = Evaluator(
        weighed[0],
        source,
        lookup,
        estimators,
        weighed=weighed,
        seen=seen,
        constraints=constraints,
        limits=limits,
        draws=draws,
    )
    if evaluator.drawn is not None and evaluator.past is not None and log.earlier is not None:
        async for rows in evaluator.past.of_its_learners(log.earlier()):
            await evaluator.drawn.learn_earlier(rows)
    progress(0, evaluator.expected)
    async for rows in log.pages("evaluating"):
        await evaluator.add(rows)
        progress(evaluator.decisions, evaluator.expected)
        if evaluator.is_unsupported:
            break
    _check_usable(evaluator)
    return await MEASURING.run(
        lambda: evaluations_of(evaluator, when, log.complete_from, signal_places=signal_places)
    )


async def _surveyed(
    bandit: Bandit, log: Log, source: HeldSource, when: When
) -> tuple[LearnerLookup, SeenRewards | None]:
    """What learners know, and what must be known of the whole log before it is evaluated, if anything."""
    seen = SeenRewards(bandit, source.versions)
    if when == "before":
        past = PastLearners(bandit, source)
        await past.survey(seen.noted(log.pages("counting")), log.earlier and log.earlier())
        return past, seen
    if not source.knows_learners:
        past = PastLearners(bandit, source)
        async for rows in seen.noted(log.pages("learning")):
            await past.learn(rows)
        await past.begin(0)
        return past, seen
    if not evaluable_policy(bandit.record).target_draws and seen.are_bounded:
        return source.posterior, None
    async for _ in seen.noted(log.pages("counting")):
        pass
    return source.posterior, seen


def _check_usable(evaluator: Evaluator) -> None:
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
