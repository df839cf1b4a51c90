"""Reasons for an arm: the rewards of a key which speak for it, where columns of features have no names.

The estimate of a linear learner is linear in its rewards: reward r_i of features x_i adds x^T V^-1 x_i r_i
to the estimate of an arm x. So the parts are exact. They are of rewards in the log since the bandit has its
catalogue. With arm effects r_i is a reward less the served effect of its arm, as a key learns it;
at a place looked at with probability p, and with a weight w of rewards, x_i is w^(1/2) p times the
features, and r_i w^(1/2) times the reward less p times the effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.settings import PositionRule
from app.catalogues.catalogues import Catalogues
from app.decision_log.row_tokens import decision_in
from app.decision_log.rows import Row
from app.measuring.outcomes import Terms, counted_rewards
from app.rewards.decided_features import decided_features
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix, Vector

MOST_ROWS = 200  # decisions of a key, the newest
MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Reason:
    """A reward of the same key: of the ``arm``, with this ``value``.

    ``share``: its part of the estimate.
    """

    arm: str
    value: float
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class KeyRewards:
    """Rewards of a learner, and the ``learned`` sums. Shapes: features (n, D), else (n,).

    ``features``, ``learned``: as the fold has both, times the root of the reward's weight.
    """

    arms: Sequence[str]
    features: Matrix
    values: Vector
    learned: Vector

    def reasons(self, posterior: Posterior, features: Matrix) -> list[list[Reason]]:
        """The rewards with the largest parts in the estimate of each arm, the largest first; an arm with
        several rewards counts with their sum.

        Shapes: features (k, D) of arms. Cost: O(D^2) for each arm and reward.
        """
        names = list(dict.fromkeys(self.arms))
        owner = np.array([names.index(arm) for arm in self.arms], dtype=np.intp)
        totals = np.bincount(owner, self.values, minlength=len(names))
        root = posterior.root
        inner = (features @ root) @ (self.features @ root).T / posterior.sigma**2  # x^T V^-1 x_i
        result = list[list[Reason]]()
        for row in inner * self.learned:
            shares = np.bincount(owner, row, minlength=len(names))
            best = np.argsort(-shares, kind="stable")[:MOST_REASONS].tolist()
            result.append([Reason(names[i], totals.item(i), shares.item(i)) for i in best if shares[i] > 0.0])
        return result


def has_reasons(bandit: Bandit) -> bool:
    """True if the rewards of a key can be told apart in the learner's sums, and its columns have no names."""
    record = bandit.record
    is_plain = record.context is None and not record.signals and not isinstance(record.position, PositionRule)
    is_whole = record.key_half_life_s is None
    says_nothing = bandit.columns is None
    return record.scope == "per_key" and is_plain and is_whole and says_nothing and record.log is not None


async def rewards_of(catalogues: Catalogues, bandit: Bandit, rows: Sequence[Row]) -> KeyRewards | None:
    """The rewards of a key, by its newest rows; None: there is none."""
    arms, features, values, learned = list[str](), list[Vector](), list[float](), list[float]()
    for row in rows:
        decision = decision_in(row)
        if row.time < bandit.record.moved_ms or decision is None:
            continue  # its features are of another catalogue
        shown = {arm.id: arm for arm in row.arms}
        for arm, value in counted_rewards(row, Terms(0.0))[0].items():
            if (own := shown.get(arm)) is None:
                continue
            # Of one signal: a bandit of several has no reasons.
            effect = own.effect if isinstance(own.effect, float) else 0.0
            less = effect if own.examined is None else own.examined * effect
            if not value - less:
                continue
            vector = await decided_features(catalogues, bandit, decision, own.place - 1)
            if vector is not None:
                root = 1.0 if own.weight is None else math.sqrt(own.weight)
                arms.append(arm)
                features.append(root * vector)
                values.append(value)
                learned.append(root * (value - less))
    if not arms:
        return None
    return KeyRewards(arms, np.array(features), np.array(values), np.array(learned))
