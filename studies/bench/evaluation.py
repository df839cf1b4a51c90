"""`shortlist bench evaluation`: logged decisions a second, beside a plain loop; memory of long logs.

Notation
    K, d        arms, dimension
    loop        the same estimates by a numpy loop over decisions: scores of all arms, their softmax, a mean

Rows are made while they are read, by a policy that draws arms uniformly. Making them is not counted. The
target is softmax, with all three estimators, and the model is a learner that has learned something. Decisions
are weighed with what it knows now, as the loop does; and, which costs learning from all rewards, with what it
knew before (``before_per_s``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from app.bandits.bandit import Bandit, bandit_of
from app.bandits.settings import BanditRecord, RewardRule
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.decision_log.rows import LoggedArm, LoggedReward, Row
from app.indexes.live import IndexOptions, LiveIndex
from app.platform.command_line import table
from app.policies.registry import POLICIES
from app.records.encoding import ContextRule
from app.records.logged import LogPart
from app.records.records import CatalogueRecord
from app.rewards.tokens import Decision, TokenSigner
from shortlist.types import Matrix, Vector
from shortlist_client.progress import progress
from shortlist_evaluation.answers import evaluations_of
from shortlist_evaluation.evaluated import ESTIMATOR_NAMES
from shortlist_evaluation.evaluator import Evaluator
from shortlist_evaluation.past_learners import PastLearners
from shortlist_evaluation.sources import HeldSource
from studies.measurement import peak_mb, report

SEED = 1_717
DIM = 32
NUMBERS = 8  # of a context
TEMPERATURE = 0.2
LOOP_SHARE = 10  # one in ten decisions is enough to time the loop, which is slow
UID = "0" * 16


@dataclass(frozen=True, slots=True)
class Case:
    """``situations``: how many different contexts there are; 0: the bandit has none."""

    name: str
    arms: int
    k: int = 1
    situations: int = 0


CASES = (
    Case("no context", 3_000),
    Case("lists of 3", 3_000, k=3),
    Case("100 contexts", 3_000, situations=100),
    Case("each its own context", 3_000, situations=1_000_000),
    Case("a million arms", 1_000_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``lengths``: of the logs whose memory is measured. ``learned``: rewards that the learner has seen.
    ``page``: rows of a log that are read at once.
    """

    cases: Sequence[Case] = CASES
    decisions: int = 100_000
    rounds: int = 5
    lengths: Sequence[int] = (100_000, 1_000_000)
    learned: int = 2_000
    page: int = 500


WHOLE = Sizes()
QUICK = Sizes(cases=CASES[:4], decisions=20_000, rounds=3, lengths=(10_000, 100_000))


def run(quick: bool, sizes: Sizes | None = None) -> dict[str, Any]:
    """Print and return a row for each case, and for each length of a log."""
    sizes = sizes or (QUICK if quick else WHOLE)
    with threadpool_limits(1):  # as the service does
        memory = [
            _memory(length, sizes) for length in progress(sizes.lengths, "logs")
        ]  # before any large case
        rows = [_speed(case, sizes) for case in progress(sizes.cases, "cases")]
    found = report("evaluation", rows, seed=SEED)
    print("\nby how much the largest memory of the process grew while a log was evaluated")
    print(table(memory))
    return {**found, "memory": memory}


