"""Intervals of evaluations hold on logs of choices that quotas, an even pace and repeats have narrowed.

Each log: half of the arms are in two campaigns, one of which is used up on the way, the other paced; nobody
has an arm twice. Arms are chosen and left out by the code of the service, by a store and a clock of
the test's own; the rows name what was left out as those of the service do. Rewards are 0 or 1. What the
evaluated policy is worth follows from the formula of the policy, over the arms that took part in each
decision.

An interval of 95 % that held exactly so often would hold in fewer than 93 of 100 of ``LOGS`` logs with a
probability of 6 %; these are wider, and seeds are fixed. Where it is ignored what was left out, values are
far off: the intervals say so by their width.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from app.bandits.bandit import Bandit, bandit_of
from app.bandits.settings import BanditRecord, RepeatsRule, RewardRule
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.decision_log.rows import NOTHING_BARRED, Barred, LoggedArm, Row
from app.exposure_limits.bandit_quotas import BanditQuotas
from app.exposure_limits.caps import FrequencyCapKey
from app.exposure_limits.closed_arms import QuotaMembers
from app.exposure_limits.exposures import over_cap
from app.exposure_limits.rules import QuotaRule
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.indexes.live import IndexOptions, LiveIndex
from app.policies.registry import POLICIES
from app.records.records import CatalogueRecord
from app.selection.covers import Covers
from app.selection.selection import SelectionRequest
from app.serving.constraints import frequency_caps, quotas
from app.serving.constraints.base import combined
from app.storage.types import LearnerId
from logged_rows import reward_of, row
from shortlist.linear import ridge, ridge_sums
from shortlist_evaluation.evaluated import ESTIMATOR_NAMES
from shortlist_evaluation.evaluator import Evaluator
from shortlist_evaluation.sources import HeldSource
from store_by_clock import OwnClock, StoreByClock, process_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(1_800)]

LOGS, IGNORING, DECISIONS, LEAST_COVERED, MOST_OFF = 300, 30, 300, 0.93, 0.02
ARMS, DIM, KEYS, WINDOW_S = 24, 4, 100, 60.0
REPEATS = RepeatsRule(most=1, within_s=86_400.0)
SETTINGS = {
    "softmax": ({"temperature": 0.3}, {"temperature": 0.04}),
    "igw": ({"gamma": 40.0}, {"gamma": 400.0}),
}


@dataclass
class Population:
    """``means`` (arms,) of rewards; the learner's estimates are near them."""

    catalogue: Catalogue
    posterior: Any
    means: np.ndarray
    estimates: np.ndarray


def made() -> Population:
    rng = np.random.default_rng(38)
    features = rng.normal(size=(ARMS, DIM)) / np.sqrt(DIM)
    means = np.clip(0.4 + 0.35 * features @ rng.normal(size=DIM), 0.05, 0.95)
    index = LiveIndex(DIM, IndexOptions(kind="exact"))
    ids = [f"a{arm}" for arm in range(ARMS)]
    index.upsert(ids, features, range(ARMS))
    best = np.argsort(-means)  # the best arms are those that quotas hold back
    campaign = np.empty(ARMS, int)
    campaign[best] = np.arange(ARMS) % 4
    index.describe(ids, [((), {"campaign": int(each)}) for each in campaign])
    many = np.repeat(features, 20, axis=0)
    values = np.repeat(means, 20) + 0.05 * rng.normal(size=20 * ARMS)
    sums = ridge_sums.add(ridge_sums.empty(DIM), many, values, np.ones(len(many), dtype=bool))
    posterior = ridge.posterior(sums, ridge=1.0)
    catalogue = Catalogue("c", "0" * 16, CatalogueRecord(DIM, {"kind": "exact"}), index)
    return Population(catalogue, posterior, means, features @ posterior.theta)


def bandit(population: Population, policy: str, **changes: Any) -> Bandit:
    fixed = {"ridge": 1.0, "exploration": 1.0, "delta": 0.05, "horizon": 100, "shortlist": 30, "eta": None}
    reward = RewardRule(min=0.0, max=1.0)
    record = BanditRecord("c", policy, "per_key", reward=reward, repeats=REPEATS, **{**fixed, **changes})
    return bandit_of("b", version_to_bytes("0" * 16, BanditVersion(record)), population.catalogue, POLICIES)


def probabilities(policy: str, estimates: np.ndarray, *, temperature: float = 1.0, gamma: float = 0.0):
    """Of arms that take part: softmax, or Foster and Rakhlin 2020, Eq. (1)."""
    if policy == "softmax":
        weights = np.exp((estimates - estimates.max()) / temperature)
        return weights / weights.sum()
    found = 1.0 / (len(estimates) + gamma * (estimates.max() - estimates))
    best = estimates.argmax()
    found[best] += 1.0 - found.sum()
    return found


