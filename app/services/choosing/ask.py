"""What a policy is asked, what it begins with, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.algorithms.linear.ridge import Posterior
from app.algorithms.types import NO_ROWS, Rows, TopK
from app.services.bandits.bandits import Bandit
from app.services.catalogues.learner_view import LearnerView
from app.services.learning.learners import Learners
from app.storage.protocol import LearnerId


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One choice that is to be made.

    ``k``         how many arms
    ``exclude``   ids of arms that are not eligible; unknown ids are ignored
    ``claim``     the same claim takes the same turns of a warm-up; None: every choice takes its own
    ``rng``       everything random is drawn from it
    ``arms``      ids of the arms to serve, in this order: of a baseline alone
    """

    bandit: Bandit
    learner: LearnerId
    k: int
    exclude: Sequence[str]
    claim: str | None
    rng: np.random.Generator
    arms: Sequence[str] | None = None

    def excluded(self, view: LearnerView) -> Rows:
        """The rows of ``exclude``."""
        return view.rows_of(self.exclude) if self.exclude else NO_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A learner and a catalogue at the same moment: what it knows, and the arms as it sees them."""

    posterior: Posterior
    view: LearnerView
    learner_version: int
    catalogue_version: int

    @classmethod
    async def now(cls, learners: Learners, bandit: Bandit, identity: LearnerId) -> Moment:
        """Awaits nothing for a learner in memory whose posterior was used before. Raises Unavailable."""
        learner = learners.cached(identity) or await learners.get(identity)
        posterior = learner.posterior or await learners.posterior(bandit, learner)
        return cls(posterior, bandit.snapshot(), learner.version, bandit.catalogue.version)


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The arms that a policy has chosen, as rows of the view of ``moment``; best first, or as drawn.

    ``propensities``: the probability of each arm given those before it, where the policy knows it.
    """

    found: TopK
    moment: Moment
    propensities: Sequence[float] | None = None
