"""Evaluations of policies that draw an arm which the log never showed: what is told holds all the same.

The rewards of some arms, 0 or 1, are logged with even propensities; then an arm is added whose features lie
far from all others, so that a linear model predicts a reward for it that no arm can have. The policy draws
all arms almost alike. So the log lacks a sixth of what it does, or one part of 25, which is too little for
any weight to show in a small log.

An interval of 95 % that held exactly so often would hold in fewer than 93 of 100 of 200 logs with a
probability of 8 %, of 20 logs with one of 26 %; these are far wider, and seeds are fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from app.bandits.bandit import Bandit, bandit_of
from app.bandits.settings import BanditRecord, RewardRule
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.decision_log.rows import LoggedArm
from app.indexes.live import IndexOptions, LiveIndex
from app.policies.registry import POLICIES
from app.records.records import CatalogueRecord
from logged_rows import reward_of, row
from shortlist.evaluation import off_policy, ranges
from shortlist.linear import ridge, ridge_sums
from shortlist_evaluation.answers import Evaluation, evaluations_of
from shortlist_evaluation.evaluated import ESTIMATOR_NAMES
from shortlist_evaluation.evaluator import Evaluator
from shortlist_evaluation.logged_lists import UnshownArms
from shortlist_evaluation.sources import HeldSource

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

LEAST_COVERED, DIM = 0.93, 3
FIXED = {"ridge": 0.1, "exploration": 1.0, "delta": 0.05, "horizon": 100, "shortlist": 50, "eta": None}
SETTINGS: dict[str, dict[str, Any]] = {"softmax": {"temperature": 20.0}, "igw": {"gamma": 0.01}}


@dataclass(frozen=True)
class Population:
    """``features`` and ``means`` of all arms; the last is the one that was added."""

    features: np.ndarray
    means: np.ndarray


def population(arms: int, far: float) -> Population:
    """``far``: where the added arm lies, along the direction in which rewards grow."""
    rng = np.random.default_rng(arms)
    features = rng.normal(size=(arms + 1, DIM)) * [0.3, 1.0, 1.0]
    features[:, 0] += 1.0
    means = np.clip(0.2 + 0.15 * features[:, 1], 0.02, 0.95)
    features[-1], means[-1] = [1.0, far, 0.0], 0.3
    return Population(features, means)


def bandit_over(features: np.ndarray, policy: str) -> Bandit:
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    index.upsert([f"a{arm}" for arm in range(len(features))], features, range(len(features)))
    catalogue = Catalogue("c", "0" * 16, CatalogueRecord(DIM, {"kind": "exact"}), index)
    record = BanditRecord(
        "c", policy, "global", reward=RewardRule(min=0.0, max=1.0), **FIXED, **SETTINGS[policy]
    )
    return bandit_of("b", version_to_bytes("0" * 16, BanditVersion(record)), catalogue, POLICIES)


async def evaluated(made: Population, policy: str, decisions: int, seed: int) -> tuple[Evaluation, float]:
    """What is told, and what the policy is worth."""
    rng, arms = np.random.default_rng(seed), len(made.means) - 1
    taught = rng.integers(arms, size=20 * DIM)
    values = (rng.random(len(taught)) < made.means[taught]).astype(float)
    first = np.ones(len(taught), dtype=bool)
    sums = ridge_sums.add(ridge_sums.empty(DIM), made.features[taught], values, first)
    posterior = ridge.posterior(sums, ridge=0.1)
    shown = rng.integers(arms, size=decisions)
    rewards = (rng.random(decisions) < made.means[shown]).astype(float)
    rows = []
    for number, (arm, value) in enumerate(zip(shown.tolist(), rewards.tolist(), strict=True)):
        logged = LoggedArm(f"a{arm}", 1, 0.0, 1.0 / arms, pinned=False)
        rows.append(row(arms=[logged], rewards=[reward_of(value, logged.id, time=number)], time=number))

    async def known(*_: object) -> ridge.Posterior:
        return posterior

    evaluator = Evaluator(bandit_over(made.features, policy), HeldSource(), known, ESTIMATOR_NAMES)
    await evaluator.add(rows)
    scores = made.features @ posterior.theta
    if policy == "softmax":
        weights = np.exp((scores - scores.max()) / SETTINGS[policy]["temperature"])
        p = weights / weights.sum()
    else:
        p = 1.0 / (arms + 1 + SETTINGS[policy]["gamma"] * (scores.max() - scores))
        p[scores.argmax()] += 1.0 - p.sum()
    return evaluations_of(evaluator, "now")[0], float(p @ made.means)


@dataclass(frozen=True)
class Told:
    """Of one estimator: how often its interval held, and the least and largest end of any. ``warned``: in
    how many logs the arm was named.
    """

    covered: float
    least: float
    most: float
    warned: float


async def told(made: Population, policy: str, decisions: int, logs: int) -> dict[str, Told]:
    found: dict[str, list[tuple[bool, float, float]]] = {name: [] for name in ESTIMATOR_NAMES}
    warned = 0
    for seed in range(logs):
        evaluation, worth = await evaluated(made, policy, decisions, seed)
        warned += any("1 arm that the policy would choose" in text for text in evaluation.warnings)
        for each in evaluation.estimates:
            assert each.interval is not None
            low, high = each.interval
            found[each.estimator].append((low <= worth <= high, low, high))
    return {
        name: Told(
            float(np.mean([held for held, *_ in each])),
            min(low for _, low, _ in each),
            max(high for *_, high in each),
            warned / logs,
        )
        for name, each in found.items()
    }


CASES = [(5, 400, -9.0), (5, 400, 9.0), (24, 500, -20.0), (24, 500, 20.0), (24, 3_000, -20.0)]
SLOW_CASES = [pytest.param(*case, 200, marks=pytest.mark.slow) for case in CASES]


@pytest.mark.parametrize("policy", SETTINGS)
@pytest.mark.parametrize(
    ("arms", "decisions", "far", "logs"), [(5, 400, 9.0, 20), (24, 500, -20.0, 20), *SLOW_CASES], ids=str
)
async def test_intervals_hold_and_the_arm_is_named(
    policy: str, arms: int, decisions: int, far: float, logs: int
):
    found = await told(population(arms, far), policy, decisions, logs if decisions < 3_000 else logs // 4)
    for each in found.values():
        assert each.covered >= LEAST_COVERED, found
        assert each.least >= 0.0, found
        assert each.most <= 1.0, found
        assert each.warned == 1.0, found


async def test_predictions_of_shown_arms_alone_fail(monkeypatch: pytest.MonkeyPatch):
    """Neither held to what rewards can be, nor counted in the range of predictions, nor known as missing."""
    made = population(24, -20.0)
    monkeypatch.setattr("shortlist_evaluation.evaluator.bounds_of", lambda *_: None)
    monkeypatch.setattr(UnshownArms, "found", lambda _: (0, 0.0))
    of = ranges.of

    def without(logged: off_policy.Logged) -> ranges.Ranges:
        columns = (logged.propensities, logged.targets, logged.rewards, logged.predicted, logged.expected)
        return of(off_policy.Logged(*columns))

    monkeypatch.setattr(ranges, "of", without)
    found: list[bool] = []
    for seed in range(30):
        evaluation, worth = await evaluated(made, "softmax", 500, seed)
        low, high = evaluation.estimates[2].interval or (np.nan, np.nan)
        found.append(bool(low <= worth <= high))
    assert np.mean(found) < 0.5
