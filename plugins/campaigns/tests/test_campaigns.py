"""Campaigns over a real store: several processes, lost replies, snapshots, bounded memory.

The algorithm of these tests sums results in the order in which they are told, so that any event that is
lost, doubled or reordered shows in the last bit.
"""

import asyncio
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.platform.errors import Invalid, NotFound, Unavailable
from lossy_store import LossyStore
from shortlist.errors import InvalidParameter
from shortlist_campaigns.campaigns import Campaigns
from shortlist_campaigns.fold import pack_state, unpack_state

pytestmark = pytest.mark.anyio


class Parameters(msgspec.Struct, frozen=True):
    goal: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Pull:
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class State:
    goal: int
    sums: NDArray[np.float64]
    told: tuple[int, ...]
    issued: int

    @property
    def observed(self):
        return len(self.told)

    @property
    def done(self):
        return len(self.told) >= self.goal


class Summing:
    kind = "sums"
    pull = "pull"
    parameters = Parameters
    state = State

    def __init__(self):
        self.folded = 0

    def start(self, parameters, seed):
        if parameters.goal < 1:
            raise InvalidParameter("goal must be at least 1", argument="goal")
        return State(parameters.goal, np.array([seed % 1_000_003 / 1_000_003, 0.0]), (), 0)

    def ask(self, state, count):
        if state.done:
            return state, ()
        pulls = tuple(Pull(number) for number in range(state.issued, state.issued + count))
        return replace(state, issued=state.issued + count), pulls

    def tell(self, state, results):
        self.folded += 1
        for number, value in results:
            if number not in state.told:
                sums = state.sums * 1.0000001 + np.array([value, 1.0])
                state = replace(state, sums=sums, told=(*state.told, number))
        return state


def over(store, capacity_bytes=1 << 20, **options):
    return Campaigns(store.event_logs, Summing(), capacity_bytes=capacity_bytes, **options)


def bits(campaign):
    return pack_state(campaign.state)


async def made(store, goal=10, seed=3, **options):
    campaigns = over(store, **options)
    await campaigns.create("c", Parameters(goal), seed=seed)
    return campaigns


async def step(campaigns, count=3, value=0.1):
    campaign, pulls = await campaigns.ask("c", count)
    return await campaigns.tell("c", [(campaign.pull_id(p.number), value + p.number) for p in pulls])


async def test_without_a_seed_each_has_one_of_its_own_that_stays(store):
    campaigns = over(store)
    sums = set()
    for name in ("a", "b", "c", "d", "e", "f"):
        campaign, _ = await campaigns.create(name, Parameters(5), seed=None)
        assert bits(await over(store).get(name)) == bits(campaign)
        sums.add(campaign.state.sums[0])
    assert len(sums) > 1


async def test_an_error_of_the_algorithm_names_the_field_and_nothing_is_made(store):
    campaigns = over(store)
    with pytest.raises(InvalidParameter) as raised:
        await campaigns.create("c", Parameters(0), seed=1)
    assert raised.value.paths == [("goal",)]
    with pytest.raises(NotFound):
        await campaigns.get("c")


async def test_any_process_continues_bit_for_bit(store):
    campaigns = await made(store, goal=100)
    for _ in range(5):
        await step(campaigns)
        campaigns = over(store)
    alone = await made_alone(store)
    assert bits(await campaigns.get("c")) == bits(alone)


async def made_alone(store):
    campaigns = over(store)
    await campaigns.create("alone", Parameters(100), seed=3)
    for _ in range(5):
        campaign, pulls = await campaigns.ask("alone", 3)
        results = [(campaign.pull_id(p.number), 0.1 + p.number) for p in pulls]
        campaign, _ = await campaigns.tell("alone", results)
    return campaign


@pytest.mark.rest
async def test_results_late_repeated_out_of_order(store):
    campaigns = await made(store)
    campaign, pulls = await campaigns.ask("c", 4)
    ids = [campaign.pull_id(p.number) for p in pulls]
    assert len(set(ids)) == 4
    _, receipt = await campaigns.tell("c", [(ids[3], 1.0), (ids[0], 2.0), (ids[3], 9.0)])
    assert (receipt.observed, receipt.duplicate) == (2, 1)
    length = (await campaigns.get("c")).position
    after, receipt = await campaigns.tell("c", [(ids[0], 7.0)])
    assert (receipt.observed, receipt.duplicate, after.position) == (0, 1, length), "nothing is appended"


@pytest.mark.rest
async def test_a_pull_of_an_earlier_campaign_of_the_same_name_is_unknown(store):
    campaigns = await made(store)
    campaign, pulls = await campaigns.ask("c", 1)
    old = campaign.pull_id(pulls[0].number)
    await campaigns.delete("c")
    for call in (campaigns.get("c"), campaigns.ask("c", 1), campaigns.tell("c", [(old, 1.0)])):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(NotFound):
        await campaigns.delete("c")
    await campaigns.create("c", Parameters(10), seed=3)
    await campaigns.ask("c", 1)
    with pytest.raises(Invalid):
        await campaigns.tell("c", [(old, 1.0)])


@pytest.mark.rest
async def test_another_process_deletes_it_and_makes_it_again(store):
    one, other = await made(store), over(store)
    await step(one)
    await other.delete("c")
    with pytest.raises(NotFound):
        await one.ask("c", 1)
    await other.create("c", Parameters(99), seed=1)
    assert (await one.get("c")).state.goal == 99
    assert (await one.ask("c", 2))[0].state.issued == 2


