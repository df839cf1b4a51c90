"""What a move of a bandit would do, as it is answered, and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord
from app.bandits.spaces import Carry, SpaceMap
from app.catalogues.catalogue import Catalogue
from app.moving.arms import CommonArms
from app.platform.errors import ShortlistError
from shortlist.linear.learned_prior import LearnedPrior

Asked = Literal["auto", "log", "map", "none"]

NO_LOG = (
    "what learners know is not computed again from the decision log here: a log would have to hold every "
    "decision and reward since the bandit was made"
)


@dataclass(slots=True)
class MovePlan:
    """What a move would do. ``refusals``: why it is not done; a dry run tells them as warnings."""

    bandit: Bandit
    target: Catalogue
    asked: Asked
    carry: Carry
    arms: CommonArms
    record: BanditRecord
    space_map: SpaceMap | None
    r2: float | None = None
    is_weighed: bool = False
    agreement: float | None = None
    learners: int = 0
    prior: LearnedPrior | None = None
    warnings: list[str] = field(default_factory=list)
    refusals: list[ShortlistError] = field(default_factory=list)

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
    told = plan.r2 if plan.agreement is None else (plan.r2 + plan.agreement) / 2.0
    kept = "almost wholly" if told >= 0.8 else "in part" if told >= 0.3 else "hardly"
    found = [f"what was learned will be kept {kept}: the map explains {plan.r2:.0%} of the new features"]
    if plan.asked == "auto" and plan.bandit.record.log is not None:
        found.append(f"learners are carried by a map: {NO_LOG}")
    return found


def log_lacks(record: BanditRecord) -> str:
    """Why learners cannot be made anew from the decision log."""
    if record.log is None:
        return "the bandit has no decision log, from which learners could be computed again"
    if record.log.share < 1.0:
        return f"the decision log holds a share of {record.log.share:g} of the decisions, not all of them"
    return NO_LOG
