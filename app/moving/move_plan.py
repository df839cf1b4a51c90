"""The effects of a bandit's move, as answered, and in words.

A plan is a frozen value: each step of ``plan_steps`` takes one and returns the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.bandits import context as contexts
from app.bandits.bandit import Bandit, learner_dim
from app.bandits.completion import PolicyTerms, check_size
from app.bandits.history_prior import history_to_bytes
from app.bandits.settings import BanditRecord
from app.bandits.spaces import Carry, MoveRecord, SpaceMap
from app.catalogues.catalogue import Catalogue
from app.exposure_limits.rules import QuotaRule
from app.moving.arm_map import ArmMap, CommonArms
from app.platform.errors import Invalid, ShortlistError
from app.platform.phrases import counted
from app.records.records import vector_to_bytes
from shortlist.linear.learned_prior import LearnedPrior

QuotaRules = Sequence[tuple[str, QuotaRule]]  # with the ids of the quotas
MOST_NAMED = 5
NEW_BANDIT = (
    "Make a bandit in the new catalogue, and teach it the log of the old one: shortlist export log, then "
    "shortlist import --history (docs/recipes/new-embeddings.md)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """The effects of a move.

    ``bandit``         as it is
    ``target``         the new catalogue
    ``carry``          how learners are carried
    ``arms``           the common ones of both catalogues
    ``record``         of the bandit as it will be
    ``learners``       their number
    ``sample``         the names of some, by which estimates are compared
    ``arm_map``        between the features of the arms; None: nothing is carried
    ``space_map``      the map of learners
    ``agreement``      of estimates before and after
    ``first``          its prior of a history from then on
    ``prior``          the learned prior of the carried learners
    ``refusals``       why the move is not done; a dry run tells them as warnings
    ``warnings``       further sentences for the caller
    """

    bandit: Bandit
    target: Catalogue
    carry: Carry
    arms: CommonArms
    record: BanditRecord
    learners: int
    sample: Sequence[str]
    arm_map: ArmMap | None = None
    space_map: SpaceMap | None = None
    agreement: float | None = None
    first: LearnedPrior | None = None
    prior: LearnedPrior | None = None
    refusals: tuple[ShortlistError, ...] = ()
    warnings: tuple[str, ...] = ()

    def refuse(self, *refusals: ShortlistError) -> MovePlan:
        return replace(self, refusals=(*self.refusals, *refusals))

    def warn(self, warnings: Iterable[str]) -> MovePlan:
        return replace(self, warnings=(*self.warnings, *warnings))

    @property
    def r2(self) -> float | None:
        """The share of the new features explained by the map."""
        return None if self.arm_map is None else self.arm_map.forward.r2

    @property
    def answer(self) -> dict[str, Any]:
        arms, arm_map = self.arms, self.arm_map
        return {
            "from": self.bandit.record.catalogue,
            "to": self.target.name,
            "carry": self.carry,
            "arms": {"common": arms.count, "only_from": arms.only_from, "only_to": arms.only_to},
            "map": arm_map and {"r2": self.r2, "shown": "log" if arm_map.by_log else "all"},
            "agreement": self.agreement,
            "learners": self.learners,
            "warnings": list(self.warnings),
        }

    def move_record(self, version: int) -> MoveRecord:
        """The stored record of the move. ``version``: of the bandit after the move."""
        transform = None if self.space_map is None else self.space_map.transform
        # the catalogue's own prior is kept with the catalogue
        first = self.first if self.target.record.prior is None else None
        return MoveRecord(
            number=self.record.space,
            carry=self.carry,
            left=self.bandit.record.catalogue,
            left_uid=self.bandit.catalogue.uid,
            left_dim=self.bandit.catalogue.dim,
            joined=self.target.name,
            joined_uid=self.target.uid,
            moved_ms=self.record.moved_ms,
            version=version,
            answer=self.answer,
            transform=b"" if transform is None else vector_to_bytes(transform.ravel()),
            dim=0 if transform is None else len(transform),
            residual=b"" if self.arm_map is None else vector_to_bytes(self.arm_map.forward.residual.ravel()),
            history=b"" if first is None else history_to_bytes(first),
        )


def words_of(plan: MovePlan) -> list[str]:
    """The fate of the learners, in words."""
    if plan.carry == "none":
        return ["nothing of what was learned is kept: learners begin from nothing"]
    if not plan.learners:
        return ["no learner has had a reward yet: there is nothing to carry"]
    if plan.r2 is None:
        return []
    told = plan.r2 if plan.agreement is None else (plan.r2 + plan.agreement) / 2.0
    fate = "be kept almost wholly" if told >= 0.8 else "be kept in part" if told >= 0.3 else "hardly be kept"
    return [f"what was learned will {fate}: the map explains {plan.r2:.0%} of the new features"]


def refusals_of(plan: MovePlan, policy: PolicyTerms, rules: QuotaRules) -> Sequence[ShortlistError]:
    """Why the bandit cannot have the catalogue."""
    refusals = list[ShortlistError]()
    try:
        policy.check_arms(plan.record, plan.target)
        check_learner(plan.record, plan.target.dim)
        if rules:
            plan.target.need_arms("a quota")
    except Invalid as error:
        refusals.append(Invalid(error.detail, path=("catalogue",)))
    for quota_id, rule in rules:
        for field_name in plan.target.unknown_fields(rule.fields):
            message = f"no arm has the field {field_name} of the quota {quota_id}"
            refusals.append(Invalid(message, path=("catalogue",)))
    return refusals


def warnings_of(plan: MovePlan, policy: PolicyTerms, rules: QuotaRules) -> list[str]:
    """Warnings of losses in the new catalogue, and of parts which begin again."""
    bandit, target, warnings = plan.bandit, plan.target, list[str]()
    if plan.arms.only_from and not plan.refusals:
        source = bandit.record.catalogue
        warnings.append(
            f"{counted(plan.arms.only_from, f'arm of {source} is', f'arms of {source} are')} "
            f"not in {target.name} and will not be chosen any more"
        )
    arms = target.resident
    if arms is not None and arms.status().state == "building":
        warnings.append(f"{target.name} has no index yet: it is scanned until it has one, which takes longer")
    if policy.begins_again is not None:
        warnings.append(policy.begins_again)
    named = [(f"the quota {quota_id}", rule.arm) for quota_id, rule in rules if rule.arm is not None]
    named += [("the holdout", arm) for arm in bandit.named_arms]
    missing = [(what, arm) for what, arm in named if arms is not None and arm not in arms]
    for what, arm in missing[:MOST_NAMED]:
        warnings.append(f"{target.name} lacks the arm {arm} that {what} names")
    for setting, field_names in bandit.named_fields.items():
        for field_name in target.unknown_fields(field_names):
            warnings.append(f"no arm of {target.name} has the field {field_name} of the bandit's {setting}")
    return warnings


def check_learner(record: BanditRecord, dim: int) -> None:
    """Raise Invalid if learners would be too large with this record and arms of ``dim`` numbers."""
    contexts.check_size(record, dim)
    check_size(record, learner_dim(record, dim, contexts.Context.of(record, dim)) - record.intercept)