def _speed(case: Case, sizes: Sizes) -> dict[str, Any]:
    decisions = min(sizes.decisions, 20_000) if case.situations > sizes.decisions else sizes.decisions
    world = World(case, sizes)
    pages = list(world.pages(decisions))
    times, loops, before = [], [], []
    for _ in range(sizes.rounds):
        started = time.process_time()
        evaluator = asyncio.run(world.evaluate(pages))
        times.append((time.process_time() - started) / decisions)
        started = time.process_time()
        asyncio.run(world.evaluate_before(lambda: pages))
        before.append((time.process_time() - started) / decisions)
        few = pages[: max(1, len(pages) // (LOOP_SHARE * (1 + case.arms // 100_000)))]
        started = time.process_time()
        value = world.loop(few)
        loops.append((time.process_time() - started) / sum(map(len, few)))
    few_evaluator = asyncio.run(world.evaluate(few))
    ours = evaluations_of(few_evaluator, "now")[0].estimates
    taken, alone = median(times), median(loops)
    return {
        "case": case.name,
        "K": case.arms,
        "d": DIM,
        "k": case.k,
        "decisions": evaluator.decisions,
        "per_s": 1.0 / taken,
        "before_per_s": 1.0 / median(before),
        "loop_per_s": 1.0 / alone,
        "ratio": alone / taken,
        "differ": max(abs((ours[place].value or 0.0) - value[place]) for place in range(len(value))),
    }


def _memory(decisions: int, sizes: Sizes) -> dict[str, Any]:
    world = World(CASES[0], sizes)
    before = peak_mb()
    evaluator = asyncio.run(world.evaluate_before(lambda: world.pages(decisions)))
    return {"decisions": evaluator.decisions, "before_mb": before, "grown_mb": peak_mb() - before}


class World:
    """A catalogue, a bandit, a learner, and logs of any length."""

    def __init__(self, case: Case, sizes: Sizes) -> None:
        self.page = sizes.page
        rng = np.random.default_rng(SEED)
        self.case = case
        self.features: Matrix = rng.standard_normal((case.arms, DIM)) / np.sqrt(DIM)
        self.contexts = rng.standard_normal((case.situations, NUMBERS)).astype(np.float32)
        self.ids = [f"a{row}" for row in range(case.arms)]
        self.token = _token()
        self.bandit = _bandit(case, self.ids, self.features)
        self.source = HeldSource()
        self.known = asyncio.run(self._learned(sizes.learned))

    async def _learned(self, rewards: int) -> PastLearners:
        known = PastLearners(self.bandit, self.source)
        for page in self.pages(rewards, seed=1):
            await known.learn(page)
        await known.begin(0)
        return known

    def pages(self, decisions: int, seed: int = 2) -> Iterator[Sequence[Row]]:
        """A log of uniform draws."""
        rng = np.random.default_rng((SEED, seed))
        for start in range(0, decisions, self.page):
            yield [self._row(start + place, rng) for place in range(min(self.page, decisions - start))]

    def _row(self, number: int, rng: np.random.Generator) -> Row:
        case = self.case
        drawn = rng.integers(case.arms, size=case.k).tolist()
        while len(set(drawn)) < case.k:
            drawn = rng.integers(case.arms, size=case.k).tolist()
        arms = [
            LoggedArm(self.ids[arm], place + 1, 0.0, 1.0 / (case.arms - place), False)
            for place, arm in enumerate(drawn)
        ]
        rewards = [LoggedReward(self.ids[arm], float(rng.normal()), number, False) for arm in drawn]
        context = None
        if case.situations:
            context = self.contexts[number % case.situations].tolist()
        return Row(self.token, number, None, 1, 1, 1, "softmax", None, context, None, None, arms, rewards)

    async def evaluate(self, pages: Iterable[Sequence[Row]]) -> Evaluator:
        """With what is known now."""
        return await self._evaluated(self.known, pages)

    async def evaluate_before(self, pages: Callable[[], Iterable[Sequence[Row]]]) -> Evaluator:
        """With what was known before; the log is read twice."""
        past = PastLearners(self.bandit, self.source)
        await past.survey(_read(pages()))
        return await self._evaluated(past, pages())

    async def _evaluated(self, known: PastLearners, pages: Iterable[Sequence[Row]]) -> Evaluator:
        evaluator = Evaluator(self.bandit, self.source, known, ESTIMATOR_NAMES)
        for page in pages:
            await evaluator.add(page)
        return evaluator

    def loop(self, pages: Sequence[Sequence[Row]]) -> tuple[float, float, float]:
        """The value by each estimator, one decision after the other."""
        posterior = asyncio.run(self.known.posterior(None))
        places = {arm: row for row, arm in enumerate(self.ids)}
        earned, weights, doubly = [], [], []
        for row in (row for page in pages for row in page):
            context = None if row.context is None else np.array(row.context, np.float32)
            scores: Vector = self.features @ self.bandit.given(posterior, context).theta
            mass = np.exp((scores - scores.max()) / TEMPERATURE)
            rewards = {reward.arm: reward.value for reward in row.rewards}
            weight, parts = 1.0, []
            for arm in row.arms:
                before, place = weight, places[arm.id]
                expected = float(mass @ scores / mass.sum())
                weight *= mass[place] / mass.sum() / (arm.propensity or 1.0)
                mass[place] = 0.0
                reward = rewards[arm.id]
                parts.append((weight * reward, weight, before * expected + weight * (reward - scores[place])))
            columns = np.array(parts)
            earned.append(columns[:, 0])
            weights.append(columns[:, 1])
            doubly.append(columns[:, 2].sum())
        ips, mean = np.mean(earned, axis=0), np.mean(weights, axis=0)
        return float(ips.sum()), float((ips / mean).sum()), float(np.mean(doubly))


async def _read(pages: Iterable[Sequence[Row]]) -> AsyncIterator[Sequence[Row]]:
    for page in pages:
        yield page


def _token() -> str:
    """A token as a log has them: what the request asked for is read from it. The same one for all rows."""
    signer = TokenSigner()
    signer.use({1: bytes(32)}, current=1)
    part = LogPart("softmax", 1, 1, bytes(16), 1)
    decision = Decision(UID, "_global", UID, 1, 2, ["a1"], [1], known_entry=1, logged=part)
    return signer.sign(decision)


def _bandit(case: Case, ids: Sequence[str], features: Matrix) -> Bandit:
    options = IndexOptions(kind="exact")
    index = LiveIndex(DIM, options)
    for start in range(0, len(ids), 10_000):
        part = slice(start, start + 10_000)
        index.upsert(ids[part], features[part], range(len(ids))[part])
    record = BanditRecord(
        catalogue="bench",
        policy="softmax",
        scope="global",
        ridge=1.0,
        exploration=1.0,
        delta=0.05,
        horizon=20_000,
        shortlist=30,
        eta=None,
        reward=RewardRule(),
        temperature=TEMPERATURE,
    )
    if case.situations:
        record = _with_context(record)
    catalogue = Catalogue("bench", UID, CatalogueRecord(DIM, asdict(options)), index)
    return bandit_of("bench", version_to_bytes(UID, BanditVersion(record)), catalogue, POLICIES)


def _with_context(record: BanditRecord) -> BanditRecord:
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return BanditRecord(**{**fields, "context": ContextRule(dim=NUMBERS), "interactions": "all"})
