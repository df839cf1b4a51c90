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
    """Estimate the earnings of a bandit's policy on a log, by each of several weights of its signals.

    ``weighed``      the bandit by each of the weights, as ``Bandits.as_if`` makes it
    ``source``       the arms; and, unless the rows tell them, the present learners
    ``when``         evaluate with the learners before each decision, or with the present ones
    ``draws``        True to estimate missing propensities: ``check_draws`` first
    ``constraints``  those of the decisions
    ``progress``     is told the number of evaluated decisions, and of all; None while unknown

    The evaluation ends early where the log shows none of the policy's choices, and at once when cancelled.

    Cost: one pass over the log, two with ``before``, where the policy draws or rewards have no bounds,
    however many weights there are, in threads, with one page in memory. Raises Invalid (policy, estimators;
    no decision can be used), TooLarge (too many learners), Unavailable.
    """
    check(weighed[0], estimators)
    if when == "now" and source.knows_learners:
        weighed = await source.of_now(weighed)
    lookup, seen_rewards = await _surveyed(weighed[0], log, source, when)
    evaluator = Evaluator(
        weighed[0],
        source,
        lookup,
        estimators,
        weighed=weighed,
        seen=seen_rewards,
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
    """The learners, and facts of the whole log needed before the evaluation, if any."""
    seen_rewards = SeenRewards(bandit, source.versions)
    if when == "before":
        past = PastLearners(bandit, source)
        await past.survey(seen_rewards.noted(log.pages("counting")), log.earlier and log.earlier())
        return past, seen_rewards
    if not source.knows_learners:
        past = PastLearners(bandit, source)
        async for rows in seen_rewards.noted(log.pages("learning")):
            await past.learn(rows)
        await past.begin(0)
        return past, seen_rewards
    if not evaluable_policy(bandit.record).target_draws and seen_rewards.are_bounded:
        return source.posterior, None
    async for _ in seen_rewards.noted(log.pages("counting")):
        pass
    return source.posterior, seen_rewards


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
