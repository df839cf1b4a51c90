"""What a decision came to: the sum of the rewards of its arms, counted as learners count them."""

from __future__ import annotations

from dataclasses import dataclass

from app.services.bandits.bandits import Bandit, Bandits
from app.services.bandits.settings import RewardRule
from app.services.decision_log.rows import Row


@dataclass(frozen=True, slots=True)
class Terms:
    """By which terms decisions are counted.

    ``default``     what an arm without a reward counts as
    ``low, high``   of one arm, whether it is rewarded or not; None: nobody knows bounds
    """

    default: float
    low: float | None = None
    high: float | None = None

    def bounds(self, arms: int) -> tuple[float, float] | None:
        """Of a decision with so many arms; None where there are none."""
        return None if self.low is None or self.high is None else (arms * self.low, arms * self.high)


def terms_of(rule: RewardRule) -> Terms:
    """The terms of a bandit. A sum has no bounds: an arm may get any number of rewards."""
    default = rule.default or 0.0
    if rule.min is None or rule.max is None or rule.aggregate == "sum":
        return Terms(default)
    return Terms(default, min(rule.min, default), max(rule.max, default))


async def terms_then(bandits: Bandits, bandit: Bandit, version: int) -> Terms:
    """The terms of a version of a bandit; of one that is no longer kept, those of now."""
    then = await bandits.find(bandit.uid, version)
    return terms_of((then or bandit).record.reward)


def value_of(row: Row, terms: Terms) -> tuple[float, bool]:
    """The reward of a decision, and whether anybody sent one for it.

    Rewards of an arm are added, and take the place of the arm's default.
    """
    if not row.rewards:
        return len(row.arms) * terms.default, False
    counted, was_sent = counted_rewards(row)
    return sum(counted.values()) + (len(row.arms) - len(counted)) * terms.default, was_sent


def counted_rewards(row: Row) -> tuple[dict[str, float], bool]:
    """What each arm has earned that has a reward or a default, and whether anybody sent one."""
    sent, assumed = dict[str, float](), dict[str, float]()
    for reward in row.rewards:
        if reward.default:
            assumed[reward.arm] = reward.value
        else:
            sent[reward.arm] = sent.get(reward.arm, 0.0) + reward.value
    return assumed | sent, bool(sent)
