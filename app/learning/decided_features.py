"""What an arm of a decision teaches with: the features that it had when it was chosen, in that context.

After a move of the bandit these are features of an earlier catalogue, and the fold maps them by the maps of
the moves since, as it maps learners. Of a catalogue that was deleted they are kept as long as decisions of it
can be rewarded.
"""

from __future__ import annotations

from app.bandits.bandit import Bandit
from app.catalogues.catalogues import Catalogues
from app.learning.tokens import Decision
from app.records.arm_sums import EffectTerms, teaches
from shortlist.types import Vector


async def decided_features(
    catalogues: Catalogues, bandit: Bandit, decision: Decision, arm_position: int
) -> Vector | None:
    """Those of the arm at a place of a decision, (D,); None: they are not kept. Raises Unavailable.

    ``bandit``: of the version that decided.
    """
    arm, revision = decision.arms[arm_position], decision.revisions[arm_position]
    features = await catalogues.features_at(bandit.catalogue_uid, arm, revision)
    if features is None:
        return None
    return bandit.learned_features(features, decision.encoded_context, arm_position)


def effect_terms(bandit: Bandit, decision: Decision, arm_position: int) -> EffectTerms | None:
    """What the entry of a reward says of the effect of its arm; None: it was chosen without effects.

    ``bandit``: of the version that decided. Where the store had no space for further sums the arm learns
    nothing.
    """
    pair = decision.effect_at(arm_position)
    if pair is None:
        return None
    position = bandit.record.position
    examined = 1.0 if position is None else position.at(arm_position)
    if not teaches(pair):
        return EffectTerms(pair.served, examined=examined)
    revision = decision.revisions[arm_position]
    return EffectTerms(pair.served, pair.expected, decision.arms[arm_position], revision, examined)
