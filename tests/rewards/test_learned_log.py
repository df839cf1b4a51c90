"""What the reward log says of its entries, also where it was trimmed or entries came from elsewhere."""

import numpy as np
import pytest

from app.platform.cursors import encode_cursor
from app.records.log_entries import RewardEntry, encode
from app.records.records import vector_to_bytes
from app.rewards.learned_log import LearnedLog
from app.storage.types import LearnerId, RewardWrite
from headless_service import HeadlessService
from workers.log_trimming import trim

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


async def test_what_was_trimmed_before_it_was_read_is_counted(service: HeadlessService):
    await service.catalogue()
    bandit = await service.bandit()
    await service.observe(bandit, *"abc")
    log, partition = (
        LearnedLog(service.store),
        LearnerId(bandit.uid, "ann").partition(service.store.partitions),
    )
    page = await log.page(bandit, partition, None, 2, with_arms=False)
    assert (len(page.items), page.more, page.missing, page.arms) == (2, True, 0, {})
    async for _ in trim(service.store, range(service.store.partitions), reward_log_s=-60):
        pass
    lost = await log.page(bandit, partition, page.position, 2, with_arms=False)
    assert (lost.items, lost.missing) == ([], 1)
    await service.observe(bandit, *"de")
    assert (await log.page(bandit, partition, page.position, 9, with_arms=False)).missing == 1
    later = await log.page(bandit, partition, None, 9, with_arms=True)
    assert [item.id for item in later.items] == ["d", "e"]
    assert later.missing == 3
    [arm] = later.arms.values()
    assert (arm.id, arm.features) == ("a1", [1.0, 1.0])


async def test_an_entry_of_no_arm_brings_its_features_and_one_that_is_damaged_nothing(
    service: HeadlessService,
):
    await service.catalogue()
    bandit = await service.bandit()
    learner = LearnerId(bandit.uid, "ann")
    partition = learner.partition(service.store.partitions)
    good = encode(RewardEntry(vector_to_bytes(np.array([3.0, 4.0])), 0.5, decided_ms=7))
    writes = [
        RewardWrite(learner, 1, good, "good", ttl_ms=60_000),
        RewardWrite(learner, 1, b"\xc1", "damaged", ttl_ms=60_000),
        RewardWrite(LearnerId("0" * 16, "ann"), 1, good, "of another", ttl_ms=60_000),
    ]
    await service.store.rewards.append(partition, writes)
    page = await LearnedLog(service.store).page(bandit, partition, None, 9, with_arms=True)
    (item,) = page.items
    assert (item.kind, item.features, item.value, item.decided) == ("other", [3.0, 4.0], 0.5, 7)
    assert (item.id, item.arm, item.revision, page.arms) == (None, None, None, {})


@pytest.mark.parametrize("position", ["1-1", "/1-1", "x/1", "x/a-b", "x/1-1"])
async def test_a_cursor_of_something_else_is_refused(service: HeadlessService, position: str):
    await service.catalogue()
    bandit = await service.bandit()
    with pytest.raises(Exception, match="cursor"):
        await LearnedLog(service.store).page(bandit, 0, encode_cursor(position), 9, with_arms=False)
