"""What one must know of an evaluation before one believes it, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator

from app.algorithms.evaluation.logged import MAX_PLACES
from app.services.choosing.policies import POLICIES
from app.services.measuring.evaluator import Evaluator

FEW = 100  # effective decisions
SMALL_SHARE = 0.02  # of the decisions, as effective ones
HEAVY = 0.1  # of all weights, for one decision
MUCH_UNUSED = 0.5
MUCH_MISSING = 0.05
SIGMAS = 3.0
OFTEN = 100  # decisions for each number that a learner learns: then it cannot know them by heart


def warnings_of(evaluator: Evaluator) -> list[str]:
    """All that is worth a warning."""
    targets = POLICIES[evaluator.bandit.record.policy].targets
    caveats = [] if targets is None else targets.caveats(evaluator.bandit)
    return [*_of_decisions(evaluator), *_of_weights(evaluator), *caveats, *_of_the_learner(evaluator)]


def _of_decisions(evaluator: Evaluator) -> Iterator[str]:
    every, used = f"{evaluator.decisions:,} decisions", f"{evaluator.state.support.decisions:,} decisions"
    if not evaluator.decisions:
        yield "there are no decisions in this time"
    if evaluator.unknown:
        why = "they were made by another policy, or their arms were given"
        yield f"{evaluator.unknown:,} of {every} have no propensities and were left out: {why}"
    if evaluator.unreadable:
        why = "their rules limited how many arms share a value, or they asked for more than the log keeps"
        yield f"{evaluator.unreadable:,} of {every} were left out: {why}"
    if evaluator.gone:
        why = "it was deleted, or the filter no longer lets it in"
        yield f"{evaluator.gone:,} of {used} show an arm that this policy cannot choose now: {why}"
    if evaluator.cut:
        what = f"what stands below place {MAX_PLACES} was not counted"
        yield f"{evaluator.cut:,} of {used} have longer lists than can be evaluated: {what}"


def _of_weights(evaluator: Evaluator) -> Iterator[str]:
    support = evaluator.state.support
    decisions = support.decisions
    if not decisions:
        return
    size = float(support.effective_sample_size.min())
    if size < FEW or size < SMALL_SHARE * decisions:
        compared = f"the {decisions:,} decisions tell about as much as {size:,.1f} of the policy's own would"
        yield f"weights are heavy: {compared}, so intervals may be too short"
    heaviest = float((evaluator.state.ranges.largest / support.weights.clip(min=1e-300)).max())
    if heaviest > HEAVY:
        yield f"weights are heavy: one decision has {heaviest:.0%} of all weight"
    unused = float(support.unused_share.max())
    if unused > MUCH_UNUSED:
        yield f"the policy would never have made {unused:.0%} of the decisions: they tell nothing of it"
    missing, mean = support.missing_share, support.weights / decisions
    spread = ((support.squares / decisions - mean**2).clip(min=0.0) / decisions) ** 0.5
    if ((missing > MUCH_MISSING) & (missing > SIGMAS * spread)).any():
        share = f"about {float(missing.max()):.0%} of what the policy would choose"
        yield f"{share} could not be chosen when the log was written: the values do not count it"


def _of_the_learner(evaluator: Evaluator) -> Iterator[str]:
    bandit, decisions = evaluator.bandit, evaluator.state.support.decisions
    knows_more = bandit.record.scope == "global" and decisions >= OFTEN * bandit.learner_dim
    if decisions and not knows_more:
        learners = "the policy, and the model of dr, use what the learners know now"
        yield f"{learners}, which they have learned from these few decisions: values may be too high"
