"""Forgetting: by DELETE, after idle time, with the bandit. Nothing is left, and a key that returns is new."""

import asyncio
import re
import time

import msgspec
import pytest

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord, LogRule, RewardRule
from app.bandits.versions import BanditVersion
from app.platform.metrics import Metrics
from app.records.log_entries import WaitingDecision
from app.records.records import unpack
from app.rewards import erasure as module
from app.storage import redis_keys
from app.storage.store import Store
from app.storage.types import RewardWrite
from app.storage.types.decisions import LearnerId
from headless_service import HeadlessService
from store_clients import connect, traces
from waiting import wait_until
from workers.housekeeping import Housekeeping

pytestmark = pytest.mark.anyio

IDLE_S = 3_600.0
DAY_MS = 86_400_000
WAITS = RewardRule(wait_s=7_200.0, default=-1.0)
# What stays until it expires by itself, is refused as expired, or is pushed out by newer changes.
REFUSES = {"forgotten", "forgotten-until"}
STAYS = {"seen", "seen-until", "active", "changes", *REFUSES}


def later_ms() -> int:
    """After the idle time of every learner."""
    return time.time_ns() // 1_000_000 + DAY_MS


def housekeeping(service: HeadlessService) -> Housekeeping:
    return Housekeeping(service.store, service.parts.erasure, Metrics(), wake=service.parts.worker.wake)  # type: ignore[arg-type,union-attr]


async def expire(service: HeadlessService, learner: LearnerId) -> None:
    """All that a worker does after the idle time of the learner: it expires, is folded, and is erased."""
    partition = learner.partition(service.store.partitions)
    await housekeeping(service).sweep(partition, later_ms())

    async def folded() -> bool:
        return await service.store.rewards.backlog(partition) == 0

    await wait_until(folded, what="the learner is folded away")
    await housekeeping(service).sweep(partition, later_ms())
    assert not (await service.store.waiting.due(partition, 0, 10)).erase


async def live(service: HeadlessService, bandit: Bandit, key: str) -> None:
    """Leave every trace that a key can leave: see the table of ``rewards.erasure``."""
    choice = await service.choose(bandit, key, event_id="e")
    await service.choose(bandit, key)
    await service.parts.decisions.activate([(await service.choose(bandit, key, activate=False)).decision])
    await service.reward(choice.decision)
    await service.observe(bandit, "o1", "o2", key=key)


async def kept(service: HeadlessService, url: str, text: str) -> set[str]:
    """Kinds of keys of the store that name the text or have it among their members."""
    async with connect(url) as client:
        found = await traces(client, text)
    return {trace.split(": ")[0].split(":")[2] for trace in found if trace.startswith("{p:")}


@pytest.mark.rest
async def test_a_key_that_comes_back_keeps_what_came_since_whoever_erases_late(
    service: HeadlessService, monkeypatch: pytest.MonkeyPatch
):
    """Another process read the list of the forgotten before this one had erased everything."""
    await service.quiet()
    bandit = await service.bandit(reward=WAITS)
    learner, erasure = bandit.learner_for("ann"), service.parts.erasure
    partition, entries = learner.partition(service.store.partitions), list[str]()
    erase = erasure.erase

    async def noted(learner: LearnerId, entry_id: str) -> bool:
        entries.append(entry_id)
        return await erase(learner, entry_id)

    monkeypatch.setattr(erasure, "erase", noted)
    old = await service.choose(bandit, event_id="e")
    await erasure.forget(learner)
    new = await service.choose(bandit, event_id="e")
    assert new.decision != old.decision
    assert await erase(learner, entries[0])
    assert await service.choose(bandit, event_id="e") == new
    (waiting,) = (await service.store.waiting.due(partition, later_ms(), 10)).decisions
    assert unpack(waiting[1], WaitingDecision).known_entry == int(entries[0].partition("-")[2])
    await erasure.forget(learner)
    assert not (await service.store.waiting.due(partition, later_ms(), 10)).decisions
    assert (await service.choose(bandit, event_id="e")).decision != new.decision


