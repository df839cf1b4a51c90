"""Propensities by draws: among which arms a logged decision was drawn."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from app.bandits.bandit import GLOBAL_LEARNER, Bandit, bandit_of
from app.bandits.settings import BanditRecord, RewardRule
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.decision_log.rows import Barred, LoggedArm
from app.indexes.live import IndexOptions, LiveIndex
from app.policies.registry import POLICIES
from app.records.records import CatalogueRecord, LearnerState
from app.storage.types import LearnerId
from logged_rows import row
from shortlist.linear import ridge_sums
from shortlist_evaluation.drawn_propensities import DrawnPropensities
from shortlist_evaluation.past_learners import PastLearners
from shortlist_evaluation.sources import HeldSource

pytestmark = [pytest.mark.anyio, pytest.mark.rest]
UID = "0" * 16


def bandit_of_sizes() -> Bandit:
    """Arms in order of their scores, the first far above all others; each has its number as ``size``."""
    index = LiveIndex(1, IndexOptions(kind="exact"))
    ids = [f"a{number}" for number in range(4)]
    index.upsert(ids, np.array([[9.0], [2.0], [1.0], [0.5]]), range(4))
    index.describe(ids, [([], {"size": number}) for number in range(4)])
    fields: dict[str, Any] = {
        "catalogue": "c", "policy": "linear_ts", "scope": "global", "ridge": 1.0, "exploration": 0.1,
        "delta": 0.05, "horizon": 100, "shortlist": 3, "eta": None, "reward": RewardRule(),
    }  # fmt: skip
    catalogue = Catalogue("c", UID, CatalogueRecord(1, asdict(IndexOptions(kind="exact"))), index)
    return bandit_of("b", version_to_bytes(UID, BanditVersion(BanditRecord(**fields))), catalogue, POLICIES)


class KnownPast(PastLearners):
    """Before the first decision 50 rewards had come."""

    def before_the_log(self) -> dict[LearnerId, LearnerState]:
        sums = ridge_sums.of(np.ones((50, 1)), np.full(50, 5.0), np.ones(50, dtype=bool))
        return {LearnerId(UID, GLOBAL_LEARNER): LearnerState(50, sums)}


async def drawn(shown: str, *, is_known: bool = True, **changes: Any) -> float | None:
    """The propensity of a logged arm. The learner has seen that features are worth much."""
    bandit = bandit_of_sizes()
    arms = [LoggedArm(shown, 1, 1.0, None, False)]
    decision = row(arms=arms, policy="linear_ts", learner_version=50, **changes)
    source = HeldSource(logged_by=bandit)
    past = KnownPast(bandit, source)
    past.unknown = set() if is_known else {LearnerId(UID, GLOBAL_LEARNER)}
    propensities = DrawnPropensities(bandit, source, past, (), lambda: None)
    (filled,) = await propensities.filled([decision], draw=True)
    return filled.arms[0].propensity


@pytest.mark.parametrize(
    ("changes", "best"),
    [
        ({}, "a0"),
        ({"filter": {"size": {"$gt": 0}}}, "a1"),
        ({"filter": {"size": {"$gt": 0}}, "barred": Barred([{"size": 1}], [])}, "a2"),
        ({"barred": Barred([], ["a0"])}, "a1"),
    ],
)
async def test_draws_are_among_the_arms_that_the_decision_had_to_choose_from(
    changes: dict[str, Any], best: str
) -> None:
    """The best of them is nearly certain, and one that was not among them is no decision of this learner."""
    share = await drawn(best, **changes)
    assert share is not None
    assert share > 0.99
    if best != "a0" and "filter" in changes:
        assert await drawn("a0", **changes) is None


async def test_a_learner_that_knew_more_than_the_log_tells_nothing() -> None:
    """Rewards that came later would be taken for those that it knew."""
    assert await drawn("a0", is_known=False) is None
