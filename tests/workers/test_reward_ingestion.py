"""The worker against a real store: what a log means does not depend on batches, workers or crashes."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.fold.checkpoints import restored
from app.fold.fold import fold
from app.fold.fold_batches import States
from app.records.log_entries import DecodedEntry, ForgetEntry, RewardEntry, encode
from app.records.records import LearnerState, bytes_to_state, state_to_bytes, vector_to_bytes
from app.storage.store import Store
from app.storage.types import LearnerChanges, LearnerId, RewardWrite, SignalWrite
from headless_service import PATIENT
from log_entries import entry_of
from shortlist.linear import ridge_sums
from store_clients import connect, flush
from store_server import patient_store
from workers.learned_bandits import LearnedBandits
from workers.partition_leases import OnlyWorker, SharedWorker
from workers.reward_ingestion import Cycles, RewardWorker, Step

pytestmark = pytest.mark.anyio

UID = "0123456789abcdef"
OTHER = "fedcba9876543210"
TTL_MS = 600_000
DIM = 3
SETTINGS = settings(max_examples=40)

# (learner, features, value, first) or a learner to forget
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
REWARD = st.tuples(
    st.sampled_from("xyz"), st.lists(NUMBERS, min_size=DIM, max_size=DIM), NUMBERS, st.booleans()
)
LOG = st.lists(REWARD | st.sampled_from("xyz"), min_size=1, max_size=40)


def payload(features: Sequence[float], value: float) -> bytes:
    return encode(RewardEntry(vector_to_bytes(np.array(features, dtype=float)), value, sums=True))


GARBAGE = (
    b"", b"\xc1", b"\x00", b"\xff" * 50, b"\x91", b"\x92\xc4\x08abcdefgh\xa1x", b"not msgpack",
    encode(RewardEntry(b"\x00" * 7, 1.0)), encode(RewardEntry(b"\x00" * 8 * (DIM + 1), 1.0)),
    encode(RewardEntry(b"\x00" * 8, 1.0)), encode(RewardEntry(b"\xff" * 8 * DIM, 1.0)),
    encode(RewardEntry(b"", 1.0)), payload([1.0] * DIM, float("nan")),
    payload([np.inf] * DIM, 1.0), payload([1e200] * DIM, 1e200),
)  # fmt: skip
POISON = st.tuples(st.sampled_from("xyz"), st.sampled_from(GARBAGE))


def with_terms(number: int, item: Any, half_life_s: float, replaces: bool) -> DecodedEntry:
    """An entry of a bandit that waits or discounts; its decisions are a second apart, out of order."""
    if isinstance(item, str):
        return as_entry(number, item)
    learner, features, value, first = item
    decided_ms = 1_000 * (number * 7 % 11)
    content = RewardEntry(
        vector_to_bytes(np.array(features, dtype=float)),
        value,
        decided_ms=decided_ms,
        half_life_s=half_life_s,
        defaults=(0.5,) if replaces else (),
    )
    return entry_of(number, LearnerId(UID, learner), content, first=first)


def as_entry(number: int, item: Any) -> DecodedEntry:
    if isinstance(item, str):
        return entry_of(number, LearnerId(UID, item), ForgetEntry())
    if len(item) == 2:
        return entry_of(number, LearnerId(UID, item[0]), item[1])
    learner, features, value, first = item
    return entry_of(number, LearnerId(UID, learner), payload(features, value), first=first)


def encoded(states: States) -> dict[LearnerId, bytes | None]:
    return {identity: state_to_bytes(state) if state else None for identity, state in states.items()}


@dataclass
class Seen:
    """What a worker told of what it did."""

    states: dict[LearnerId, LearnerState | None] = field(default_factory=dict)
    entries: int = 0
    resynced: list[int] = field(default_factory=list)

    def folded(self, step: Step) -> None:
        self.states.update(step.states)
        self.entries += step.entries

    async def resync(self, partition: int) -> None:
        self.resynced.append(partition)


def worker(
    store: Any,
    seen: Seen | None = None,
    poll_s: float = 0.01,
    wait_s: float = PATIENT.applied_s,
    cycles: Cycles = Cycles(),
) -> RewardWorker:
    seen = seen or Seen()
    return RewardWorker(
        store,
        folded=seen.folded,
        resync=seen.resync,
        poll_s=poll_s,
        reward_log_s=600,
        capacity_bytes=1 << 20,
        wait_s=wait_s,
        cycles=cycles,
    )


@pytest.fixture
async def one(store: Store, store_url: str) -> AsyncIterator[Store]:
    """A store with one partition."""
    async with connect(store_url) as client:
        await flush(client)
    single = patient_store(store_url, partitions=1)
    await single.open()
    yield single
    await single.close()


async def append(store: Any, items: Sequence[Any], *, start: int = 0) -> None:
    """Put a log into partition 0; rewards that are not ``first`` share the word of the learner's decision."""
    for number, item in enumerate(items, start=start):
        if isinstance(item, str):
            forget = encode(ForgetEntry())
            await store.side_data.append_forget(
                LearnerId(UID, item), payload=forget, now_ms=number + 1, ttl_ms=TTL_MS
            )
            continue
        learner, features, value, first = item
        signal = None if first else SignalWrite(f"shared-{learner}", 0, value, "sum")
        write = RewardWrite(
            LearnerId(UID, learner),
            10**13,
            payload(features, value),
            f"n{number}",
            expires_ms=2**45,
            signal=signal,
        )
        (outcome,) = await store.rewards.append(0, [write])
        assert outcome.status == "accepted"


