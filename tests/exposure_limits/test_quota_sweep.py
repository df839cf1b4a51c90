"""Quotas through everything that happens to them, beside thirty lines of plain Python.

Several processes over one store choose lists of arms, defer and activate them, and give some of them back.
Quotas of arms, of values and of tags, some with an even pace, are made, changed and deleted, and arms change
their fields. Processes are killed, replies are lost, the store is away or killed, and clocks jump. Never is
more shown than there is; and in the end no less, but for what was under way when a reply was lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.exposure_limits.bandit_quotas import BanditQuotas, QuotaCharge
from app.exposure_limits.known_quotas import KnownQuotas
from app.exposure_limits.quotas import Quotas
from app.exposure_limits.rules import QuotaRule
from app.filters.filter import parse
from app.indexes.live import IndexOptions, LiveIndex
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.storage.store import Store
from lossy_store import LossyStore

pytestmark = pytest.mark.anyio

UID, ARMS, PROCESSES, HOUR_S, DAY_S = "0123456789abcdef", 30, 3, 3_600, 86_400
WEIGHTS = {
    "show": 45, "sync": 15, "give_back": 4, "defer": 6, "activate": 6, "put": 7, "delete": 2,
    "describe_again": 5, "lose": 4, "refuse": 3, "clock": 3, "kill": 2, "store_dies": 2,
}  # fmt: skip


@dataclass
class Oracle:
    """How often arms may be shown: of each quota ``most`` in a window, counted when they are shown."""

    arms: dict[str, tuple[list[str], dict[str, Any]]]
    rules: dict[str, QuotaRule] = field(default_factory=dict)
    most: Counter[str] = field(default_factory=Counter)
    shown: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def put(self, quota_id: str, rule: QuotaRule) -> None:
        self.rules[quota_id] = rule
        # What was shown before it is lowered counts.
        self.most[quota_id] = max(rule.most, *self.shown[quota_id].values(), 0)

    def delete(self, quota_id: str) -> None:
        for known in (self.rules, self.most, self.shown):
            known.pop(quota_id, None)

    def counting(self, arm: str) -> list[str]:
        return [
            quota_id
            for quota_id, rule in self.rules.items()
            if rule.arm == arm or (rule.filter is not None and parse(rule.filter).matches(*self.arms[arm]))
        ]

    def show(self, arms: Sequence[str], start_ms: Mapping[str, int]) -> None:
        """``start_ms``: of the windows in which they were counted."""
        for quota_id in (quota_id for arm in arms for quota_id in self.counting(arm)):
            self.shown[quota_id][start_ms[quota_id]] += 1
            assert max(self.shown[quota_id].values()) <= self.most[quota_id], quota_id


class Process:
    """The quotas of one process. Its clock is ``ahead_s`` of the true one."""

    def __init__(self, store: LossyStore) -> None:
        self.ahead_s = 0.0
        known = KnownQuotas(lambda: time.monotonic() + self.ahead_s)
        self.quotas = Quotas(store, Metrics())  # type: ignore[arg-type]
        self.own = BanditQuotas(store.quotas, UID, known)

    async def choose(
        self, index: LiveIndex, draw: random.Random, k: int, *, deferred: bool
    ) -> tuple[list[str], QuotaCharge]:
        """A list of arms, and what was charged: nothing if it is deferred. Empty where none is eligible."""
        for _ in range(20):
            snapshot = index.snapshot()
            closed, few = self.own.known.closed(), self.own.known.nearly_closed(k)
            eligible = (await closed.eligible(snapshot)).eligible().tolist()
            pins = [(row, row) for row in draw.sample(eligible, len(eligible))]
            chosen = closed.eligible_pins(pins, snapshot, few)[:k]
            charge = () if deferred or not chosen else await self.own.charge(snapshot, chosen)
            if charge is not None:
                return [*map(snapshot.id_of, chosen)], charge
        return [], ()


@dataclass
class Sweep:
    """``kill_store``, ``jump_to``: of a store of its own that may be killed, and whose clock jumps."""

    seed: int
    store: LossyStore
    kill_store: Callable[[], None] | None = None
    jump_to: Callable[[int], Awaitable[None]] | None = None
    index: LiveIndex = field(default_factory=lambda: LiveIndex(2, IndexOptions(kind="exact")))
    waiting: list[list[str]] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)  # of each quota, since it was made
    changes: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        # What an even pace holds back is a matter of time: so the steps are drawn by themselves.
        self.draw, self.plan = random.Random(f"{self.seed}/arms"), random.Random(f"{self.seed}/steps")
        self.oracle = Oracle({f"a{number}": self.fields() for number in range(ARMS)})
        self.index.upsert([*self.oracle.arms], np.ones((ARMS, 2)), range(ARMS))
        self.describe([*self.oracle.arms])
        self.processes = [Process(self.store) for _ in range(PROCESSES)]
        self.bandit: Any = SimpleNamespace(
            uid=UID,
            record=SimpleNamespace(signals=None),
            catalogue=SimpleNamespace(index=self.index, need_arms=lambda what: None),
        )

    def fields(self) -> tuple[list[str], dict[str, Any]]:
        tags = [tag for tag in ("new", "sale") if self.draw.random() < 0.3]
        return tags, {"campaign": self.draw.randrange(5), "price": self.draw.randrange(8)}

    def describe(self, arms: Sequence[str]) -> None:
        self.index.describe(arms, [self.oracle.arms[arm] for arm in arms])

    def rule(self) -> QuotaRule:
        number, counted = self.draw.randrange(5), self.draw.random()
        pace = "even" if self.draw.random() < 0.2 else "none"
        terms: dict[str, Any] = {"per_s": HOUR_S if self.jump_to else DAY_S, "pace": pace}
        if counted < 0.3:
            return QuotaRule(self.draw.randrange(1, 40), arm=f"a{self.draw.randrange(ARMS)}", **terms)
        shapes = [
            {"campaign": number},
            {"price": {"$in": [number]}},
            {"tags": self.draw.choice(["new", "sale"])},
        ]
        return QuotaRule(self.draw.randrange(5, 150), self.draw.choice(shapes), **terms)

    async def step(self) -> None:
        what = self.plan.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        self.done[what] += 1
        try:
            await getattr(self, what)(self.plan.choice(self.processes))
        except Unavailable:
            self.done["unavailable"] += 1

    async def show(self, process: Process) -> None:
        k = self.draw.choice([1, 1, 3, 8])
        with self.losing():
            self.note(*await process.choose(self.index, self.draw, k, deferred=False))

    @contextmanager
    def losing(self) -> Iterator[None]:
        """A reply that is lost, also by a kill of the store, may have counted anything of a choice."""
        try:
            yield
        except Unavailable:
            self.lost.update(dict.fromkeys(self.oracle.rules, 8))
            raise

    def note(self, arms: Sequence[str], charge: QuotaCharge) -> None:
        """Arms were shown, and the process has counted them."""
        self.oracle.show(arms, {each.quota: int(each.start) for each in charge})

    async def give_back(self, process: Process) -> None:
        """Of a choice that nobody saw nothing counts."""
        snapshot = self.index.snapshot()
        rows = self.draw.sample(snapshot.table.live_rows.tolist(), 2)
        with self.losing():
            if charge := await process.own.charge(snapshot, rows):
                answered = len(self.store.lose), self.store.refuse
                await process.own.refund(charge)
                if answered != (len(self.store.lose), set()):  # then it may count
                    self.lost.update({each.quota: 2 for each in charge})

    async def defer(self, process: Process) -> None:
        arms, _ = await process.choose(self.index, self.draw, 3, deferred=True)
        self.waiting += [arms] if arms else []

    async def activate(self, process: Process) -> None:
        """All of its arms count for the quotas of now, or none."""
        if self.waiting:
            arms = self.waiting.pop(self.draw.randrange(len(self.waiting)))
            snapshot = self.index.snapshot()
            with self.losing():
                rows = snapshot.table.row_of_each(arms).tolist()
                charge = await process.own.charge(snapshot, rows, "activate")
                self.done["used_up" if charge is None else "activated"] += 1
                self.note(arms if charge is not None else [], charge or ())

    async def put(self, process: Process, quota_id: str | None = None, rule: QuotaRule | None = None) -> None:
        quota_id = quota_id or f"q{self.draw.randrange(10)}"
        before, rule = self.oracle.rules.get(quota_id), rule or self.rule()
        if before is not None:
            rule = QuotaRule(rule.most, before.filter, before.arm, before.per_s, pace=rule.pace)
        await self.undisturbed(process.quotas.put(self.bandit, quota_id, rule))
        self.oracle.put(quota_id, rule)

    async def delete(self, process: Process) -> None:
        if self.oracle.rules:
            quota_id = self.draw.choice([*self.oracle.rules])
            await self.undisturbed(process.quotas.delete(self.bandit, quota_id))
            self.oracle.delete(quota_id)
            del self.lost[quota_id]

    async def undisturbed(self, change: Awaitable[object]) -> None:
        """What others show before they know of a quota is not limited: so they hear of it at once."""
        self.store.lose.clear()
        self.store.refuse.clear()
        await change
        self.changes += 1
        for process in self.processes:
            await process.own.poll()

    async def describe_again(self, _: Process) -> None:
        arms = self.draw.sample([*self.oracle.arms], 4)
        self.oracle.arms |= {arm: self.fields() for arm in arms}
        self.describe(arms)

    async def sync(self, process: Process) -> None:
        await process.own.poll()

    async def lose(self, _: Process) -> None:
        self.store.lose.append("quotas.count")

    async def refuse(self, _: Process) -> None:
        self.store.refuse = set() if self.store.refuse else {"quotas.count"}

    async def clock(self, process: Process) -> None:
        process.ahead_s = self.draw.choice([0.0, DAY_S, 3.0, 1.0])
        if self.jump_to is not None:
            await self.jump_to(self.draw.choice([0, 0, HOUR_S // 2, HOUR_S, -HOUR_S, -DAY_S]))

    async def kill(self, process: Process) -> None:
        """Another one is started in its place."""
        self.store.refuse.clear()
        self.store.lose.clear()
        self.processes[self.processes.index(process)] = another = Process(self.store)
        await another.own.poll()

    async def store_dies(self, _: Process) -> None:
        if self.kill_store is not None:
            await asyncio.to_thread(self.kill_store)

    async def demand(self) -> None:
        """Every process asks for everything. An even pace would take its window."""
        await self.undisturbed(asyncio.sleep(0))
        for quota_id in [*self.oracle.rules]:
            rule = self.oracle.rules[quota_id]
            await self.put(self.processes[0], quota_id, QuotaRule(rule.most))
        is_more = True
        while is_more:
            is_more = False
            for process in self.processes:
                process.ahead_s = 0.0
                await process.own.poll()
                for _ in range(10):
                    arms, charge = await process.choose(self.index, self.draw, 8, deferred=False)
                    self.note(arms, charge)
                    is_more |= bool(charge)

    async def check(self) -> None:
        """Of each arm with quotas one is used up, but for what was lost."""
        own, is_used = self.processes[0].own, dict[str, bool]()
        quotas = [*own.known.by_id.values()]
        for quota, window in zip(quotas, await own.windows(quotas), strict=True):
            shown = self.oracle.shown[quota.id][window.start_ms]
            assert shown <= window.shown <= shown + self.lost[quota.id]
            is_used[quota.id] = window.shown >= quota.rule.most
        for arm in self.oracle.arms:
            counting = self.oracle.counting(arm)
            assert not counting or any(is_used[quota_id] for quota_id in counting), (arm, counting)


async def play(sweep: Sweep, steps: int) -> None:
    for _ in range(steps):
        await sweep.step()
    if sweep.jump_to is not None:
        await sweep.jump_to(0)
    await sweep.demand()
    await sweep.check()
    assert min(sweep.done[what] for what in WEIGHTS) > 0
    assert sweep.done["activated"] + sweep.done["used_up"] > 0


@pytest.mark.parametrize("seed", range(2))
async def test_never_more_than_there_is_and_hardly_less(store: Store, seed: int):
    """Everything but what a store of its own takes: kills of it, jumps of its clock."""
    await play(Sweep(seed, LossyStore(store)), 300)
