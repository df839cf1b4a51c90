"""Two services over one store: what either does, the other knows after a poll, and acts on."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord, RewardRule
from app.bandits.versions import BanditVersion
from app.catalogues.arms import Arm
from app.catalogues.catalogue import Catalogue
from app.platform.deadlines import OneCall
from app.platform.errors import Conflict, NoArms, NotFound, Unavailable
from app.platform.metrics import Metrics
from app.platform.settings import Settings
from app.records.records import vector_to_bytes
from app.storage import redis_keys
from app.storage.store import Store
from headless_service import PATIENT, HeadlessService
from lossy_store import LossyStore
from server.composition import Service

pytestmark = pytest.mark.anyio

Two = tuple[HeadlessService, HeadlessService]


@contextlib.asynccontextmanager
async def headless_service(
    store: Store, folder: Path, *, name: str | None = None, **options: Any
) -> AsyncIterator[HeadlessService]:
    """A service that polls only when it is told to, or must."""
    lossy: Any = LossyStore(store)
    configured = Settings(redis_url="unix:///not-used", data_dir=folder, **options)
    service = Service(configured, lossy, Metrics(), name=name, pauses=PATIENT)
    service.sync.every_s = 3_600
    await service.start()
    try:
        yield HeadlessService(service, lossy)
    finally:
        lossy.refuse.clear()
        lossy.hold.clear()
        await service.stop()


@contextlib.asynccontextmanager
async def two_services(store: Store, folder: Path, **of_second: Any) -> AsyncIterator[Two]:
    """Two services that know the catalogue of the first; ``of_second``: settings of the second."""
    async with (
        headless_service(store, folder / "one") as one,
        headless_service(store, folder / "two", **of_second) as two,
    ):
        await one.catalogue()
        await two.parts.sync.poll()
        yield one, two


@pytest.fixture
async def two_processes(store: Store, tmp_path: Path) -> AsyncIterator[Two]:
    async with two_services(store, tmp_path) as services:
        yield services


def held(catalogue: Catalogue) -> dict[str, tuple[int, list[float]]]:
    view = catalogue.index.snapshot().table
    rows = view.live_rows.tolist()
    return {view.ids[r]: (int(view.revisions[r]), view.features[r].tolist()) for r in rows}


async def stored(store: Any, uid: str) -> dict[str, tuple[int, list[float]]]:
    return {
        arm.id: (arm.revision, np.frombuffer(arm.features).tolist())
        async for batch in store.arms.scan(uid)
        for arm in batch
    }


async def test_catalogues_arms_and_bandits_come_and_go(two_processes: Two):
    one, two = two_processes
    here, there = [await service.parts.catalogues.get("c") for service in two_processes]
    assert here.uid == there.uid
    assert held(here) == held(there)
    await one.bandit()
    await one.parts.catalogues.remove(here, ["a0", "a3"])
    await one.parts.catalogues.upsert(here, [Arm("a1", [7.0, 7.0]), Arm("new", [1.0, 1.0])])
    assert "new" not in held(there)
    await two.parts.sync.poll()
    assert (held(there), there.version) == (held(here), here.version)
    # private: looks without polling the store
    assert two.parts.bandits._served["b"].uid == one.parts.bandits._served["b"].uid
    await one.parts.bandits.delete("b")
    await one.parts.catalogues.delete("c")
    await one.catalogue("c", dim=3)
    await two.parts.sync.poll()
    assert "b" not in two.parts.bandits._served  # private: looks without polling the store
    assert two.parts.catalogues.served("c").dim == 3


@pytest.mark.rest
async def test_arms_that_a_process_of_2_0_0_writes_come_when_versions_are_compared(
    store: Store, two_processes: Two
):
    """It gives its scripts no list of all catalogues."""
    _, two = two_processes
    catalogue = await two.parts.catalogues.get("c")
    names = [*redis_keys.catalogue(catalogue.uid), redis_keys.retired(catalogue.uid)]
    names.append(redis_keys.came(catalogue.uid))
    await two.parts.sync.poll()
    arm = "new", vector_to_bytes(np.ones(2)), b""
    await store.redis.script("upsert_arms", names, [60_000, 50_000, 1, *arm])
    two.parts.catalogues.compare_s = 0.0
    await two.parts.sync.poll()
    assert "new" in held(catalogue)
    await store.redis.script("delete_arms", names, [60_000, 50_000, "new", "a0"])
    await two.parts.sync.poll()
    assert not {"new", "a0"} & held(catalogue).keys()


OPERATIONS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["upsert", "remove", "poll", "recreate"]),
        st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True),
    ),
    max_size=24,
)


@settings(max_examples=40)
@given(operations=OPERATIONS, kept=st.integers(2, 8))
async def test_whoever_writes_both_end_with_what_is_stored(
    store: Store, two_processes: Two, operations: Any, kept: int
):
    """Also when more has changed than the log of changes keeps, and when a catalogue is made again."""
    store.arms.changes_kept = kept
    for number, (who, what, ids) in enumerate(operations):
        catalogues = two_processes[who].parts.catalogues
        with contextlib.suppress(NotFound, Conflict):
            if what == "upsert":
                arms = [Arm(arm, [1.0, float(number)]) for arm in ids]
                await catalogues.upsert(await catalogues.get("c"), arms)
            elif what == "remove":
                await catalogues.remove(await catalogues.get("c"), ids)
            elif what == "recreate":
                await catalogues.delete("c")
                await two_processes[who].catalogue()
            else:
                await two_processes[who].parts.sync.poll()
    for service in two_processes:
        await service.parts.sync.poll()
        catalogue = await service.parts.catalogues.get("c")
        assert held(catalogue) == await stored(service.store, catalogue.uid)
        assert catalogue.version == await service.store.arms.version(catalogue.uid)


async def test_who_writes_after_another_has_what_both_wrote(two_processes: Two):
    one, two = two_processes
    here, there = [await service.parts.catalogues.get("c") for service in two_processes]
    await one.parts.catalogues.upsert(here, [Arm("of one", [2.0, 1.0])])
    await two.parts.catalogues.upsert(there, [Arm("of two", [1.0, 2.0])])
    assert held(there) == await stored(two.store, there.uid)
    await one.parts.catalogues.remove(here, ["of two"])
    assert held(here) == await stored(one.store, here.uid)


async def test_changes_that_could_not_be_read_are_read_later(two_processes: Two):
    one, two = two_processes
    here, there = [await service.parts.catalogues.get("c") for service in two_processes]
    await one.parts.catalogues.upsert(here, [Arm("new", [2.0, 1.0])])
    two.store.refuse.add("arms.read")
    with pytest.raises(Unavailable):
        await two.parts.catalogues.sync(there)
    two.store.refuse.clear()
    await two.parts.catalogues.sync(there)
    assert held(there) == held(here)


async def test_what_is_written_while_all_arms_are_read_is_there_afterwards(
    two_processes: Two, store: Store, tmp_path: Path
):
    one, _ = two_processes
    here = await one.parts.catalogues.get("c")

    async def written() -> None:
        await one.parts.catalogues.upsert(here, [Arm("new", [2.0, 1.0])])

    lossy: Any = LossyStore(store)
    # what is asked for next, when all arms were read
    lossy.before["arms.has_documents"] = written
    configured = Settings(redis_url="unix:///not-used", data_dir=tmp_path / "three")
    service = Service(configured, lossy, Metrics(), pauses=PATIENT)
    await service.start()
    try:
        assert held(await service.catalogues.get("c")) == await stored(store, here.uid)
    finally:
        await service.stop()


async def test_who_is_ahead_of_a_store_that_has_lost_writes_goes_back_with_it(
    two_processes: Two, store: Store
):
    """As after the fail-over of a primary: the version is older, and so are the arms."""
    one, two = two_processes
    here, there = [await service.parts.catalogues.get("c") for service in two_processes]
    dump = await store.redis.command("DUMP", redis_keys.features(here.uid))
    counters = await store.redis.command("DUMP", redis_keys.counters(here.uid))
    await one.parts.catalogues.upsert(here, [Arm("a1", [9.0, 9.0]), Arm("lost", [1.0, 1.0])])
    await one.parts.catalogues.remove(here, ["a0"])
    await two.parts.sync.poll()
    assert "lost" in held(there)
    for key, value in ((redis_keys.features(here.uid), dump), (redis_keys.counters(here.uid), counters)):
        await store.redis.command("RESTORE", key, 0, value, "REPLACE")
    for service, catalogue in zip(two_processes, (here, there), strict=True):
        await service.parts.sync.poll()
        assert held(catalogue) == await stored(store, here.uid)
        assert set(held(catalogue)) == {"a0", "a1", "a2", "a3"}


async def change(service: HeadlessService, **fields: Any) -> Bandit:
    """Change fields of the bandit ``b``."""

    def changed(uid: str, version: BanditVersion) -> BanditRecord:
        return msgspec.structs.replace(version.record, **fields)

    return await service.parts.bandits.change("b", changed)


async def test_a_change_is_known_after_a_poll_and_decisions_keep_their_terms(two_processes: Two):
    """Also to a process that has not heard of the change, and to one that has not seen the version before."""
    one, two = two_processes
    await one.bandit(reward=RewardRule(max=1.0))
    there = await two.parts.bandits.get("b")
    old = (await two.choose(there)).decision
    here = await change(one, reward=RewardRule(max=0.5), ridge=7.0)
    new = (await one.choose(here)).decision
    assert two.parts.bandits._served["b"] is there  # private: looks without polling the store
    receipt = await two.reward(new)
    assert receipt.rejected == [(0, "out_of_range")], "who meets a newer version asks for it"
    now = await two.parts.bandits.get("b")
    assert (now.version.number, now.record) == (2, here.record)
    assert (await two.choose(now)).bandit_version == 2
    assert (await one.reward(old)).accepted == 1
    two.parts.bandits._earlier.clear()  # private: as a process that has not seen it
    assert (await two.reward(old)).duplicate == 1, "its version is read from the store"
    calls = two.store.calls["registry.bandit_versions"]
    assert (await two.reward(old)).duplicate == 1
    assert two.store.calls["registry.bandit_versions"] == calls


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 1), st.sampled_from(["ridge", "delta", "shortlist", "poll", "lose"]), st.integers(1, 3)
    ),
    max_size=20,
)


@settings(max_examples=30)
@given(steps=CHANGES)
async def test_whoever_changes_a_bandit_every_change_is_made_once(two_processes: Two, steps: Any):
    """Each process changes what the store has, though it knows something older; replies may be lost."""
    with contextlib.suppress(NotFound):
        await two_processes[0].parts.bandits.delete("b")
    expected = (await two_processes[0].bandit(shortlist=30)).record
    for service in two_processes:
        await service.parts.sync.poll()
    versions = [expected]
    for who, what, number in steps:
        service = two_processes[who]
        if what == "poll":
            await service.parts.sync.poll()
            continue
        field = "shortlist" if what == "lose" else what
        value = number / 10 if field == "delta" else number
        expected = msgspec.structs.replace(expected, **{field: value})
        if what == "lose" and expected != versions[-1]:
            service.store.lose.append("registry.change_bandit")
            with pytest.raises(Unavailable):
                await change(service, **{field: value})
        assert (await change(service, **{field: value})).record == expected
        versions += [expected] * (expected != versions[-1])
    for service in two_processes:
        await service.parts.sync.poll()
        bandit = await service.parts.bandits.get("b")
        assert (bandit.record, bandit.version.number) == (expected, len(versions))
        kept, _ = await service.parts.bandits.versions.page(bandit.uid, bandit.version, None, 100)
        assert [version.record for version in kept] == versions[::-1]


async def test_an_empty_catalogue_filled_elsewhere(two_processes: Two):
    one, two = two_processes
    await one.catalogue("empty", arms=0)
    bandit = await one.bandit("e", "empty")
    await two.parts.sync.poll()
    there = await two.parts.bandits.get("e")
    assert there.uid == bandit.uid
    with pytest.raises(NoArms):
        await two.choose(there)
    await one.parts.catalogues.upsert(await one.parts.catalogues.get("empty"), [Arm("x", [1.0, 1.0])])
    assert (await two.choose(there)).arms[0].id == "x", "who finds no arm polls"


async def test_a_call_that_finds_nothing_asks_the_store_once(service: HeadlessService):
    await service.quiet()
    before = service.store.calls["registry.version"]
    with OneCall():
        for name in ("one", "other"):
            with pytest.raises(NotFound):
                await service.parts.bandits.get(name)
    assert service.store.calls["registry.version"] == before + 1
