"""A store that was emptied, put back or mistaken for another is noticed by what its data directory knows."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.platform.errors import StartupError
from app.replication.expected_store import ExpectedStore
from app.storage import redis_keys as keys
from app.storage.embedded.losses import Losses
from app.storage.store import Store
from app.storage.types import ArmWrite, LearnerId, Registry, RewardWrite

pytestmark = pytest.mark.anyio

LEARNER = LearnerId("b" * 16, "ann")
UID = "c" * 16


@pytest.fixture
def partition(store: Store) -> int:
    return LEARNER.partition(store.partitions)


def expected(store: Store, folder: Path, *, accept_loss: bool = False) -> ExpectedStore:
    return ExpectedStore(store, folder, accept_loss=accept_loss)


async def fill(store: Store, partition: int, rewards: int = 3) -> None:
    """A catalogue, an arm, a version of a prior, and some rewards, all but one applied."""
    await store.registry.create_catalogue("films", UID.encode() + b"{}")
    await store.arms.upsert(UID, [ArmWrite("a", bytes(8))], keep_ms=1_000)
    await store.redis.command("SET", keys.PRIOR_CHANGES, 1)
    writes = [RewardWrite(LEARNER, 1, b"r", f"{n}", ttl_ms=60_000) for n in range(rewards)]
    *_, before_last, _ = await store.rewards.append(partition, writes)
    watermark = await store.learners.watermark(partition)
    await store.learners.apply(
        partition, expected=watermark, watermark=before_last.entry_id, states={LEARNER: b"s"}
    )


async def test_a_store_that_only_grows_is_as_expected(store: Store, partition: int, tmp_path: Path):
    for _ in range(3):
        await expected(store, tmp_path).check()
        await fill(store, partition)
        before = expected(store, tmp_path)
        await before.check()
        await before.finish()
    await store.registry.delete_catalogue("films", UID)
    await store.rewards.trim(partition, 10**14)
    assert await expected(store, tmp_path).missing() == ""


async def test_versions_of_catalogues_are_read_again_only_where_they_have_changed(
    store: Store, tmp_path: Path
):
    """There may be a thousand, and this is asked every few seconds."""
    read, version = list[str](), store.arms.version

    async def counted(uid: str) -> int:
        read.append(uid)
        return await version(uid)

    store.arms.version = counted  # type: ignore[method-assign]
    await fill(store, 0)
    running = expected(store, tmp_path)
    await running.check()
    for _ in range(3):
        await running.refresh()
    assert read == [UID]
    await store.redis.command("HINCRBY", keys.counters(UID), "version", 5)
    await running.refresh()
    await running.refresh()
    assert read == [UID, UID]
    await store.redis.command("HINCRBY", keys.counters(UID), "version", -1)
    assert "catalogue films" in await running.missing()


@pytest.mark.rest
async def test_every_new_data_directory_takes_the_store_as_it_is(store: Store, tmp_path: Path):
    for name in "abc":
        await expected(store, tmp_path / name).check()
    for name in "abc":
        await expected(store, tmp_path / name).check()
    files = {(tmp_path / name / "expected-store.json").read_text() for name in "abc"}
    assert len(files) == 1


async def emptied(store: Store, partition: int) -> None:
    await store.redis._everywhere("FLUSHALL")  # private: on all servers of a cluster


async def without_identity(store: Store, partition: int) -> None:
    await store.redis.command("DEL", keys.once(None, "identity"))


async def other_identity(store: Store, partition: int) -> None:
    await store.redis.command("SET", keys.once(None, "identity"), "0" * 32)


async def older_registry(store: Store, partition: int) -> None:
    await store.redis.command("DECR", keys.REGISTRY_VERSION)


async def older_catalogue(store: Store, partition: int) -> None:
    await store.redis.command("HDEL", keys.counters(UID), "version")


async def shorter_log(store: Store, partition: int) -> None:
    [newest] = await store.redis.command("XREVRANGE", keys.log(partition), "+", "-", "COUNT", 1)
    await store.redis.command("XDEL", keys.log(partition), newest[0])


async def older_watermark(store: Store, partition: int) -> None:
    await store.redis.command("DEL", keys.watermark(partition))


async def older_priors(store: Store, partition: int) -> None:
    await store.redis.command("DECR", keys.PRIOR_CHANGES)


async def missing_catalogue(store: Store, partition: int) -> None:
    await store.redis.command("HDEL", keys.CATALOGUES, "films")


LOSSES: dict[Callable[[Store, int], Awaitable[None]], str] = {
    emptied: "it has no identity",
    without_identity: "it has no identity",
    other_identity: "it is another one: its identity is 00000000000000000000000000000000, not ",
    older_registry: "registry is at 0, and was at 1",
    older_catalogue: f"catalogue films ({UID}) is at 0, and was at 1",
    missing_catalogue: f"catalogue films ({UID}) is at 0, and was at 1",
    older_priors: "learned priors is at 0, and was at 1",
    shorter_log: "reward log {} is at 2, and was at 3",
    older_watermark: "watermark {} is at 0, and was at 2",
}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
async def test_what_the_store_has_lost_is_refused_unless_it_is_accepted(
    store: Store,
    partition: int,
    tmp_path: Path,
    loss: Callable[[Store, int], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
):
    await fill(store, partition)
    await expected(store, tmp_path).check()
    file = (tmp_path / "expected-store.json").read_text()
    await loss(store, partition)
    words = LOSSES[loss].format(partition)
    for _ in range(2):
        start = expected(store, tmp_path)
        with pytest.raises(StartupError, match="--accept-loss") as caught:
            await start.check()
        assert words in str(caught.value)
        await start.finish()
        assert (tmp_path / "expected-store.json").read_text() == file, "a refused start learns nothing"
    assert Losses(tmp_path).known() is None

    await expected(store, tmp_path, accept_loss=True).check()
    assert "the loss is accepted" in caplog.text
    known = Losses(tmp_path).known()
    assert known is not None
    assert words in known.what
    await expected(store, tmp_path).check()  # from now on without a flag
    assert Losses(tmp_path).known() == known


@pytest.mark.rest
async def test_a_loss_while_the_process_runs_is_logged_and_recorded_once(
    store: Store, partition: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    await fill(store, partition)
    running = expected(store, tmp_path)
    await running.check()
    await shorter_log(store, partition)
    for _ in range(2):
        await running.refresh()
    assert caplog.text.count("has lost data while this process runs") == 1
    known = Losses(tmp_path).known()
    assert known is not None
    assert known.what == f"reward log {partition} is at 2, and was at 3"
    await expected(store, tmp_path).check()


@pytest.mark.rest
async def test_a_catalogue_that_is_deleted_while_it_is_counted_is_no_loss(store: Store, tmp_path: Path):
    """The registry is read first; by the time the catalogue's version is read it may be gone."""
    await fill(store, 0)
    await expected(store, tmp_path).check()
    version = store.arms.version
    calls = []

    async def deleted_meanwhile(uid: str) -> int:
        if not calls:
            await store.registry.delete_catalogue("films", UID)
        calls.append(uid)
        return await version(uid)

    store.arms.version = deleted_meanwhile  # type: ignore[method-assign]
    assert await expected(store, tmp_path).missing() == ""
    assert calls == [UID]


