"""What an arm of a decision teaches with: its features when it was chosen, in the context of the decision.

After a move of the bandit an earlier decision teaches with the features that its arm has in the new
catalogue, as if they had been there from the start. With those of that time, mapped by the fold, if the new
catalogue lacks the arm, and where one value may take the place of another (``wait_s``, signals, sums, the
last): what replaces a value must have the features of what it replaces. A bandit that is back in the
catalogue has the features of that time in it.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from app.bandits.bandit import Bandit
from app.bandits.registry import Bandits
from app.catalogues.catalogues import Catalogues
from app.learning.tokens import Decision
from app.platform.errors import NotFound
from app.records.arm_sums import EffectTerms, teaches
from shortlist.types import Vector


class DecidedFeatures(NamedTuple):
    """``features`` of what a learner learns (D,), the space that they are of, and the revision of the arm."""

    features: Vector
    space: int
    revision: int


async def decided_features(
    catalogues: Catalogues, bandits: Bandits, bandit: Bandit, decision: Decision, arm_position: int
) -> DecidedFeatures | None:
    """Those of the arm at a place of a decision of this version of a bandit; None: they are not kept.

    Raises Unavailable.
    """
    arm, revision = decision.arms[arm_position], decision.revisions[arm_position]
    newest = bandits.by_uid(bandit.uid)
    context, position = decision.encoded_context, bandit.record.position
    if bandit.former is None or newest is None:
        features = await catalogues.features_at(bandit.catalogue, arm, revision)
        if features is None:
            return None
        return DecidedFeatures(
            bandit.learned_features(features, context, arm_position), bandit.record.space, revision
        )

    former, then = bandit.former, None
    if bandit.catalogue.uid == former.uid:  # else the former catalogue was deleted
        with contextlib.suppress(NotFound):  # as it may be just now
            then = await catalogues.features_at(bandit.catalogue, arm, revision)
    now = None if then is None else (then, revision)
    if now is None or newest.catalogue.uid != former.uid:
        now = (await catalogues.features(newest.catalogue, {arm})).get(arm)
    by_then = by_now = None
    if then is not None:
        learned = bandit.learned_features(then, context, arm_position)
        by_then = DecidedFeatures(learned, bandit.record.space, revision)
    if now is not None:
        joint = newest.joint_features(now[0], context)
        learned = joint if position is None else position.at(arm_position) * joint
        by_now = DecidedFeatures(learned, newest.record.space, now[1])
    record = bandit.record
    waits = record.reward.wait_s is not None
    may_replace = waits or record.signals is not None or record.reward.aggregate != "first"
    return by_then or by_now if may_replace else by_now or by_then


def effect_terms(
    bandit: Bandit, decision: Decision, arm_position: int, decided: DecidedFeatures
) -> EffectTerms | None:
    """What the entry of a reward says of the effect of its arm; None: it was chosen without effects.

    ``bandit``: of the version that decided. After a move of it, or where the store had no space for further
    sums, the arm learns nothing.
    """
    pair = decision.effect_at(arm_position)
    if pair is None:
        return None
    position = bandit.record.position
    examined = 1.0 if position is None else position.at(arm_position)
    if decided.space != bandit.record.space or not teaches(pair):
        return EffectTerms(pair.served, examined=examined)
    return EffectTerms(pair.served, pair.expected, decision.arms[arm_position], decided.revision, examined)