@pytest.mark.rest
@pytest.mark.parametrize("way", ["deleted", "idle"])
async def test_nothing_is_kept_of_a_learner_but_what_expires(
    service: HeadlessService, store_url: str, way: str
):
    await service.quiet()
    bandit = await service.bandit(policy="sub_ts", idle_ttl_s=IDLE_S, reward=WAITS, log=LogRule())
    learner = bandit.learner_for("a-key-that-lived")
    await live(service, bandit, learner.name)
    before = await kept(service, store_url, learner.name)
    lives = {"states", "log", "decisions", "due", "event", "events", "idle", "rows", "row-times"}
    assert before >= lives | STAYS - REFUSES
    if way == "deleted":
        await service.parts.erasure.forget(learner)
    else:
        await expire(service, learner)
    # The newest entry of a log stays, for entries are numbered by it; the next one lets it go.
    assert await kept(service, store_url, learner.name) - {"log"} == STAYS
    partition = learner.partition(service.store.partitions)
    [entry] = await service.store.rewards.read(partition, "0-0", 10)
    assert entry.payload == module.FORGET


@pytest.mark.rest
async def test_dead_letters_go_with_their_learner(service: HeadlessService):
    bandit = await service.bandit()
    learner = bandit.learner_for("a-key-that-died")
    partition = learner.partition(service.store.partitions)
    await service.observe(bandit, "o1", key=learner.name)
    write = RewardWrite(learner, 2**42, b"broken", "broken", ttl_ms=60_000)
    await service.store.rewards.append(partition, [write])
    await service.observe(bandit, "o2", key=learner.name)
    assert [letter.entry.learner for letter in await service.store.rewards.dead_letters(partition)] == [
        learner
    ]
    await service.parts.erasure.forget(learner)
    assert await service.store.rewards.dead_letters(partition) == []


@pytest.mark.rest
async def test_erasing_a_bandit_is_repeated_until_it_is_done(service: HeadlessService, store_url: str):
    await service.quiet()
    bandit = await service.bandit("gone", policy="sub_ts")
    await live(service, bandit, "ann")
    service.store.lose.append("registry.delete_bandit")
    with pytest.raises(Exception, match="does not answer"):
        await service.parts.bandits.delete("gone")
    service.store.lose.append("side_data.erase_bandit")
    with pytest.raises(Exception, match="does not answer"):
        await housekeeping(service).finish_deletions()
    await housekeeping(service).finish_deletions()
    async with connect(store_url) as client:
        assert [trace for trace in await traces(client, bandit.uid) if ": " not in trace] == []


@pytest.mark.rest
async def test_what_a_process_made_from_a_learner_goes_when_another_process_forgets_it(
    service: HeadlessService,
):
    """Whoever first reads the change: here a call that waits for a reward of somebody else."""
    await service.catalogue("d", dim=2, arms=30)
    bandit = await service.bandit("e", "d", policy="sub_elim", exploration=0.5)
    await service.quiet()
    learner = bandit.learner_for("ann")
    await service.observe(bandit, "o1", "o2", "o3")
    await service.choose(bandit)
    states = service.parts.elimination.states
    assert states.peek(learner) is not None
    partition = learner.partition(service.store.partitions)
    watermark, newest = await service.store.learners.watermark(partition), "9" * 13 + "-99"
    await service.store.learners.apply(
        partition, expected=watermark, watermark=newest, states={learner: None}
    )
    await service.parts._remote.sync(partition)  # private: one poll, without waiting for the next
    assert states.peek(learner) is None


@pytest.mark.rest
def test_the_list_of_what_is_kept_is_that_of_the_keys_of_the_store():
    """Every kind of key of a partition that names a learner, a decision or a bandit, and no other."""
    named = set()
    for line in redis_keys.__doc__.splitlines():
        if found := re.match(r"    \{p:<n>\}:([a-z-]+)(\S*(?: \w+>\S*)*) +\w+ +(.*?)\s{2,}", line):
            kind, name, holds = found.groups()
            if re.search("bandit uid|learner|member|uid|b, l", name + holds):
                named.add(kind)
    rows = re.findall(r"^    .{41}  ([a-z, -]+?) {2,}", module.__doc__, re.MULTILINE)
    listed = {kind for row in rows for kind in row.split(", ")} - {"keys"}
    assert listed == named