@pytest.mark.rest
async def test_the_registry_is_read_again_only_when_it_has_changed(store: Store, tmp_path: Path):
    """It may be large, and this is asked every few seconds."""
    reads, read = [], store.registry.read

    async def counted() -> Registry:
        reads.append(await read())
        return reads[-1]

    store.registry.read = counted  # type: ignore[method-assign]
    running = expected(store, tmp_path)
    await running.check()
    for _ in range(3):
        await running.refresh()
    assert len(reads) == 1
    await fill(store, 0)
    await running.refresh()
    assert len(reads) == 2
    await store.redis.command("HSET", keys.counters(UID), "version", 0)
    assert "catalogue films" in await running.missing()


@pytest.mark.rest
async def test_a_damaged_note_is_refused(store: Store, tmp_path: Path):
    await expected(store, tmp_path).check()
    file = tmp_path / "expected-store.json"
    file.write_text(file.read_text().replace("0", "1"))
    with pytest.raises(StartupError, match="is damaged"):
        await expected(store, tmp_path).check()
    await expected(store, tmp_path, accept_loss=True).check()
    await expected(store, tmp_path).check()


@pytest.mark.rest
async def test_a_folder_that_cannot_be_written_is_logged_once_and_nothing_more(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").write_text("")
    running = expected(store, tmp_path / "file" / "below")
    with caplog.at_level(logging.WARNING):
        await running.check()
        await running.refresh()
    assert caplog.text.count("cannot be kept") == 1