async def quotas_of(clock: OwnClock) -> BanditQuotas:
    rules = {
        "budget": QuotaRule(DECISIONS // 5, {"campaign": 0}, per_s=2 * WINDOW_S),
        "paced": QuotaRule(DECISIONS // 6, {"campaign": 1}, per_s=WINDOW_S, pace="even"),
        "arm": QuotaRule(DECISIONS // 20, arm="a2", per_s=2 * WINDOW_S),
    }
    return await process_of(StoreByClock(clock, rules), QuotaMembers())


async def log_of(population: Population, policy: str, seed: int) -> tuple[list[Row], float]:
    """A log, and what the evaluated policy is worth on average over its decisions."""
    rng, clock = np.random.default_rng(seed), OwnClock()
    had = {key: Counter[str]() for key in range(KEYS)}
    process = await quotas_of(clock)
    logging, evaluated = SETTINGS[policy]
    own, whole = bandit(population, policy, **logging), population.catalogue.index.snapshot()

    async def current(*_: object) -> tuple[Any, Any]:
        return SimpleNamespace(version=1), population.posterior

    dependencies = SimpleNamespace(
        learners=SimpleNamespace(current=current), covers=Covers(),
        filtered=FilteredSnapshots(capacity_bytes=1 << 24),
    )  # fmt: skip
    rows, worth = list[Row](), 0.0
    for number in range(DECISIONS):
        clock.seconds = (number + 1) * WINDOW_S / (DECISIONS + 2)
        key = int(rng.integers(KEYS))
        asked = SelectionRequest(own, LearnerId("0" * 16, f"k{key}"), 1, (), None, rng, number)
        subject = FrequencyCapKey(REPEATS, asked.learner)
        capped = combined(asked, frequency_caps.view_of(subject, had[key], asked, whole))
        request = combined(capped, quotas.view_of(process, capped))
        selection = await POLICIES[policy].choose(dependencies, request)  # type: ignore[arg-type]
        (chosen,) = selection.hits.rows.tolist()
        closed = process.known.closed().quotas  # as the row names them
        assert await process.charge(whole, [chosen]) is not None
        assert selection.propensities is not None
        rules = [quota.rule for quota in closed.values()]
        filters: list[Any] = [rule.filter for rule in rules if rule.filter is not None]
        arms = [rule.arm for rule in rules if rule.arm is not None]
        barred = Barred(filters, [*arms, *over_cap(REPEATS, had[key])])
        is_out = [
            any(quota.id in closed for quota in quotas_of_arm)
            for quotas_of_arm in process.known.members.quotas_of(whole, range(ARMS))
        ]
        took_part = [arm for arm in range(ARMS) if not is_out[arm] and not had[key][f"a{arm}"]]
        p = probabilities(policy, population.estimates[took_part], **evaluated)
        worth += float(p @ population.means[took_part]) / DECISIONS
        had[key][f"a{chosen}"] += 1
        value = float(rng.random() < population.means[chosen])
        arm = LoggedArm(f"a{chosen}", 1, 0.0, selection.propensities[0], pinned=False)
        rewards = [reward_of(value, arm.id, time=number)]
        rows.append(row(arms=[arm], key=f"k{key}", time=number, rewards=rewards, barred=barred))
    return rows, worth


async def estimates(population: Population, policy: str, rows: list[Row]) -> dict[str, Any]:
    async def known(*_: object) -> Any:
        return population.posterior

    evaluator = Evaluator(
        bandit(population, policy, **SETTINGS[policy][1]), HeldSource(), known, ESTIMATOR_NAMES
    )
    await evaluator.add(rows)
    assert not evaluator.left_out
    return {name: evaluator.state.estimates(name).whole for name in ESTIMATOR_NAMES}


@dataclass
class Found:
    """In how many logs the interval of an estimator held, and how far off each value was."""

    held: int = 0
    off: list[float] = field(default_factory=list)

    def add(self, estimate: Any, worth: float) -> None:
        low, high = estimate.interval
        self.held += low <= worth <= high
        self.off.append(estimate.value - worth)

    @property
    def is_right(self) -> bool:
        return self.held >= LEAST_COVERED * len(self.off) and abs(np.mean(self.off)) <= MOST_OFF


@pytest.mark.parametrize("policy", SETTINGS)
async def test_intervals_hold_with_quotas_a_pace_and_repeats(policy: str):
    population, narrowed = made(), list[float]()
    found, ignoring = ({name: Found() for name in ESTIMATOR_NAMES} for _ in range(2))
    for seed in range(LOGS):
        rows, worth = await log_of(population, policy, seed)
        narrowed.append(float(np.mean([bool(each.barred and each.barred.filters) for each in rows])))
        for name, estimate in (await estimates(population, policy, rows)).items():
            found[name].add(estimate, worth)
        if seed < IGNORING:
            ignored = [msgspec.structs.replace(each, barred=NOTHING_BARRED) for each in rows]
            for name, estimate in (await estimates(population, policy, ignored)).items():
                ignoring[name].add(estimate, worth)
    print(policy, np.mean(narrowed), *((name, each.held, np.mean(each.off)) for name, each in found.items()))
    assert 0.3 < np.mean(narrowed) < 0.95
    assert all(each.is_right for each in found.values())
    assert not ignoring["ips"].is_right