async def change_idle(service: HeadlessService, idle_ttl_s: float | None) -> Bandit:
    def changed(uid: str, version: BanditVersion) -> BanditRecord:
        return msgspec.structs.replace(version.record, idle_ttl_s=idle_ttl_s)

    return await service.parts.bandits.change("b", changed)


@pytest.mark.parametrize(
    ("after_s", "lives_for_s"),
    [(None, None), (10 * IDLE_S, 10 * IDLE_S), (IDLE_S / 2, IDLE_S)],
    ids=["forever", "longer", "shorter"],
)
async def test_an_idle_learner_lives_as_the_bandit_says_by_then(
    service: HeadlessService, after_s: float | None, lives_for_s: float | None
):
    """A change counts as a sign of life; a time that was set before is not made shorter."""
    await service.quiet()
    bandit = await service.bandit(idle_ttl_s=IDLE_S)
    learner = bandit.learner_for("ann")
    partition = learner.partition(service.store.partitions)
    await service.observe(bandit, "o")
    now_ms = time.time_ns() // 1_000_000
    await change_idle(service, after_s)
    for at_s in (IDLE_S + 1, 5 * IDLE_S, 10 * IDLE_S + 60, 20 * IDLE_S):
        for _ in range(3):
            await housekeeping(service).sweep(partition, now_ms + round(1_000 * at_s))

        async def folded() -> bool:
            return await service.store.rewards.backlog(partition) == 0

        await wait_until(folded, what="what was forgotten is folded")
        lives = (await service.parts.learners.report(bandit, learner)).version == 1
        assert lives == (lives_for_s is None or at_s < lives_for_s), at_s


@pytest.mark.rest
async def test_a_reward_keeps_its_learner_for_the_idle_time(service: HeadlessService):
    await service.quiet()
    bandit = await service.bandit(idle_ttl_s=IDLE_S)
    learner = bandit.learner_for("ann")
    await service.observe(bandit, "o")
    partition, now_ms = learner.partition(service.store.partitions), time.time_ns() // 1_000_000
    assert not await housekeeping(service).sweep(partition, now_ms + round(500 * IDLE_S))
    assert await housekeeping(service).sweep(partition, now_ms + round(1_500 * IDLE_S))


@pytest.mark.rest
async def test_a_process_drops_what_it_made_of_a_learner_after_the_fold(store: Store):
    """Before it, a choice would make it again from the old state."""
    done = list[str]()

    class Others:
        """Workers of another process."""

        def wake(self, partition: int) -> None:
            pass

        async def wait_applied(self, partition: int, entry_id: str) -> bool:
            done.append("folded")
            return False

    erasure = module.Erasure(
        store,
        Others(),
        token_ttl_ms=DAY_MS,
        event_decision=lambda _: None,
        forgotten=lambda _: done.append("dropped"),
    )
    await erasure.forget(LearnerId("0" * 16, "ann"))
    assert done == ["folded", "dropped"]


@pytest.mark.rest
async def test_learners_whose_idle_time_is_over_end_side_by_side(service: HeadlessService):
    """So the store syncs its disk once for several: none waits for the answer of another one."""
    await service.quiet()
    bandit, partitions = await service.bandit(idle_ttl_s=IDLE_S), service.store.partitions
    names = (f"k{number}" for number in range(20 * partitions))
    idle = [key for key in names if bandit.learner_for(key).partition(partitions) == 0][:3]
    for key in idle:
        await service.observe(bandit, "o", key=key)
    service.store.hold["side_data.expire"] = asyncio.Event()
    sweeping = asyncio.create_task(housekeeping(service).sweep(0, later_ms()))

    async def all_asked() -> bool:
        return service.store.held["side_data.expire"] == len(idle)

    await wait_until(all_asked, what="all are asked for")
    service.store.hold["side_data.expire"].set()
    assert await sweeping
