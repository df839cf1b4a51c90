"""The decision log against a model of it: whatever happens, in any order, it holds what the model holds."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import pytest

from app.bandits.bandit import Bandit
from app.bandits.settings import LogRule, RewardRule
from app.decision_log.rows import Row
from app.learning.reward_entries import Reward
from app.platform.metrics import Metrics
from app.serving.choice import Choice
from headless_service import HeadlessService
from workers.housekeeping import Housekeeping
from workers.log_retention import LogRetention

pytestmark = pytest.mark.anyio

DEFAULT = -1.0
RULE = LogRule(keep_s=86_400.0)
WAITS = RewardRule(wait_s=3_600.0, default=DEFAULT)
KEYS = ("ann", "bob", "cid")

Came = tuple[str, float, bool]  # arm, value, default


@dataclass
class Made:
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


@dataclass
class Model:
    """What the log has to hold: the rewards of each decision, by its token."""

    made: list[Made] = field(default_factory=list)
    events: dict[tuple[str, str], Made] = field(default_factory=dict)
    rows: dict[str, list[Came]] = field(default_factory=dict)
    on_the_way: list[Made] = field(default_factory=list)
    kept_from: dict[int, int] = field(default_factory=dict)  # by partition

    def keep(self, made: Made) -> bool:
        """Write the row unless it is there; whether it is there now."""
        if made.forgotten or made.time < self.kept_from.get(made.partition, 0):
            return False
        self.rows.setdefault(made.choice.decision, [])
        return True

    def write_all(self) -> None:
        for made in self.on_the_way:
            self.keep(made)
        self.on_the_way.clear()


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
        made = self.model.events.get((key, event)) if event else None
        if made is not None:  # the same request comes again
            k, deferred = len(made.choice.arms), made.deferred
        choice = await self.service.choose(self.bandit, key, k=k, event_id=event, activate=not deferred)
        if made is None:
            found = await self.time_of(choice)
            made = Made(choice, key, self.partition(key), found, deferred, is_active=not deferred)
            made.waits = self.waits and not deferred
            self.model.made.append(made)
            if event:
                self.model.events[key, event] = made
            if made.waits:
                self.model.keep(made)
        assert choice == made.choice
        if not self.waits and not made.deferred:
            self.model.on_the_way.append(made)

    async def time_of(self, choice: Choice) -> int:
        return self.service.parts.signer.verify(choice.decision, now_ms=0).issued_ms

    async def reward(self, n: int, place: int, *, twice: bool) -> None:
        if not self.model.made:
            return
        made = self.model.made[n % len(self.model.made)]
        arm = made.choice.arms[place % len(made.choice.arms)].id
        value = float(n)
        receipt = await self.service.parts.rewards.reward(
            [Reward(made.choice.decision, value, arm)] * (1 + twice)
        )
        if made.forgotten or not made.is_active:
            assert len(receipt.rejected) == 1 + twice
            return
        is_new = arm not in made.rewarded
        assert (receipt.accepted, receipt.duplicate) == (is_new, 1 + twice - is_new)
        if is_new:
            made.rewarded.add(arm)
            if self.model.keep(made):
                self.model.rows[made.choice.decision].append((arm, value, False))

    async def activate(self, n: int) -> None:
        if not self.model.made:
            return
        made = self.model.made[n % len(self.model.made)]
        await self.service.parts.decisions.activate([made.choice.decision])
        if made.deferred and not made.is_active and not made.forgotten:
            made.is_active, made.waits = True, self.waits
            self.model.keep(made)

    async def time_passes(self) -> None:
        """Every decision that waits gets its defaults."""
        housekeeping = Housekeeping(
            self.service.store, self.service.parts.forgetting, Metrics(), wake=lambda partition: None
        )  # type: ignore[arg-type]
        for key in KEYS:
            await housekeeping.sweep(self.partition(key), time.time_ns() // 1_000_000 + 7_200_000)
        for made in self.model.made:
            if made.waits:
                made.waits = False
                rows = self.model.rows.get(made.choice.decision)
                missing = [arm.id for arm in made.choice.arms if arm.id not in made.rewarded]
                if rows is not None and not made.forgotten:
                    rows += [(arm, DEFAULT, True) for arm in missing]

    async def forget(self, key: str) -> None:
        await self.service.parts.forgetting.forget(self.bandit.learner_for(key))
        for made in self.model.made:
            if made.key == key:
                made.forgotten, made.waits = True, False
                self.model.rows.pop(made.choice.decision, None)
        self.model.events = {at: made for at, made in self.model.events.items() if at[0] != key}

    async def retire(self, n: int) -> None:
        """Rows are dropped that are as old as the n-th decision, or older."""
        if not self.model.made:
            return
        last = self.model.made[n % len(self.model.made)].time
        retention = LogRetention(self.service.store, Metrics(), most_bytes=2**40)  # type: ignore[arg-type]
        await retention.sweep(last + 1 + RULE.keep_ms)
        for made in self.model.made:
            if made.time <= last and self.model.rows.pop(made.choice.decision, None) is not None:
                self.model.kept_from[made.partition] = max(
                    self.model.kept_from.get(made.partition, 0), last + 1
                )

    async def crash(self) -> None:
        """What is in memory is lost."""
        self.service.parts.rows._rows.clear()  # private: a crash loses what is not written yet
        self.model.on_the_way.clear()

    async def compare(self) -> None:
        await self.service.parts.rows.flush()
        self.model.write_all()
        log = self.service.parts.decision_log
        found: list[Row] = []
        async for page in log.pages(self.bandit, from_ms=None, to_ms=None):
            found += page
        rewards = {
            row.decision: [(reward.arm, reward.value, reward.default) for reward in row.rewards]
            for row in found
        }
        assert rewards == self.model.rows
        assert len(found) == len(rewards), "a row is there twice"
        assert [row.time for row in found] == sorted(row.time for row in found)
        for made in self.model.made:
            one = await log.find(self.bandit, made.choice.decision)
            assert (one is not None) == (made.choice.decision in rewards)
            if one is not None:
                assert one.row in found
                assert (one.row.key, one.row.time) == (made.key, made.time)
                assert [arm.id for arm in one.row.arms] == [arm.id for arm in made.choice.arms]


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
        assert len(play.model.made) > 10, f"seed {seed}"
        await service.parts.bandits.delete(bandit.name)
        await service.store.side_data.erase_bandit(bandit.uid)
        assert (await service.store.usage.read())["log"] == 0
