"""The pairs of decisions and observations: the expected reward of an arm, and its served effect.

History comes in calls, mostly with many rewards of one key. The expected reward of each is by the learner
with the other rewards of its key in the call. Else each would be compared with the learner before the call,
mostly without rewards: an arm shown to people who like it would seem better than it is.
"""

from __future__ import annotations

import numpy as np

from app.bandits.bandit import Bandit
from app.learners.learners import LearnerPosterior, thetas_of
from app.platform.metrics import Metrics
from app.records.arm_sums import pairs_to_bytes
from app.storage.arm_effects import ArmEffectStore
from shortlist.linear import arm_effects
from shortlist.linear.signals import SignalPosteriors
from shortlist.types import Matrix

MOST_TOGETHER = 200  # rewards of a key, whose inverse takes a millisecond


class EffectPairs:
    """``store`` says whether there is space for the sums of further arms."""

    def __init__(self, store: ArmEffectStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def of(
        self,
        bandit: Bandit,
        expected: Matrix,
        served: Matrix | None,
        *,
        sigma: float,
        decisions: int = 1,
    ) -> bytes:
        """The pairs of arms of a bandit with arm effects, of ``decisions`` decisions.

        ``expected``: NaN of arms that learn nothing. ``served`` None: 0 of all. ``sigma``:
        the noise of the key. Shapes: (n, J) both.
        """
        has_space = self._store.has_space()
        if not has_space:
            self._metrics.without_effects.inc(decisions)
        if not has_space or bandit.has_own_unit(sigma):
            expected = np.full(expected.shape, np.nan)  # the keys learn alone
        return pairs_to_bytes(expected, served)


def expected_together(
    bandit: Bandit, learner: LearnerPosterior, features: Matrix, values: Matrix, served: Matrix
) -> Matrix:
    """Return the expectation of each reward of a key, by its learner and the other rewards.

    ``learner``: without all of them. Shapes: features (n, D), values and ``served`` effects (n, J) -> (n, J).
    Cost: n^3 for at most ``MOST_TOGETHER`` rewards.
    """
    expected, learned = features @ thetas_of(bandit, learner).T, values - served
    if isinstance(learner, SignalPosteriors):
        root = learner.shared_root.matrix()
    else:
        root = learner.root / learner.sigma
    for start in range(0, len(features), MOST_TOGETHER):
        part = slice(start, start + MOST_TOGETHER)
        beyond = arm_effects.surprises_together(features[part], learned[part] - expected[part], root)
        expected[part] = learned[part] - beyond
    return expected
