"""A replay: what counts as equal to the state that is stored."""

import pytest

from app.fold.replay import compare
from headless_service import HeadlessService


@pytest.mark.rest
@pytest.mark.anyio
async def test_learners_that_change_between_two_pages_are_read_again(service: HeadlessService) -> None:
    await service.catalogue()
    bandit, partitions = await service.bandit(), service.store.partitions
    keys = [
        key
        for key in (f"k{number}" for number in range(20 * partitions))
        if bandit.learner_for(key).partition(partitions) == 0
    ]
    *keys, late = keys[:8]
    for key in keys:
        await service.observe(bandit, "one", key=key)
    forget = service.parts.erasure.forget

    async def change_all() -> None:
        for key in (*keys, late):
            await service.observe(bandit, "two", key=key)
        service.store.before["learners.stored"] = forget_first

    async def forget_first() -> None:
        await forget(bandit.learner_for(keys[0]))
        service.store.before["learners.stored"] = forget_second

    async def forget_second() -> None:
        await forget(bandit.learner_for(keys[1]))
        await service.observe(bandit, "three", key=keys[2])

    async def first() -> None:
        service.store.before["learners.stored"] = change_all

    await service.quiet()
    service.store.before["learners.stored"] = first
    found = await compare(service.parts.store)
    assert not service.store.before, "the first page is one learner, and every change is asked for"
    assert (found.different, found.older) == ([], 0)
    assert found.equal == len(keys) + 1 - 2
