"""What a move of a bandit would do, as it is answered, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.bandits import context as contexts
from app.bandits.bandit import Bandit
from app.bandits.completion import PolicyTerms, check_size
from app.bandits.context import MAX_CONTEXT_KEY_LEARNER, MAX_CONTEXT_LEARNER
from app.bandits.settings import BanditRecord, ServedArms
from app.bandits.spaces import Carry, SpaceMap
from app.catalogues.catalogue import Catalogue
from app.filters.filter import Filter
from app.learning.checkpoints import read_together
from app.moving.arms import ArmMap, CommonArms
from app.platform.errors import Invalid, ShortlistError, shown_time
from app.quotas.rules import QuotaRule
from app.records.records import LearnerState
from app.storage.space import moves_full
from app.storage.store import Store
from shortlist.linear.learned_prior import LearnedPrior
from shortlist.types import Matrix

Asked = Literal["auto", "log", "map", "none"]
Quotas = Sequence[tuple[str, QuotaRule]]
MOST_NAMED = 5
# Of the states that are read together, at least one. The store syncs as much to disk in one step, and whoever
# reads a learner waits for that.
AT_ONCE_BYTES = 1 << 17
KEPT_BYTES = 200  # that a kept state takes besides itself, with its name
NOT_KEPT = (
    "what learners know now is not kept, as it is more than SHORTLIST_MAX_MOVES_MB leaves: moving back will "
    "be a move like any other"
)


@dataclass(slots=True)
class MovePlan:
    """What a move would do. ``refusals``: why it is not done; a dry run tells them as warnings.

    ``found``     the map between the features of the arms
    ``left_ms``   it goes back to where the bandit was moved from then, and learners are what they were
    ``recomputed``  of some learners, what they will know if their sums are computed again
    ``is_kept``   what learners know is kept for a while, to go back to
    ``no_log``    why that cannot be from the decision log; None: it can, or nobody asked
    """

    bandit: Bandit
    target: Catalogue
    asked: Asked
    carry: Carry
    arms: CommonArms
    record: BanditRecord
    space_map: SpaceMap | None
    found: ArmMap | None = None
    r2: float | None = None
    is_weighed: bool = False
    agreement: float | None = None
    learners: int = 0
    prior: LearnedPrior | None = None
    left_ms: int | None = None
    recomputed: Mapping[str, LearnerState] = field(default_factory=dict)
    no_log: str | None = None
    is_kept: bool = True
    warnings: list[str] = field(default_factory=list)
    refusals: list[ShortlistError] = field(default_factory=list)

    def map_by(self, transform: Matrix) -> SpaceMap:
        """The map of states with this T."""
        residual = None if self.found is None else self.found.forward.residual
        return SpaceMap(self.record.space, transform, residual, self.bandit.catalogue.dim)

    @property
    def is_exact(self) -> bool:
        """Whether sums are computed again."""
        return self.left_ms is not None or self.carry == "log"

    @property
    def answer(self) -> dict[str, Any]:
        shown = {"r2": self.r2, "shown": "log" if self.is_weighed else "all"}
        return {
            "from": self.bandit.record.catalogue,
            "to": self.target.name,
            "carry": self.carry,
            "arms": self.arms.counts,
            "map": None if self.r2 is None else shown,
            "agreement": self.agreement,
            "learners": self.learners,
            "warnings": self.warnings,
        }


def words_of(plan: MovePlan) -> list[str]:
    """What becomes of what was learned, in words."""
    if plan.carry == "none":
        return ["nothing of what was learned is kept: learners begin from nothing"]
    if plan.r2 is None:
        return []
    if plan.carry == "log":
        return ["what was learned is computed again from the decision log: nothing of it is lost"]
    if plan.left_ms is not None:
        before = f"what they were in {plan.target.name} before the move of {shown_time(plan.left_ms)}"
        return [f"learners are {before}, and learn with its features what came since"]
    told = plan.r2 if plan.agreement is None else (plan.r2 + plan.agreement) / 2.0
    kept = "almost wholly" if told >= 0.8 else "in part" if told >= 0.3 else "hardly"
    found = [f"what was learned will be kept {kept}: the map explains {plan.r2:.0%} of the new features"]
    if plan.asked == "auto" and plan.no_log is not None:
        found.append(
            f"learners are carried by the map, not computed again from the decision log: {plan.no_log}"
        )
    return found


def log_lacks(record: BanditRecord, policy: PolicyTerms) -> str | None:
    """Why learners cannot be computed again from the decision log, as far as the settings tell."""
    if record.log is None:
        return "the bandit has no decision log"
    if record.log.share < 1.0:
        return f"it holds a share of {record.log.share:g} of the decisions, not all of them"
    if record.prior == "pooled":
        return "the pooled prior has its own sums; the map carries them"
    if policy.eliminates:
        return f"the policy {record.policy} begins again anyway"
    return None


def refusals_of(plan: MovePlan, policy: PolicyTerms, rules: Quotas) -> Sequence[ShortlistError]:
    """Why the bandit cannot have the catalogue."""
    found = list[ShortlistError]()
    try:
        policy.check_arms(plan.record, plan.target)
        check_numbers(plan)
        if rules:
            plan.target.need_arms("a quota")
    except Invalid as error:
        found.append(Invalid(error.detail, path=("catalogue",)))
    for quota_id, rule in rules:
        for field_name in _unknown_fields(plan.target, rule.parsed):
            message = f"no arm has the field {field_name} of the quota {quota_id}"
            found.append(Invalid(message, path=("catalogue",)))
    return found


def warnings_of(plan: MovePlan, policy: PolicyTerms, rules: Quotas) -> list[str]:
    """What the new catalogue lacks, or what begins again."""
    bandit, target, found = plan.bandit, plan.target, list[str]()
    if plan.arms.only_from and not plan.refusals:
        found.append(
            f"{plan.arms.only_from:,} arms of {bandit.record.catalogue} are not in {target.name} "
            "and will not be chosen any more"
        )
    if target.holds_arms and target.index.status().state == "building":
        found.append(f"{target.name} has no index yet: it is scanned until it has one, which takes longer")
    if policy.eliminates:
        found.append("elimination begins again: which arms are left is computed again")
    if plan.carry != "none" and not plan.is_kept:
        found.append(NOT_KEPT)
    serve = getattr(bandit.record.holdout, "serve", None)
    named = [(f"the quota {quota_id}", rule.arm) for quota_id, rule in rules if rule.arm is not None]
    named += [("the holdout", arm) for arm in (serve.arms if isinstance(serve, ServedArms) else ())]
    missing = [(what, arm) for what, arm in named if target.holds_arms and arm not in target.index]
    for what, arm in missing[:MOST_NAMED]:
        found.append(f"{target.name} lacks the arm {arm} that {what} names")
    for field_name in _unknown_fields(target, bandit.arm_filter):
        found.append(f"no arm of {target.name} has the field {field_name} of the bandit's filter")
    return found


async def check_space(store: Store, plan: MovePlan) -> None:
    """Refuse a map that the store has no room for, and note whether what learners know is kept beside it.

    Raises Unavailable.
    """
    left = await store.usage.left("moves")
    if plan.space_map is not None:
        left -= plan.space_map.bytes
        if left < 0:
            plan.refusals.append(moves_full())
    plan.is_kept = plan.learners * (plan.bandit.state_bytes * 9 // 8 + KEPT_BYTES) <= left


def by_step(names: Sequence[str], bandit: Bandit) -> Sequence[Sequence[str]]:
    """The names of learners, by as many as are read together."""
    count = read_together(bandit.state_bytes, most_bytes=AT_ONCE_BYTES)
    return [names[start : start + count] for start in range(0, len(names), count)]


def _unknown_fields(catalogue: Catalogue, arm_filter: Filter | None) -> list[str]:
    """The fields of a filter that no arm of the catalogue has."""
    if arm_filter is None or not catalogue.holds_arms:
        return []
    names = catalogue.index.snapshot().attributes.names.fields
    return [name for name in sorted(arm_filter.fields) if names.number_of(name) is None]


def check_numbers(plan: MovePlan) -> None:
    """Raise Invalid for learners that would be too large."""
    bandit, record, dim = plan.bandit, plan.record, plan.target.dim
    context = contexts.Context.of(record, dim)
    more = 0 if context is None else context.more_numbers(dim)
    if bandit.context is not None:
        m = bandit.context.encoding.dim
        most = MAX_CONTEXT_KEY_LEARNER if record.scope == "per_key" else MAX_CONTEXT_LEARNER
        if dim + more > most:
            raise Invalid(
                f"a learner would have {dim} + {more // m} x {m} = {dim + more:,} numbers, {most:,} at most "
                f"with scope {record.scope}; the largest interactions that "
                f"fits is {max(0, (most - dim) // m)}"
            )
    check_size(record, dim + more + record.shift_rewards)
