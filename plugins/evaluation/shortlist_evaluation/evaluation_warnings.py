"""Warnings of an evaluation, in plain sentences: what to know before believing its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from shortlist.evaluation.logged import MAX_PLACES
from shortlist.evaluation.off_policy import OffPolicyState
from shortlist_evaluation.evaluated import Evaluated
from shortlist_evaluation.evaluator import TOO_MUCH_MISSING, Evaluator
from shortlist_service.decision_log import evaluable_policy, no_propensities
from shortlist_service.errors import counted
from shortlist_service.policies import BanditRecord

MIN_EFFECTIVE_N = 100  # effective decisions
SMALL_SHARE = 0.02  # of the decisions, as effective ones
MAX_WEIGHT_SHARE = 0.1  # of all weights, for one decision
MUCH_UNUSED = 0.5
MUCH_MISSING = 0.05
UNREADABLE = (
    "the log does not say which arms they could show, as with the rules at_most and diverse, "
    "quotas whose arms were not kept, requests and candidates that are larger than what it keeps, "
    "and candidates that requests brought where a filter reads them"
)
NOT_DRAWN = (
    "draws cannot tell theirs: only Thompson sampling draws its lists, without a warm-up, from arms, "
    "learners, priors and effects that are known as they were"
)
CATALOGUE_CHANGED = (
    "the catalogue changed: arms came, went or got other features, or metadata that a filter reads changed, "
    "so what they could show is not known"
)


def warnings_of(evaluator: Evaluator, policy: Evaluated) -> list[str]:
    """All that is worth a warning about one of its policies."""
    caveats = evaluable_policy(evaluator.bandit.record).caveats(evaluator.bandit)
    unshown = _of_unshown_arms(policy)
    of_decisions = [*_of_decisions(evaluator, policy), *_of_weights(policy.state), *unshown, *caveats]
    return [*of_decisions, *_of_effects(evaluator), *_of_the_learners(evaluator)]


def without_propensities(record: BanditRecord, *, was_drawn: bool) -> str:
    """Why decisions of a bandit cannot be used, and what to ask for instead."""
    why = no_propensities(record, were_drawn=was_drawn)
    return f"{why}, and {NOT_DRAWN}" if was_drawn else why


def _of_decisions(evaluator: Evaluator, policy: Evaluated) -> Iterator[str]:
    every = counted(evaluator.decisions, "decision", "decisions")
    used = counted(policy.state.support.decisions, "decision", "decisions")
    if not evaluator.decisions:
        yield "there are no decisions in this time"
    if evaluator.ended_early:
        is_none = not policy.state.support.weights.any()
        none = "the policy would have made none of them, and hardly more than some of those that follow"
        too_few = "they show so little of what the policy does that the rest cannot make up for it"
        yield f"only the first {every} were looked at: {none if is_none else too_few}"
    if unknown := evaluator.counts.unknown - (0 if evaluator.drawn is None else evaluator.drawn.changed):
        why = "they were made by another policy, or their arms were given"
        why = why if evaluator.drawn is None else NOT_DRAWN
        have = counted(unknown, f"of {every} has", f"of {every} have")
        yield f"{have} no propensities and cannot be used: {why}"
    if evaluator.drawn is not None and evaluator.drawn.changed:
        were = counted(evaluator.drawn.changed, f"of {every} was", f"of {every} were")
        yield f"{were} made before {CATALOGUE_CHANGED}"
    if evaluator.drawn is not None and evaluator.drawn.estimated:
        drawn = f"the propensities of {evaluator.drawn.estimated:,} of {every} were estimated"
        rare = "lists that the policy showed more rarely than that are missing, as the missing share says"
        draws = f"{evaluator.drawn.draws:,} draws of the learner as it was"
        yield f"{drawn} from {draws}: {rare}; ips is too low by them"
    if evaluator.counts.unreadable:
        were = counted(evaluator.counts.unreadable, f"of {every} was", f"of {every} were")
        yield f"{were} left out: {UNREADABLE}"
    if policy.gone:
        why = "it was deleted, or the filter no longer lets it in"
        show = counted(policy.gone, f"of {used} shows", f"of {used} show")
        yield f"{show} an arm that this policy cannot choose now: {why}"
    if evaluator.counts.capped:
        what = "each was weighed among those that were left then, not those that this policy would have left"
        yield f"quotas or repeats did not allow some arms in {evaluator.counts.capped:,} of {used}: {what}"
    if evaluator.counts.cut:
        what = f"what stands below place {MAX_PLACES} was not counted"
        have = counted(evaluator.counts.cut, f"of {used} has a longer list", f"of {used} have longer lists")
        yield f"{have} than can be evaluated: {what}"


def _of_weights(state: OffPolicyState) -> Iterator[str]:
    support = state.support
    decisions = support.decisions
    if not decisions:
        return
    size = float(support.effective_sample_size.min())
    if size < MIN_EFFECTIVE_N or size < SMALL_SHARE * decisions:
        tell = counted(decisions, "decision tells", "decisions tell")
        compared = f"the {tell} about as much as {size:,.1f} of the policy's own would"
        yield f"weights are heavy: {compared}; intervals go by the largest that was seen"
    heaviest = float((state.ranges.largest / support.weights.clip(min=1e-300)).max())
    if heaviest > MAX_WEIGHT_SHARE:
        yield f"weights are heavy: one decision has {heaviest:.0%} of all weight"
    unused = float(support.unused_share.max())
    if unused > MUCH_UNUSED:
        yield f"the policy would never have made {unused:.0%} of the decisions: they tell nothing of it"
    about = f"about {float(support.missing_share.max()):.0%} of what the policy would choose was never chosen"
    if state.lacking(TOO_MUCH_MISSING).any():
        yield f"{about} when the log was written: what it would earn is unknown"
    elif state.lacking(MUCH_MISSING).any():
        yield f"{about} when the log was written: intervals count it, values do not"


def _of_unshown_arms(policy: Evaluated) -> Iterator[str]:
    arms, share = policy.unshown.found()
    if arms:
        subject = counted(
            arms, "arm that the policy would choose was", "arms that the policy would choose were"
        )
        told = (
            "what it would earn is unknown"
            if share > TOO_MUCH_MISSING
            else "intervals count it, values do not"
        )
        never = f"{subject} never chosen when the log was written"
        yield f"{never}, about {share:.1%} of what it would do: {told}"


def _of_effects(evaluator: Evaluator) -> Iterator[str]:
    every = counted(evaluator.decisions, "decision", "decisions")
    if evaluator.without_effects:
        are = counted(evaluator.without_effects, f"of {every} is", f"of {every} are")
        what = "the policy is weighed by what features say, as if arms had no effects beyond them"
        yield f"{are} evaluated without arm effects: {what}"
    if evaluator.effects_of_log:
        are = counted(evaluator.effects_of_log, f"of {every} is", f"of {every} are")
        yield f"{are} evaluated with arm effects that were fitted to earlier rows of this log"


def _of_the_learners(evaluator: Evaluator) -> Iterator[str]:
    past = evaluator.past
    if past is None and evaluator.decisions:
        learners = "the policy, and the model of dr, use what the learners know now"
        yield f"{learners}, which they have learned from these decisions too: values may be too high"
    if past is not None and evaluator.unweighed == evaluator.decisions:
        yield "all decisions were left out: nothing was known before them"
    elif evaluator.learned is not None and (lacking := evaluator.learned.lacking()):
        lacks = f"it lacks {counted(lacking, 'reward', 'rewards')} or more that they knew"
        yield f"learners were fitted to this log alone, and {lacks}: values are of a policy that knows less"
