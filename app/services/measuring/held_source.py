"""What an evaluation needs, without a store: arms in memory, and learners that are fitted to a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from app.algorithms.linear import bilinear, ridge, ridge_sums
from app.algorithms.linear.ridge import Posterior
from app.algorithms.linear.ridge_sums import RidgeSums
from app.algorithms.linear.shifted_rewards import shift_features
from app.algorithms.types import Matrix, Rows
from app.errors import Invalid
from app.filters.filter import Filter
from app.services.bandits.bandits import Bandit
from app.services.catalogues.filtered_views import FilteredViews
from app.services.catalogues.learner_view import LearnerView
from app.services.choosing.covers import Covers
from app.services.decision_log.rows import Row
from app.services.measuring.outcomes import counted_rewards, terms_of

FILTER_BYTES = 256 << 20


@dataclass(slots=True)
class HeldSource:
    """A ``Source`` of one bandit, whose catalogue does not change.

    ``sums``: what the learner of each key has learned so far. A key without rewards has none.
    """

    covers: Covers = field(default_factory=Covers)
    filtered: FilteredViews = field(default_factory=lambda: FilteredViews(capacity_bytes=FILTER_BYTES))
    sums: dict[str | None, RidgeSums] = field(default_factory=dict)

    def learn(self, bandit: Bandit, rows: Sequence[Row]) -> None:
        """Learn from the rewards of some decisions, each once. Memory: that of all learners.

        The order of rewards does not matter, but for rounding. Cost: D^2 for each rewarded arm. Raises
        Invalid: an arm is not in the catalogue, or a context is none of the bandit.
        """
        names, values, keys, contexts = list[str](), list[float](), list[str | None](), list[list[float]]()
        for row in rows:
            for arm, value in counted_rewards(row)[0].items():
                names.append(arm)
                values.append(value)
                keys.append(row.key)
                contexts.append(row.context or [])
        if not names:
            return
        found = bandit.catalogue.index.snapshot().view.places_of(names)
        if (found < 0).any():
            raise Invalid("an arm of a logged decision is not among the arms")
        features = _lifted(bandit, found, contexts)
        rewards = np.array(values)
        if bandit.record.shift_rewards:
            features, rewards = shift_features(features), rewards / 2.0 + 0.5
        own = list(dict.fromkeys(keys))
        places = {key: place for place, key in enumerate(own)}
        owners = np.array([places[key] for key in keys])
        nothing = ridge_sums.empty(bandit.learner_dim)
        before = [self.sums.get(key, nothing) for key in own]
        every = np.ones(len(rewards), dtype=np.bool_)
        self.sums.update(zip(own, ridge_sums.add_each(before, owners, features, rewards, every), strict=True))

    async def view(self, bandit: Bandit, wanted: Filter | None) -> LearnerView:
        return bandit.seen(await self.filtered.of(bandit.catalogue, wanted))

    async def posterior(self, bandit: Bandit, key: str | None) -> Posterior:
        sums = self.sums.get(key)
        if sums is None:
            return ridge.prior(bandit.learner_dim, ridge=bandit.record.ridge)
        return ridge.posterior(sums, ridge=bandit.record.ridge)

    async def default(self, bandit: Bandit, version: int) -> float:  # noqa: ARG002 - the log has no terms
        return terms_of(bandit.record.reward).default


def _lifted(bandit: Bandit, rows: Rows, contexts: Sequence[Sequence[float]]) -> Matrix:
    """The features that learners learn from, of each arm in its context. Shape: -> (n, D)."""
    features = bandit.catalogue.index.snapshot().features_of(rows)
    if bandit.context is None:
        return features
    numbers = bandit.context.encoding.dim
    if any(len(context) != numbers for context in contexts):
        raise Invalid(f"the contexts of the log must be those of the bandit, {numbers} numbers")
    encoded = np.array(contexts, dtype=np.float32)
    return bilinear.phi(features, bandit.context.directions, encoded)