async def states(store: Any, learners: str = "xyz") -> dict[LearnerId, bytes | None]:
    names = [LearnerId(UID, learner) for learner in learners]
    found = zip(names, await store.learners.stored(0, names), strict=True)
    return encoded({name: restored(name, stored) for name, stored in found})


@SETTINGS
@given(
    log=st.lists(REWARD | POISON | st.sampled_from("xyz"), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=8),
)
def test_batches_cut_anywhere_give_the_same_states_to_the_bit(log: list[Any], cuts: list[int]):
    entries = [as_entry(number, item) for number, item in enumerate(log)]
    whole = encoded(fold({}, entries))
    whole = {identity: data for identity, data in whole.items() if data}
    current: dict[LearnerId, LearnerState | None] = {}
    places = [0, *sorted(min(cut, len(entries)) for cut in cuts), len(entries)]
    for start, stop in itertools.pairwise(places):
        current.update(fold(current, entries[start:stop]))
    assert {identity: data for identity, data in encoded(current).items() if data} == whole


def in_pieces(entries: list[DecodedEntry], cuts: list[int]) -> dict[LearnerId, bytes | None]:
    """States after folding piece by piece, each stored and read again in between."""
    current: dict[LearnerId, bytes | None] = {}
    places = [0, *sorted(min(cut, len(entries)) for cut in cuts), len(entries)]
    for start, stop in itertools.pairwise(places):
        piece = entries[start:stop]
        needed = {name: current.get(name) for name in {entry.learner for entry, _ in piece}}
        read = {name: bytes_to_state(data) if data else None for name, data in needed.items()}
        current.update(encoded(fold(read, piece)))
    return {name: data for name, data in current.items() if data}


@SETTINGS
@given(
    log=LOG,
    cuts=st.lists(st.integers(0, 40), max_size=8),
    half_life_s=st.sampled_from([0.0, 2.5]),
    replaces=st.booleans(),
)
def test_waiting_and_discounting_do_not_depend_on_batches(
    log: list[Any], cuts: list[int], half_life_s: float, replaces: bool
):
    entries = [with_terms(n, item, half_life_s, replaces) for n, item in enumerate(log)]
    assert in_pieces(entries, cuts) == in_pieces(entries, [])