@pytest.mark.rest
async def test_an_ended_campaign_asks_for_nothing_and_stays(store):
    campaigns = await made(store, goal=3)
    ended, _ = await step(campaigns)
    assert ended.state.done
    _, pulls = await campaigns.ask("c", 5)
    assert list(pulls) == []
    assert bits(await over(store).get("c")) == bits(ended)


@pytest.mark.rest
async def test_many_clients_over_two_processes_get_pulls_of_their_own(store):
    await made(store, goal=10**6)
    processes = [over(store), over(store)]

    async def client(number):
        campaign, pulls = await processes[number % 2].ask("c", 2)
        results = [(campaign.pull_id(p.number), float(p.number)) for p in pulls]
        _, receipt = await processes[(number + 1) % 2].tell("c", results)
        assert receipt.observed == 2
        return [p.number for p in pulls]

    asked = [number for pulls in await asyncio.gather(*map(client, range(30))) for number in pulls]
    assert sorted(asked) == list(range(60))
    states = {bits(await process.get("c")) for process in (*processes, over(store))}
    assert len(states) == 1
    assert sorted((await over(store).get("c")).state.told) == list(range(60))


@pytest.mark.rest
async def test_who_is_overtaken_between_reading_and_writing_starts_again(store):
    await made(store, goal=100)
    lossy = LossyStore(store)
    slow, fast = over(lossy), over(store)
    for _ in range(3):
        lossy.before["event_logs.append"] = lambda: step(fast)
        await step(slow)
    numbers = (await fast.get("c")).state.told
    assert sorted(numbers) == list(range(18))
    assert bits(await slow.get("c")) == bits(await over(store).get("c"))


@pytest.mark.rest
async def test_a_lost_reply_is_harmless(store):
    await made(store, goal=100)
    lossy = LossyStore(store)
    campaigns = over(lossy)
    campaign, pulls = await campaigns.ask("c", 4)
    results = [(campaign.pull_id(p.number), 1.0) for p in pulls]
    lossy.lose = ["event_logs.append"]
    with pytest.raises(Unavailable):
        await campaigns.tell("c", results)
    _, receipt = await campaigns.tell("c", results)
    assert (receipt.observed, receipt.duplicate) == (0, 4)
    assert bits(await campaigns.get("c")) == bits(await over(store).get("c"))


@pytest.mark.rest
async def test_nothing_counts_that_is_not_stored(store):
    await made(store, goal=100)
    lossy = LossyStore(store)
    campaigns = over(lossy)
    before = await campaigns.get("c")
    lossy.refuse = {"event_logs.append"}
    with pytest.raises(Unavailable):
        await campaigns.ask("c", 4)
    lossy.refuse = set()
    assert bits(await campaigns.get("c")) == bits(before)


@pytest.mark.rest
async def test_a_snapshot_keeps_the_fold_short_and_changes_no_bit(store, monkeypatch):
    campaigns = await made(store, goal=1000, snapshot_events=7)
    for _ in range(24):
        live, _ = await step(campaigns)
    algorithm = Summing()
    fresh = Campaigns(store.event_logs, algorithm, capacity_bytes=1)
    assert bits(await fresh.get("c")) == bits(live)
    assert algorithm.folded <= 4
    replayed = await without_snapshots(store, monkeypatch)
    assert bits(replayed) == bits(live)


async def without_snapshots(store, monkeypatch):
    """As a version would that cannot read them."""
    monkeypatch.setattr("shortlist_campaigns.fold.unpack_state", lambda data, kind: None)
    algorithm = Summing()
    campaigns = Campaigns(store.event_logs, algorithm, capacity_bytes=1, read_events=5)
    campaign = await campaigns.get("c")
    assert algorithm.folded == 24
    return campaign


@pytest.mark.rest
async def test_a_snapshot_that_cannot_be_saved_hinders_nobody(store):
    await made(store)
    lossy = LossyStore(store)
    campaigns = over(lossy, snapshot_events=1)
    lossy.refuse = {"event_logs.save_snapshot"}
    live, _ = await step(campaigns)
    assert lossy.calls["event_logs.save_snapshot"] >= 2
    assert bits(await over(store).get("c")) == bits(live)


@pytest.mark.rest
async def test_a_log_longer_than_one_read(store):
    campaigns = await made(store, goal=1000)
    for _ in range(5):
        live, _ = await step(campaigns)
    assert bits(await over(store, read_events=3).get("c")) == bits(live)


@pytest.mark.rest
async def test_memory_is_bounded_and_what_left_it_comes_back(store):
    campaigns = Campaigns(store.event_logs, Summing(), capacity_bytes=5_000)
    for number in range(20):
        await campaigns.create(f"c{number}", Parameters(number + 1), seed=number)
    assert campaigns.cached_bytes <= 5_000
    assert [(await campaigns.get(f"c{n}")).state.goal for n in range(20)] == list(range(1, 21))
    assert campaigns.cached_bytes <= 5_000


@pytest.mark.rest
def test_a_state_comes_back_bit_for_bit():
    state = State(3, np.array([np.nextafter(1.0, 2.0), -0.0]), (2, 5), 2**40)
    back = unpack_state(pack_state(state), State)
    assert pack_state(back) == pack_state(state)
    assert back.sums.tobytes() == state.sums.tobytes()
    assert back.told == state.told


@pytest.mark.rest
@pytest.mark.parametrize("data", [b"", b"\xc1", pack_state({"goal": 1}), pack_state([1, 2]), pack_state("x")])
def test_a_state_of_another_make_is_none(data):
    assert unpack_state(data, State) is None
