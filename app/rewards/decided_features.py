"""The features that a decision's arm teaches with: those of the moment of the choice, in its context.

After a move of the bandit these are features of an earlier catalogue, and the fold maps them by the maps of
the moves since, as it maps learners. Features of a deleted catalogue are kept as long as its decisions can be
rewarded. The token carries features of the request, which are in no catalogue.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from app.bandits.bandit import Bandit
from app.bandits.settings import PositionRule, SignalRef
from app.catalogues.catalogues import Catalogues
from app.records.arm_sums import taken_off
from app.records.log_entries import RewardEntry
from app.records.place_sums import MOST_LEARNED_PLACES, AtPlace, examined_at
from app.records.records import vector_to_bytes
from app.rewards.tokens import Decision
from app.storage.types import OF_REQUEST
from shortlist.types import Vector


async def decided_features(
    catalogues: Catalogues, bandit: Bandit, decision: Decision, arm_position: int
) -> Vector | None:
    """Return the features of the arm at a position of a decision, (D,); None: not kept any more.

    ``bandit``: of the version that decided. Raises Unavailable.
    """
    arm, revision = decision.arms[arm_position], decision.revisions[arm_position]
    features = carried = decision.carried_at(arm_position)
    if revision != OF_REQUEST:
        features = await catalogues.features_at(bandit.catalogue_uid, arm, revision)
        if features is not None and carried is not None:
            features = np.concatenate((features, carried))
    if features is None:
        return None
    joint = bandit.joint_features(features, decision.encoded_context)
    examined = examined_in(bandit, decision, arm_position)
    return joint if examined is None else examined * joint


def examined_in(bandit: Bandit, decision: Decision, arm_position: int) -> float | None:
    """Return how likely a position of a decision was looked at, by its terms; None: the bandit has no
    positions.

    ``bandit``: of the version that decided.
    """
    position = bandit.record.position
    if isinstance(position, PositionRule):
        return position.at(arm_position)
    return None if decision.places is None else examined_at(decision.places, arm_position)[0]


def reward_entry(
    bandit: Bandit,
    decision: Decision,
    arm_position: int,
    features: Vector,
    kind: Literal["reward", "default"],
    *,
    value: float,
    judged: SignalRef | None = None,
) -> RewardEntry:
    """The entry of a reward or a default of an arm of a decision. ``features``: its ``decided_features``.

    ``bandit``: of the version that decided. ``judged``: the signal, of a reward of a bandit that has some.
    """
    record, at_place = bandit.record, None
    served, expected = taken_off(decision.effect_at(arm_position))
    if decision.places is not None:
        weight = examined_at(decision.places, arm_position)[1]
        at_place = AtPlace(min(arm_position, MOST_LEARNED_PLACES - 1), weight)
    of_all = kind == "default" and record.signals is not None
    return RewardEntry(
        vector_to_bytes(features),
        value,
        kind,
        decision.id,
        decision.arms[arm_position],
        decision.revisions[arm_position],
        decision.issued_ms,
        logged=decision.logged is not None,
        space=record.space,
        context=decision.context,
        examined=examined_in(bandit, decision, arm_position),
        served=served,
        expected=expected,
        half_life_s=record.key_half_life_s or 0.0,
        signal=None if of_all else 0 if judged is None else judged.place,
        sums=(record.reward if judged is None else judged.rule).aggregate == "sum",
        defaults=record.defaults(),
        arm_time=record.arm_time(decision.issued_ms),
        at_place=at_place,
        at_age=decision.age_at(arm_position) if expected else None,
    )