async def test_poison_is_left_out_and_blocks_nothing(one: Store, caplog: pytest.LogCaptureFixture):
    """Whatever a payload is, the entries around it are applied, also those of the same learner."""
    good = ("x", [1.0, 2.0, 3.0], 1.0, True)
    await append(one, [good])
    for number, garbage in enumerate(GARBAGE):
        for learner in ("x", f"p{number}"):
            identity = LearnerId(OTHER if learner != "x" else UID, learner)
            write = RewardWrite(identity, 10**13, garbage, f"g{number}", ttl_ms=TTL_MS)
            assert (await one.rewards.append(0, [write]))[0].status == "accepted"
        await append(one, [good], start=100 + number)
    with caplog.at_level(logging.ERROR):
        await worker(one).drain()
    assert await one.rewards.backlog(0) == 0
    data = (await states(one))[LearnerId(UID, "x")]
    rows = np.tile([1.0, 2.0, 3.0], (len(GARBAGE) + 1, 1))
    count = len(rows)
    sums = ridge_sums.add(ridge_sums.empty(DIM), rows, np.ones(count), np.ones(count, dtype=bool))
    assert data == state_to_bytes(LearnerState(count, sums))
    letters = await one.rewards.dead_letters(0)
    assert tuple(letter.entry.payload for letter in letters if letter.entry.learner.name == "x") == GARBAGE
    assert all(letter.reason for letter in letters)
    assert (await one.rewards.lag(0)).dead == len(letters)
    assert len([record for record in caplog.records if "dead letter" in record.message]) == len(letters)


async def test_who_waits_hears_of_what_another_worker_applied(one: Store):
    """The partition was this worker's when the call came, and is another's since."""
    remote: Any = None  # never asked: the partition is its own
    shared = SharedWorker(worker(one, poll_s=3_600), OnlyWorker(), remote)
    await append(one, [("x", [1.0, 2.0, 3.0], 1.0, True)])
    (last,) = await one.rewards.read(0, "0-0", 10)
    waiting = asyncio.create_task(shared.wait_applied(0, last.entry_id))
    await asyncio.sleep(0)
    await worker(one).drain()
    assert not waiting.done()
    shared.changed(0, LearnerChanges(last.entry_id, last.entry_id))
    for _ in range(10):
        await asyncio.sleep(0)
    assert waiting.done()
    assert await waiting is True


@pytest.mark.parametrize(
    ("took_s", "entries", "length_s"),
    [
        (0.0, 0, 0.025),
        (0.005, 10, 0.025),
        (0.010, 10, 0.040),  # the machine has much to do
        (0.005, 60, 0.060),  # much comes: a millisecond for each
        (0.005, 101, 0.1),
        (0.5, 8_000, 0.1),  # nobody waits longer
    ],
)
def test_a_cycle_is_longer_where_much_comes_or_the_machine_has_much_to_do(took_s, entries, length_s):
    assert Cycles().length_s(took_s, entries) == pytest.approx(length_s)


async def test_waiting_ends_when_the_entry_is_applied_and_not_before(one: Store):
    going = worker(one, poll_s=60)
    running = asyncio.create_task(going.run())
    await append(one, [("x", [1.0, 2.0, 3.0], 1.0, True)] * 1)
    (last,) = await one.rewards.read(0, "0-0", 10)
    waiting = asyncio.create_task(going.wait_applied(0, last.entry_id))
    for _ in range(50):
        await asyncio.sleep(0)
    going.wake(0)
    assert await waiting is True
    assert (await states(one))[LearnerId(UID, "x")] is not None
    assert await going.wait_applied(0, last.entry_id) is True
    going.stop()
    await running


async def test_where_it_is_not_known_whose_learners_changed_all_priors_are_looked_at(
    one: Store, monkeypatch: pytest.MonkeyPatch
):
    bandits, told = LearnedBandits(one), list[Iterable[str] | None]()
    await bandits.poll(told.append)
    told.clear()
    await append(one, [("x", [1.0, 2.0, 3.0], 1.0, True)])
    await worker(one).drain()
    await bandits.poll(told.append)
    assert told == [{UID}]
    changed = one.learners.changed

    async def forgotten(known: Mapping[int, str]) -> Any:
        """As of a reader that was away for so long that the store has no list of that time any more."""
        return await changed(dict.fromkeys(known, ""))

    monkeypatch.setattr(one.learners, "changed", forgotten)
    await append(one, [("x", [1.0, 2.0, 3.0], 1.0, True)], start=1)
    await worker(one).drain()
    await bandits.poll(told.append)
    assert told == [{UID}, None]
