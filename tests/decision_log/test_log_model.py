"""The decision log against a model of it: whatever happens, in any order, it holds what the model holds."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import pytest

from app.bandits.bandit import Bandit
from app.bandits.settings import LogRule, RewardRule
from app.decision_log.rows import Row
from app.platform.metrics import Metrics
from app.rewards.reward_entries import Reward
from app.serving.choice import Choice
from headless_service import HeadlessService
from workers.housekeeping import Housekeeping
from workers.log_retention import LogRetention

pytestmark = pytest.mark.anyio

DEFAULT = -1.0
RULE = LogRule(keep_s=86_400.0)
WAITS = RewardRule(wait_s=3_600.0, default=DEFAULT)
KEYS = ("ann", "bob", "cid")

LoggedReward = tuple[str, float, bool]  # arm, value, default


@dataclass
class Decision:
    """A decision, as the caller knows it."""

    choice: Choice
    key: str
    partition: int
    time: int
    deferred: bool
    is_active: bool
    forgotten: bool = False
    waits: bool = False
    rewarded: set[str] = field(default_factory=set)

    @property
    def token(self) -> str:
        return self.choice.decision


@dataclass
class Model:
    """What the log has to hold: the rewards of each decision, by its token."""

    decisions: list[Decision] = field(default_factory=list)
    events: dict[tuple[str, str], Decision] = field(default_factory=dict)
    rows: dict[str, list[LoggedReward]] = field(default_factory=dict)
    unwritten: list[Decision] = field(default_factory=list)
    kept_from: dict[int, int] = field(default_factory=dict)  # by partition

    def keep(self, decision: Decision) -> bool:
        """Write the row unless it is there; whether it is there now."""
        if decision.forgotten or decision.time < self.kept_from.get(decision.partition, 0):
            return False
        self.rows.setdefault(decision.token, [])
        return True

    def write_all(self) -> None:
        for decision in self.unwritten:
            self.keep(decision)
        self.unwritten.clear()


@dataclass
class Play:
    """The service and the model, which go through the same steps."""

    service: HeadlessService
    bandit: Bandit
    waits: bool
    model: Model = field(default_factory=Model)

    def partition(self, key: str) -> int:
        return self.bandit.learner_for(key).partition(self.service.store.partitions)

    async def choose(self, key: str, k: int, event: str | None, *, deferred: bool) -> None:
        decision = self.model.events.get((key, event)) if event else None
        if decision is not None:  # the same request comes again
            k, deferred = len(decision.choice.arms), decision.deferred
        choice = await self.service.choose(self.bandit, key, k=k, event_id=event, activate=not deferred)
        if decision is None:
            time_ms = await self.time_of(choice)
            decision = Decision(choice, key, self.partition(key), time_ms, deferred, is_active=not deferred)
            decision.waits = self.waits and not deferred
            self.model.decisions.append(decision)
            if event:
                self.model.events[key, event] = decision
            if decision.waits:
                self.model.keep(decision)
        assert choice == decision.choice
        if not self.waits and not decision.deferred:
            self.model.unwritten.append(decision)

    async def time_of(self, choice: Choice) -> int:
        return self.service.parts.signer.verify(choice.decision, now_ms=0).issued_ms

    async def reward(self, n: int, place: int, *, twice: bool) -> None:
        if not self.model.decisions:
            return
        decision = self.model.decisions[n % len(self.model.decisions)]
        arm = decision.choice.arms[place % len(decision.choice.arms)].id
        value = float(n)
        receipt = await self.service.parts.rewards.reward([Reward(decision.token, value, arm)] * (1 + twice))
        if decision.forgotten or not decision.is_active:
            assert len(receipt.rejected) == 1 + twice
            return
        is_new = arm not in decision.rewarded
        assert (receipt.accepted, receipt.duplicate) == (is_new, 1 + twice - is_new)
        if is_new:
            decision.rewarded.add(arm)
            if self.model.keep(decision):
                self.model.rows[decision.token].append((arm, value, False))

    async def activate(self, n: int) -> None:
        if not self.model.decisions:
            return
        decision = self.model.decisions[n % len(self.model.decisions)]
        await self.service.parts.decisions.activate([decision.token])
        if decision.deferred and not decision.is_active and not decision.forgotten:
            decision.is_active, decision.waits = True, self.waits
            self.model.keep(decision)

    async def time_passes(self) -> None:
        """Every decision that waits gets its defaults."""
        housekeeping = Housekeeping(
            self.service.store, self.service.parts.erasure, Metrics(), wake=lambda partition: None
        )  # type: ignore[arg-type]
        for key in KEYS:
            await housekeeping.sweep(self.partition(key), time.time_ns() // 1_000_000 + 7_200_000)
        for decision in self.model.decisions:
            if decision.waits:
                decision.waits = False
                rows = self.model.rows.get(decision.token)
                missing = [arm.id for arm in decision.choice.arms if arm.id not in decision.rewarded]
                if rows is not None and not decision.forgotten:
                    rows += [(arm, DEFAULT, True) for arm in missing]

    async def forget(self, key: str) -> None:
        await self.service.parts.erasure.forget(self.bandit.learner_for(key))
        for decision in self.model.decisions:
            if decision.key == key:
                decision.forgotten, decision.waits = True, False
                self.model.rows.pop(decision.token, None)
        self.model.events = {at: decision for at, decision in self.model.events.items() if at[0] != key}

    async def retire(self, n: int) -> None:
        """Rows are dropped that are as old as the n-th decision, or older."""
        if not self.model.decisions:
            return
        last = self.model.decisions[n % len(self.model.decisions)].time
        retention = LogRetention(self.service.store, Metrics(), most_bytes=2**40)  # type: ignore[arg-type]
        await retention.sweep(last + 1 + RULE.keep_ms)
        for decision in self.model.decisions:
            if decision.time <= last and self.model.rows.pop(decision.token, None) is not None:
                self.model.kept_from[decision.partition] = max(
                    self.model.kept_from.get(decision.partition, 0), last + 1
                )

    async def crash(self) -> None:
        """What is in memory is lost."""
        self.service.parts.rows._rows.clear()  # private: a crash loses what is not written yet
        self.model.unwritten.clear()

    async def compare(self) -> None:
        """The log has the rows of the model, each once, in their order, and each is found by its token."""
        await self.service.parts.rows.flush()
        self.model.write_all()
        log, rows = self.service.parts.decision_log, list[Row]()
        async for page in log.pages(self.bandit, from_ms=None, to_ms=None):
            rows += page
        rewards = {row.decision: [(r.arm, r.value, r.default) for r in row.rewards] for row in rows}
        assert rewards == self.model.rows
        assert len(rows) == len(rewards), "a row is there twice"
        assert [row.time for row in rows] == sorted(row.time for row in rows)
        for decision in self.model.decisions:
            logged = await log.find(self.bandit, decision.token)
            assert (logged is not None) == (decision.token in rewards)
            if logged is not None:
                assert logged.row in rows
                assert (logged.row.key, logged.row.time) == (decision.key, decision.time)
                assert [arm.id for arm in logged.row.arms] == [arm.id for arm in decision.choice.arms]


STEPS = {  # how often each comes, and what it is told
    "choose": (12, lambda draw: (draw.choice(KEYS), draw.randint(1, 3), draw.choice([None, None, "e", "f"]))),
    "reward": (12, lambda draw: (draw.randrange(50), draw.randrange(3))),
    "activate": (4, lambda draw: (draw.randrange(50),)),
    "time_passes": (1, lambda _: ()),
    "forget": (1, lambda draw: (draw.choice(KEYS),)),
    "retire": (1, lambda draw: (draw.randrange(50),)),
    "crash": (1, lambda _: ()),
    "compare": (1, lambda _: ()),
}
FLAGS = {"choose": "deferred", "reward": "twice"}


@pytest.mark.parametrize("waits", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_the_log_holds_what_the_model_holds(service: HeadlessService, *, waits: bool):
    await service.quiet()  # rows are written, and time passes, when the test says so
    for seed in range(12):
        draw = random.Random(seed)
        reward = WAITS if waits else RewardRule()
        bandit = await service.bandit(f"b{seed}", log=RULE, reward=reward)
        play = Play(service, bandit, waits)
        names, weights = list(STEPS), [often for often, _ in STEPS.values()]
        for name in draw.choices(names, weights, k=60):
            flags = {FLAGS[name]: draw.random() < 0.3} if name in FLAGS else {}
            await getattr(play, name)(*STEPS[name][1](draw), **flags)
        await play.compare()
        assert len(play.model.decisions) > 10, f"seed {seed}"
        await service.parts.bandits.delete(bandit.name)
        await service.store.side_data.erase_bandit(bandit.uid)
        for partition in range(service.store.partitions):
            assert await service.store.rows.sizes(partition, bandit.uid, pieces=1) == []
