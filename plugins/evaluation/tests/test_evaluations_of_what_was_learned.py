"""Policies that learn from the log they are evaluated on: values are right on average, and intervals hold.

All logs of a case are simulated side by side. Arms are drawn with fixed propensities and bring 0 or 1; linear
learners, of all keys or of each, are fitted before each block to what came before; the policy is a softmax of
their estimates. Its true value in each block is known. ``test_the_service_finds_the_same`` ties this to what
the service does with rows.

A value may be 3 % off on average, beside three standard errors of the simulation (false alarm: .3 % for each
of the three estimators in each case). An interval must hold at least 93 times in 100: of one that holds 95
times, ``LOGS`` show less with a probability of 3 %, 1,500 with .02 %. Seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from app.bandits.bandit import bandit_of
from app.bandits.settings import BanditRecord, RewardRule
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.decision_log.rows import LoggedArm, Row
from app.indexes.live import IndexOptions, LiveIndex
from app.policies.registry import POLICIES
from app.records.records import CatalogueRecord
from logged_rows import reward_of, row
from shortlist.evaluation import blocks, off_policy
from shortlist.evaluation.logged import Logged
from shortlist_evaluation.evaluated import ESTIMATOR_NAMES
from shortlist_evaluation.evaluator import Evaluator
from shortlist_evaluation.past_learners import PastLearners
from shortlist_evaluation.sources import HeldSource

pytestmark = pytest.mark.rest

LOGS, LEAST_COVERED, MOST_OFF = 400, 0.93, 0.03
RIDGE = 1.0


@dataclass(frozen=True)
class Case:
    """``per``: decisions for each number that is learned. ``spread``: of the logarithms of propensities."""

    per: int
    keys: int = 1
    contexts: int = 0
    arms: int = 10
    dim: int = 5
    temperature: float = 0.1
    spread: float = 0.7
    alike: float | None = None  # the mean reward of all arms, one number each

    @property
    def situations(self) -> int:
        return max(self.contexts, 1)


@dataclass(frozen=True)
class Population:
    """``phi`` (situations, arms, D), ``means`` and ``propensities`` (keys, situations, arms)."""

    case: Case
    phi: np.ndarray
    means: np.ndarray
    propensities: np.ndarray

    @property
    def decisions(self) -> int:
        return self.case.per * self.phi.shape[2] * self.case.keys


def population(case: Case) -> Population:
    rng = np.random.default_rng(case.arms)
    shape = (case.keys, case.situations, case.arms)
    if case.alike is not None:
        uniform = np.full(shape, 1.0 / case.arms)
        return Population(case, np.eye(case.arms)[None], np.full(shape, case.alike), uniform)
    features = rng.normal(size=(case.arms, case.dim)) / np.sqrt(case.dim)
    phi = np.repeat(features[None], case.situations, axis=0)
    if case.contexts:
        contexts = rng.normal(size=(case.contexts, 2))
        joint = features[None, :, :, None] * contexts[:, None, None, :]
        phi = np.concatenate((phi, joint.reshape(case.contexts, case.arms, -1)), axis=2)
    theta = 0.2 * rng.normal(size=(case.keys, phi.shape[2]))
    means = np.clip(0.3 + np.einsum("sad,kd->ksa", phi, theta) + 0.05 * rng.normal(size=shape), 0.02, 0.95)
    drawn = np.exp(case.spread * rng.normal(size=shape))
    return Population(case, phi, means, drawn / drawn.sum(axis=2, keepdims=True))


@dataclass(frozen=True)
class Simulated:
    """What the estimators get of each log, (LOGS, decisions that are weighed), and the truth (LOGS,)."""

    keys: np.ndarray
    situations: np.ndarray
    arms: np.ndarray
    rewards: np.ndarray
    p: np.ndarray
    t: np.ndarray
    predicted: np.ndarray
    expected: np.ndarray
    least: np.ndarray
    most: np.ndarray
    truth: np.ndarray

    def states(self) -> Sequence[off_policy.OffPolicyState]:
        found = []
        start = off_policy.start(ESTIMATOR_NAMES, places=1, rewards=(0.0, 1.0))
        left_out = self.rewards.shape[1] - self.p.shape[1]
        for log in range(len(self.p)):
            model = (self.predicted, self.expected, self.least, self.most)
            columns = (self.p, self.t, self.rewards[:, left_out:], *model)
            found.append(off_policy.add(start, Logged(*(column[log, :, None] for column in columns))))
        return found


def simulated(made: Population, logs: int, seed: int, variant: str = "") -> Simulated:
    """``variant``: ``now``, learners that have learned the whole log; ``early``, each its own block."""
    case, n, rng = made.case, made.decisions, np.random.default_rng(seed)
    shape, cells = (logs, n), made.means.size
    keys, situations = rng.integers(case.keys, size=shape), rng.integers(case.situations, size=shape)
    tables = made.propensities.cumsum(axis=2)
    arms = (rng.random(shape)[:, :, None] > tables[keys, situations]).sum(axis=2).clip(max=case.arms - 1)
    rewards = (rng.random(shape) < made.means[keys, situations, arms]).astype(float)
    cell = (keys * case.situations + situations) * case.arms + arms
    borders = [*blocks.of(blocks.add(blocks.start(), np.arange(float(n)))).first.tolist(), n]
    counts, sums = np.zeros((logs, cells)), np.zeros((logs, cells))

    def learn(first: int, last: int) -> None:
        place = (cell[:, first:last] + cells * np.arange(logs)[:, None]).ravel()
        weights = rewards[:, first:last].ravel()
        counts[:] += np.bincount(place, minlength=logs * cells).reshape(logs, cells)
        sums[:] += np.bincount(place, weights, minlength=logs * cells).reshape(logs, cells)

    if variant == "now":
        learn(0, n)
    parts, truth, every = [], np.zeros(logs), np.arange(logs)[:, None]
    flat = made.phi.reshape(-1, made.phi.shape[2])
    outer = (flat[:, :, None] * flat[:, None, :]).reshape(len(flat), -1)
    first_block = 0 if variant == "now" else 1
    for block, (first, last) in enumerate(pairwise(borders)):
        if variant == "early":
            learn(first, last)
        if block >= first_block:
            dim = flat.shape[1]
            gram = (counts.reshape(-1, len(flat)) @ outer).reshape(-1, dim, dim) + RIDGE * np.eye(dim)
            moment = sums.reshape(-1, len(flat)) @ flat
            theta = np.linalg.solve(gram, moment[:, :, None])[:, :, 0]
            scores = (theta @ flat.T).reshape(logs, *made.means.shape)
            z = np.exp((scores - scores.max(axis=3, keepdims=True)) / case.temperature)
            policy = z / z.sum(axis=3, keepdims=True)
            value = (policy * made.means).sum(axis=3).mean(axis=(1, 2))
            truth += value * (last - first) / (n - borders[first_block])
            k, s, a = (column[:, first:last] for column in (keys, situations, arms))
            held = scores.clip(0.0, 1.0)
            expected = (policy * held).sum(axis=3)
            parts.append(
                (
                    made.propensities[k, s, a],
                    policy[every, k, s, a],
                    held[every, k, s, a],
                    expected[every, k, s],
                    held.min(axis=3)[every, k, s],
                    held.max(axis=3)[every, k, s],
                )
            )
        if variant == "":
            learn(first, last)
    columns = [np.concatenate(column, axis=1) for column in zip(*parts, strict=True)]
    return Simulated(keys, situations, arms, rewards, *columns, truth)


@dataclass(frozen=True)
class Found:
    """Of one estimator: how far it is off on average, and the standard error of that, by the truth."""

    off: float
    error: float
    covered: float
    better: float


def measured(logs: Simulated) -> dict[str, Found]:
    states, found = logs.states(), {}
    for name in ESTIMATOR_NAMES:
        each = [state.estimates(name).whole for state in states]
        values = np.array([estimate.value for estimate in each])
        bounds = np.array([estimate.interval for estimate in each])
        logged = np.array([state.logged().whole.value for state in states])
        apart = values - logs.truth
        found[name] = Found(
            apart.mean() / logs.truth.mean(),
            apart.std(ddof=1) / np.sqrt(len(apart)) / logs.truth.mean(),
            float(((bounds[:, 0] <= logs.truth) & (logs.truth <= bounds[:, 1])).mean()),
            float((bounds[:, 0] > logged).mean()),
        )
    return found


def is_right(found: dict[str, Found]) -> bool:
    off = max(abs(each.off) - 3.0 * each.error for each in found.values())
    return off <= MOST_OFF and min(each.covered for each in found.values()) >= LEAST_COVERED


QUICK = (Case(10), Case(50), Case(10, keys=4), Case(10, contexts=3), Case(20, keys=2, contexts=3))
KINDS = ({}, {"keys": 4}, {"contexts": 3}, {"keys": 4, "contexts": 3})
FULL = tuple(
    Case(per, **kind, spread=spread) for per in (10, 50, 200) for kind in KINDS for spread in (0.4, 1.2)
)
RARE = Case(125, arms=80, temperature=0.01, alike=0.004)


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_values_are_right_on_average_and_intervals_hold(case: Case):
    found = measured(simulated(population(case), LOGS, seed=1))
    assert is_right(found), found


def hardly_shown() -> Population:
    """A policy that draws all arms alike, on logs that show the best in three decisions of a thousand."""
    made = population(Case(13, contexts=3, temperature=1e9))
    p, means = np.full_like(made.propensities, 0.997 / 9), np.full_like(made.means, 0.3)
    p[:, :, 0], means[:, :, 0] = 0.003, 0.9
    return replace(made, propensities=p, means=means)


def test_intervals_hold_where_the_log_hardly_shows_what_pays(monkeypatch: pytest.MonkeyPatch):
    """In most of these logs of 195 decisions it is not there at all, and no weight that was seen is heavy."""
    found = measured(simulated(hardly_shown(), LOGS, seed=3))
    assert min(each.covered for each in found.values()) >= LEAST_COVERED
    monkeypatch.setattr(off_policy, "widened_by", lambda estimates_, low, high: estimates_)
    without = measured(simulated(hardly_shown(), LOGS, seed=3))
    assert max(each.covered for each in without.values()) < LEAST_COVERED - 0.05


@pytest.mark.slow
@pytest.mark.parametrize("case", [*FULL, RARE], ids=str)
def test_values_and_intervals_of_every_kind(case: Case):
    made = population(case)
    parts = [measured_part(made, seed) for seed in range(max(1, 1_500 * made.decisions // 1_500_000))]
    found = {name: joined([part[name] for part in parts]) for name in ESTIMATOR_NAMES}
    print(case, found)
    assert is_right(found), found
    assert case is RARE or max(each.error for each in found.values()) <= 0.01


def measured_part(made: Population, seed: int) -> dict[str, Found]:
    return measured(simulated(made, min(3_000, max(100, 1_500_000 // made.decisions)), seed))


def joined(parts: Sequence[Found]) -> Found:
    columns = {name: np.array([asdict(part)[name] for part in parts]) for name in asdict(parts[0])}
    means = {name: float(column.mean()) for name, column in columns.items()}
    return Found(**{**means, "error": float(np.sqrt((columns["error"] ** 2).sum()) / len(parts))})


@pytest.mark.anyio
async def test_the_service_finds_the_same():
    """One of the simulated logs, as rows."""
    case = Case(20, keys=3)
    made = population(case)
    logs = simulated(made, 2, seed=5)
    index = LiveIndex(case.dim, IndexOptions(kind="exact"))
    index.upsert([f"a{arm}" for arm in range(case.arms)], made.phi[0], range(case.arms))
    fixed = {"ridge": RIDGE, "exploration": 1.0, "delta": 0.05, "horizon": 100, "shortlist": 3, "eta": None}
    reward = RewardRule(min=0.0, max=1.0)
    record = BanditRecord("c", "softmax", "per_key", reward=reward, temperature=case.temperature, **fixed)
    catalogue = Catalogue("c", "0" * 16, CatalogueRecord(case.dim, {"kind": "exact"}), index)
    stored = version_to_bytes("0" * 16, BanditVersion(record))
    bandit, source = bandit_of("b", stored, catalogue, POLICIES), HeldSource()
    rows = [decision(made, logs, number) for number in range(made.decisions)]

    async def pages():
        for start in range(0, len(rows), 11):
            yield rows[start : start + 11]

    past = PastLearners(bandit, source)
    await past.survey(pages())
    evaluator = Evaluator(bandit, source, past, ESTIMATOR_NAMES)
    async for page in pages():
        await evaluator.add(page)
    wanted = logs.states()[1]
    for name in ESTIMATOR_NAMES:
        mine, theirs = evaluator.state.estimates(name).whole, wanted.estimates(name).whole
        assert mine.value == pytest.approx(theirs.value, rel=1e-9)
        assert mine.interval == pytest.approx(theirs.interval, rel=1e-9)
    assert evaluator.unweighed == made.decisions // 20


def decision(made: Population, logs: Simulated, number: int) -> Row:
    key, arm = logs.keys[1, number], logs.arms[1, number]
    shown = LoggedArm(f"a{arm}", 1, 0.0, float(made.propensities[key, 0, arm]), pinned=False)
    reward = reward_of(float(logs.rewards[1, number]), shown.id, time=number)
    return row(arms=[shown], key=f"k{key}", time=number, rewards=[reward])
