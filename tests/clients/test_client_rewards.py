"""Rewards through a connection that loses replies: none is lost, none counts twice, no error is silent."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dropping_proxy import DroppingProxy
from service_process import Service, serving
from shortlist_client import AsyncClient, AsyncRewardSender, Client, Retry, RewardSender
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

DROPPED = 1 / 12
SOON = Retry(first_wait_s=0.001)
MANY = [2_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(1_200)])]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("rewards")) as service:
        with Client(service.url) as client:
            client.put_catalogue("c", dim=2)
            client.upsert_arms("c", [[1.0, 0.0], [0.0, 1.0]], ids=["a", "b"])
        yield service


@pytest.fixture
def proxy(service: Service) -> Iterator[DroppingProxy]:
    with DroppingProxy(service.port, seed=1) as proxy:
        proxy.drop = DROPPED
        yield proxy


@pytest.fixture
def decisions(service: Service, request: pytest.FixtureRequest) -> Callable[[int], list[str]]:
    """Decisions of a new bandit ``b``."""

    def make(count: int) -> list[str]:
        with Client(service.url) as client:
            if any(bandit.id == "b" for bandit in client.bandits()):
                client.delete_bandit("b")
            client.put_bandit("b", catalogue="c", policy="sub_ts")
            choices = client.choose_batch("b", ({} for _ in range(count)))
        return [choice.decision for choice in choices.results]

    return make


def assert_learned(service: Service, count: int) -> None:
    """The learner has seen every reward once."""
    with Client(service.url) as client:
        wait_until_sync(lambda: client.ready().backlog == 0, what="all rewards are applied")
        assert client.get_learner("b").observations == count


@pytest.mark.parametrize("count", MANY)
def test_the_sender_of_a_thread(service: Service, proxy: DroppingProxy, decisions: Any, count: int):
    made = decisions(count)
    with (
        Client(f"http://127.0.0.1:{proxy.port}", retry=SOON) as client,
        RewardSender(client, batch=25, buffer=100) as sender,
    ):
        for decision in made:
            sender.add(decision, 0.5)
    assert proxy.dropped > count / 25 / 30
    assert sender.state.accepted + sender.state.duplicate == count
    assert sender.state.duplicate
    assert_learned(service, count)


@pytest.mark.anyio
@pytest.mark.parametrize("count", MANY)
async def test_the_sender_of_a_task(service: Service, proxy: DroppingProxy, decisions: Any, count: int):
    made = await asyncio.to_thread(decisions, count)
    async with (
        AsyncClient(f"http://127.0.0.1:{proxy.port}", retry=SOON) as client,
        AsyncRewardSender(client, batch=25, buffer=100) as sender,
    ):
        for decision in made:
            await sender.add(decision, 0.5)
    assert proxy.dropped > count / 25 / 30
    assert sender.state.accepted + sender.state.duplicate == count
    await asyncio.to_thread(assert_learned, service, count)


def test_rewards_one_by_one(service: Service, proxy: DroppingProxy, decisions: Any):
    made = decisions(300)
    with Client(f"http://127.0.0.1:{proxy.port}", retry=SOON) as client:
        for decision in made:
            client.reward(decision)
    assert proxy.dropped
    assert_learned(service, len(made))


def test_a_choice_whose_reply_is_lost_is_made_once(service: Service, proxy: DroppingProxy):
    """Of a bandit that waits every decision counts, so an extra one would be seen."""
    with Client(service.url) as direct, Client(f"http://127.0.0.1:{proxy.port}", retry=SOON) as client:
        direct.put_bandit("waits", catalogue="c", policy="sub_ts", reward={"wait_s": 0.2})
        for _ in range(200):
            client.choose("waits")
        assert proxy.dropped
        wait_until_sync(lambda: direct.get_learner("waits").observations >= 200, what="defaults are applied")
        direct.choose("waits")
        wait_until_sync(lambda: direct.get_learner("waits").observations >= 201, what="one more is applied")
        assert direct.get_learner("waits").observations == 201
