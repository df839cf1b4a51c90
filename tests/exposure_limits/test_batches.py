"""Batches of choices under limits: counted together, and each as if it had come alone."""

from __future__ import annotations

import asyncio

import pytest

from app.exposure_limits.rules import QuotaRule
from app.platform.errors import NoArms, Unavailable
from app.selection.request import ChooseRequest
from app.serving.choosing import BatchRequest
from headless_service import HeadlessService
from waiting import wait_until

pytestmark = pytest.mark.anyio

ARMS, CHOICES = 20, 50


async def test_while_the_store_is_away_each_error_names_its_own_request(service: HeadlessService):
    await service.catalogue()
    bandit = await service.bandit()
    await service.parts.quotas.put(bandit, "q", QuotaRule(1_000, arm="a3"))
    service.store.refuse.add("quotas.count")
    requests = [BatchRequest(bandit, ChooseRequest(key="ann", k=4))] * 3
    outcomes = await service.parts.choosing.choose_batch(requests, partial=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    errors = [outcome.errors for outcome in outcomes if isinstance(outcome, Unavailable)]
    assert [path for ((path, _),) in errors] == [("requests", number) for number in range(3)]
    with pytest.raises(Unavailable):
        await service.parts.choosing.choose_batch(requests)
    service.store.refuse.clear()
    assert (await service.parts.quotas.get(bandit, "q")).used == 0


async def test_after_an_error_of_one_nothing_of_a_batch_counts(service: HeadlessService):
    """But what is kept for an event: it will be answered again."""
    await service.catalogue()
    bandit = await service.bandit()
    await service.parts.quotas.put(bandit, "q", QuotaRule(1_000, arm="a3"))
    requests = [ChooseRequest(key="ann", k=4) for _ in range(5)]
    requests.insert(2, ChooseRequest(key="ann", k=4, event_id="kept"))
    bad = ChooseRequest(key="ann", exclude=[f"a{number}" for number in range(4)])
    with pytest.raises(NoArms) as refusal:
        await service.parts.choosing.choose_batch(
            [BatchRequest(bandit, request) for request in (*requests, bad)]
        )
    assert refusal.value.errors[0][0] == ("requests", len(requests))
    assert (await service.parts.quotas.get(bandit, "q")).used == 1


async def test_what_a_batch_was_charged_is_given_back_when_its_caller_leaves(service: HeadlessService):
    """But what is kept for an event: it will be answered again."""
    await service.catalogue()
    bandit = await service.bandit()
    await service.parts.quotas.put(bandit, "q", QuotaRule(1_000, arm="a3"))
    service.store.hold["choices.put_event"] = asyncio.Event()
    requests = [
        *(ChooseRequest(key=f"u{n}", k=4) for n in range(9)),
        ChooseRequest(key="u9", k=4, event_id="kept"),
    ]
    asked = [BatchRequest(bandit, request) for request in requests]
    batch = asyncio.create_task(service.parts.choosing.choose_batch(asked))

    async def is_kept() -> bool:
        return service.store.held["choices.put_event"] == 1

    await wait_until(is_kept, what="the last one is kept")
    assert (await service.parts.quotas.get(bandit, "q")).used == 10
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    assert (await service.parts.quotas.get(bandit, "q")).used == 1
