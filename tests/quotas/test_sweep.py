"""Quotas through everything that happens to them, beside thirty lines of plain Python.

Several processes over one store choose lists of arms, defer and activate them, and give some of them back.
Quotas of arms, of values and of filters, some with an even pace, are made, changed and deleted, and arms
change their fields. Processes are killed and stopped, replies are lost, the store is away or killed, and
clocks jump. Never is more shown than there is; and in the end hardly less, where it is asked for.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.filters.filter import parse
from app.indexes.live import IndexOptions, LiveIndex
from app.platform.errors import Unavailable
from app.platform.metrics import Metrics
from app.policies.limits import Limits
from app.quotas.ledger import QuotaLedger
from app.quotas.quotas import Quotas
from app.quotas.rules import QuotaRule
from app.storage import redis_keys as keys
from app.storage.store import Store
from lossy_store import LossyStore
from shortlist.types import NO_ROWS
from store_clients import connect

pytestmark = pytest.mark.anyio

UID, ARMS, PROCESSES, HOUR_S, DAY_S = "0123456789abcdef", 30, 3, 3_600, 86_400
WEIGHTS = {
    "show": 45, "sync": 15, "give_back": 4, "defer": 6, "activate": 6, "put": 7, "delete": 2,
    "describe_again": 5, "lose": 4, "refuse": 3, "clock": 3, "kill": 2, "stop": 2, "store_dies": 2,
}  # fmt: skip


@dataclass
class Oracle:
    """How often arms may be shown: of each quota ``most`` in a window, counted when they are shown."""

    arms: dict[str, dict[str, Any]]
    rules: dict[str, QuotaRule] = field(default_factory=dict)
    most: Counter[str] = field(default_factory=Counter)
    shown: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def put(self, quota_id: str, rule: QuotaRule) -> None:
        self.rules[quota_id] = rule
        # Shares that are held when it is lowered may still be spent.
        self.most[quota_id] = max(self.most[quota_id], rule.most)

    def delete(self, quota_id: str) -> None:
        for known in (self.rules, self.most, self.shown):
            known.pop(quota_id, None)

    def counting(self, arm: str) -> list[str]:
        return [
            quota_id
            for quota_id, rule in self.rules.items()
            if rule.arm == arm or (rule.filter is not None and parse(rule.filter).matches((), self.arms[arm]))
        ]

    def show(self, arms: Sequence[str], window_of: Callable[[str], int]) -> None:
        for quota_id in (quota_id for arm in arms for quota_id in self.counting(arm)):
            self.shown[quota_id][window_of(quota_id)] += 1
            assert max(self.shown[quota_id].values()) <= self.most[quota_id], quota_id


class Process:
    """The quotas of one process. Its clock is ``ahead_s`` of the true one."""

    def __init__(self, store: LossyStore) -> None:
        self.ahead_s = 0.0
        self.quotas = Quotas(store, Metrics(), clock=lambda: time.monotonic() + self.ahead_s)  # type: ignore[arg-type]

    @property
    def ledger(self) -> QuotaLedger | None:
        return self.quotas.ledgers.get(UID)

    async def choose(self, index: LiveIndex, draw: random.Random, k: int, *, deferred: bool) -> list[str]:
        """A list of arms, counted unless it is deferred; [] where none is eligible."""
        for _ in range(20):
            snapshot, ledger = index.snapshot(), self.ledger
            rows = np.array(draw.sample(snapshot.table.live_rows.tolist(), ARMS))
            few = None if ledger is None else ledger.few(k)
            if ledger is not None:
                out = np.flatnonzero(ledger.now().out).tolist()
                rows = rows[~(await ledger.members.counting(snapshot, out))[rows]]
            if few is not None:
                rows = rows[Limits([few], snapshot, NO_ROWS).take_allowed(rows, k)]
            chosen = rows[:k].tolist()
            if ledger is None or deferred or not chosen or await ledger.take(snapshot, chosen) is not None:
                return [*map(snapshot.id_of, chosen)]
        return []


@dataclass
class Sweep:
    """``kill_store``, ``jump_to``: of a store of its own that may be killed, and whose clock jumps."""

    seed: int
    store: LossyStore
    kill_store: Callable[[], None] | None = None
    jump_to: Callable[[int], Awaitable[None]] | None = None
    index: LiveIndex = field(default_factory=lambda: LiveIndex(2, IndexOptions(kind="exact")))
    waiting: list[list[str]] = field(default_factory=list)
    shown_by: Counter[tuple[str, str, int]] = field(default_factory=Counter)  # process, quota, window
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

    def fields(self) -> dict[str, Any]:
        return {"campaign": self.draw.randrange(5), "price": self.draw.randrange(8)}

    def describe(self, arms: Sequence[str]) -> None:
        self.index.describe(arms, [((), self.oracle.arms[arm]) for arm in arms])

    def rule(self) -> QuotaRule:
        number, counted = self.draw.randrange(5), self.draw.random()
        pace = "even" if self.draw.random() < 0.2 else "none"
        terms: dict[str, Any] = {"per_s": HOUR_S if self.jump_to else DAY_S, "pace": pace}
        if counted < 0.3:
            return QuotaRule(self.draw.randrange(1, 40), arm=f"a{self.draw.randrange(ARMS)}", **terms)
        shapes = [
            {"campaign": number},
            {"campaign": {"$in": [number, number + 1]}},
            {"price": {"$gte": number}, "campaign": {"$ne": number}},
            {"$or": [{"campaign": number}, {"price": {"$lt": 2}}]},
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
        self.note(
            process,
            await process.choose(self.index, self.draw, self.draw.choice([1, 1, 3, 8]), deferred=False),
        )

    def note(self, process: Process, arms: Sequence[str]) -> None:
        """Arms were shown, and the process has counted them."""
        ledger = process.ledger
        if ledger is not None:
            self.oracle.show(arms, lambda quota_id: ledger.by_id[quota_id].state.start_ms)
            for quota_id in (quota_id for arm in arms for quota_id in self.oracle.counting(arm)):
                window = ledger.by_id[quota_id].state.start_ms
                # private: the store names shares by processes
                self.shown_by[ledger._process, quota_id, window] += 1

    async def give_back(self, process: Process) -> None:
        """Of a choice that nobody saw nothing counts."""
        snapshot = self.index.snapshot()
        rows = self.draw.sample(snapshot.table.live_rows.tolist(), 2)
        if process.ledger is not None and (taken := await process.ledger.take(snapshot, rows)) is not None:
            process.ledger.give_back(taken)

    async def defer(self, process: Process) -> None:
        arms = await process.choose(self.index, self.draw, 3, deferred=True)
        self.waiting += [arms] if arms else []

    async def activate(self, process: Process) -> None:
        """All of its arms count for the quotas of now, or none."""
        if self.waiting:
            arms, ledger = self.waiting.pop(self.draw.randrange(len(self.waiting))), process.ledger
            snapshot = self.index.snapshot()
            rows = snapshot.table.row_of_each(arms).tolist()
            is_taken = ledger is None or await ledger.take(snapshot, rows) is not None
            self.done["activated" if is_taken else "used_up"] += 1
            self.note(process, arms if is_taken else [])

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
            for shown in [shown for shown in self.shown_by if shown[1] == quota_id]:
                del self.shown_by[shown]

    async def undisturbed(self, change: Awaitable[object]) -> None:
        """What others show before they know of a quota is not limited: so they hear of it at once."""
        self.store.lose.clear()
        self.store.refuse.clear()
        await change
        self.changes += 1
        for process in self.processes:
            await process.quotas.replace({UID: self.changes})

    async def describe_again(self, _: Process) -> None:
        arms = self.draw.sample([*self.oracle.arms], 4)
        self.oracle.arms |= {arm: self.fields() for arm in arms}
        self.describe(arms)

    async def sync(self, process: Process) -> None:
        if (ledger := process.ledger) is not None:
            await self.draw.choice([ledger.sync_with_store, ledger.sync_with_store, ledger.refill])()

    async def lose(self, _: Process) -> None:
        self.store.lose.append("quotas.share")

    async def refuse(self, _: Process) -> None:
        self.store.refuse = set() if self.store.refuse else {"quotas.share"}

    async def clock(self, process: Process) -> None:
        process.ahead_s = self.draw.choice([0.0, DAY_S, 3.0, 1.0])
        if self.jump_to is not None:
            await self.jump_to(self.draw.choice([0, 0, HOUR_S // 2, HOUR_S, -HOUR_S, -DAY_S]))

    async def kill(self, process: Process) -> None:
        """Another one is started in its place; what it held is lost until the window ends."""
        self.store.refuse.clear()
        self.store.lose.clear()
        self.processes[self.processes.index(process)] = another = Process(self.store)
        await another.quotas.replace({UID: self.changes})

    async def stop(self, process: Process) -> None:
        await process.quotas.stop()
        await self.kill(process)

    async def store_dies(self, _: Process) -> None:
        if self.kill_store is not None:
            await asyncio.to_thread(self.kill_store)

    async def demand(self) -> None:
        """Every process asks for everything, until of all quotas nothing was shown in fifteen rounds.

        Meanwhile what processes do not need goes back. An even pace would take its window.
        """
        await self.undisturbed(asyncio.sleep(0))
        for quota_id in [*self.oracle.rules]:
            rule = self.oracle.rules[quota_id]
            await self.put(self.processes[0], quota_id, QuotaRule(rule.most))
        rounds = 0
        while rounds < 15:
            before = self.shown_by.total()
            for process in self.processes:
                process.ahead_s = 0.0
                for _ in range(10):
                    await self.show(process)
                if process.ledger is not None:
                    await process.ledger.sync_with_store()
            rounds = rounds + 1 if self.shown_by.total() == before else 0

    async def check(self, client: Any) -> None:
        """Of each arm with quotas one is used up to nine tenths, but for what died with processes."""
        ledger = self.processes[0].ledger
        if ledger is None:
            return
        # private: the store names shares by processes
        alive = {process.ledger._process for process in self.processes if process.ledger is not None}
        is_used = {}
        for quota_id, rule in self.oracle.rules.items():
            start_ms, lost = ledger.by_id[quota_id].state.start_ms, 0
            for name, share in (await client.hgetall(keys.quota_shares(UID, quota_id))).items():
                if name.decode() not in alive:
                    granted = int(share.split()[1])
                    lost += granted - self.shown_by[name.decode(), quota_id, start_ms]
            shown = self.oracle.shown[quota_id][start_ms]
            assert lost >= 0
            is_used[quota_id] = shown >= 0.9 * (rule.most - lost)
        for arm in self.oracle.arms:
            counting = self.oracle.counting(arm)
            assert not counting or any(is_used[quota_id] for quota_id in counting), (arm, counting)


async def play(sweep: Sweep, client: Any, steps: int) -> None:
    for _ in range(steps):
        await sweep.step()
    if sweep.jump_to is not None:
        await sweep.jump_to(0)
    await sweep.demand()
    await sweep.check(client)
    assert min(sweep.done[what] for what in WEIGHTS) > 0
    assert sweep.done["activated"] + sweep.done["used_up"] > 0


@pytest.mark.parametrize("seed", range(2))
async def test_never_more_than_there_is_and_hardly_less(store: Store, store_url: str, seed: int):
    """Two hundred steps of everything but what a store of its own takes: kills of it, jumps of its clock."""
    client = connect(store_url)
    try:
        await play(Sweep(seed, LossyStore(store)), client, 200)
    finally:
        await client.aclose()
