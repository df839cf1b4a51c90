"""Rewards through a connection that loses replies: none is lost, none counts twice, no error is silent."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from dropping_proxy import DroppingProxy
from service_process import Service, serving
from shortlist_client import AsyncClient, AsyncRewardSender, Client, Retry, RewardSender
from shortlist_client.bodies import RewardItem
from shortlist_client.errors import ConnectionFailed, InvalidArgument, RewardsUnsent
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

DROPPED = 1 / 12
SOON = Retry(first_wait_s=0.001)
AT_ONCE = Retry(attempts=1)
MANY = [2_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(1_200)])]


def test_a_client_waits_as_long_as_a_service_takes_to_start(monkeypatch: pytest.MonkeyPatch):
    """6 s, whatever is drawn; and no longer than a person would."""
    drawn = {"least": lambda low, _: low, "most": lambda _, high: high}
    waits = {}
    for name, draw in drawn.items():
        monkeypatch.setattr("shortlist_client.exchange.random.uniform", draw)
        slept: list[float] = []
        monkeypatch.setattr("shortlist_client.client.time.sleep", slept.append)
        with Client("http://127.0.0.1:1") as client, pytest.raises(ConnectionFailed):
            client.ready()
        waits[name] = sum(slept)
    assert 6.0 < waits["least"] < waits["most"] < 15.0


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


class Flaky:
    """A service that takes rewards, or not: as ``answer`` says."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.answer: Callable[[list[RewardItem]], httpx.Response] = self.take

    def __call__(self, request: httpx.Request) -> httpx.Response:
        return self.answer(json.loads(request.content)["rewards"])

    def take(self, rewards: list[RewardItem]) -> httpx.Response:
        self.taken += [reward["decision"] for reward in rewards]
        return httpx.Response(202, json={"accepted": len(rewards), "duplicate": 0, "rejected": []})

    def down(self, rewards: list[RewardItem]) -> httpx.Response:
        raise httpx.ConnectError("refused")

    def picky(self, rewards: list[RewardItem]) -> httpx.Response:
        """Values must not be negative; rewards of t2 are rejected."""
        bad = [place for place, reward in enumerate(rewards) if reward["value"] < 0]
        if bad:
            errors = [{"loc": ["body", "rewards", place, "value"], "message": "negative"} for place in bad]
            problem = {"code": "invalid", "detail": "no", "errors": errors}
            return httpx.Response(422, json=problem)
        rejected = [i for i, reward in enumerate(rewards) if reward["decision"] == "t2"]
        self.take([reward for reward in rewards if reward["decision"] != "t2"])
        answer = {
            "accepted": len(rewards) - len(rejected),
            "duplicate": 0,
            "rejected": [{"index": index, "code": "expired_token"} for index in rejected],
        }
        return httpx.Response(202, json=answer)


@pytest.fixture
def flaky() -> Flaky:
    return Flaky()


@pytest.fixture
def client(flaky: Flaky) -> Client:
    return Client(retry=AT_ONCE, http=httpx.Client(transport=httpx.MockTransport(flaky)))


@pytest.fixture
def task_client(flaky: Flaky) -> AsyncClient:
    return AsyncClient(retry=AT_ONCE, http=httpx.AsyncClient(transport=httpx.MockTransport(flaky)))


def test_rewards_that_were_not_sent_are_named(flaky: Flaky, client: Client):
    flaky.answer = flaky.down
    sender = RewardSender(client, batch=2)
    for number in range(5):
        sender.add(f"t{number}")
    with pytest.raises(RewardsUnsent, match="5 rewards are not sent") as failed:
        sender.close()
    assert [reward["decision"] for reward in failed.value.unsent] == [f"t{number}" for number in range(5)]
    assert isinstance(failed.value.__cause__, ConnectionFailed)
    with pytest.raises(InvalidArgument, match="closed"):
        sender.add("t5")


def test_a_service_that_comes_back_gets_all(flaky: Flaky, client: Client):
    flaky.answer = flaky.down
    with RewardSender(client, batch=2, every_s=60) as sender:
        for number in range(5):
            sender.add(f"t{number}")
        with pytest.raises(RewardsUnsent):
            sender.flush()
        flaky.answer = flaky.take
    assert flaky.taken == [f"t{number}" for number in range(5)]


@pytest.mark.timeout(60)
def test_a_flush_sends_the_last_batch_too_though_it_is_not_full(flaky: Flaky, client: Client):
    """Without waiting for others: nobody may add any more before it returns."""

    def when_flushed(rewards: list[RewardItem]) -> httpx.Response:
        wait_until_sync(lambda: sender.state.hurry, what="the flush has begun")
        return flaky.take(rewards)

    flaky.answer = when_flushed
    with RewardSender(client, batch=2, every_s=3_600) as sender:
        for number in range(3):
            sender.add(f"t{number}")
        sender.flush()
        assert flaky.taken == ["t0", "t1", "t2"]


def test_a_full_buffer_takes_no_more(flaky: Flaky, client: Client):
    flaky.answer = flaky.down
    with RewardSender(client, batch=2, buffer=4, every_s=60) as sender:
        for number in range(4):
            sender.add(f"t{number}")
        with pytest.raises(RewardsUnsent):
            sender.add("one too many")
        flaky.answer = flaky.take
    assert flaky.taken == ["t0", "t1", "t2", "t3"]


def test_rejected_rewards_are_named_and_hold_up_no_other(flaky: Flaky, client: Client):
    flaky.answer = flaky.picky
    sender = RewardSender(client, batch=10, every_s=60)
    for number, value in enumerate([1.0, -1.0, 1.0, -2.0, 1.0]):
        sender.add(f"t{number}", value)
    with pytest.raises(RewardsUnsent, match="3 rewards were rejected") as failed:
        sender.close()
    codes = {reward["decision"]: code for reward, code in failed.value.rejected}
    assert codes == {"t1": "invalid", "t2": "expired_token", "t3": "invalid"}
    assert failed.value.unsent == ()
    assert flaky.taken == ["t0", "t4"]


def test_rejected_rewards_go_to_who_asks_for_them(flaky: Flaky, client: Client):
    flaky.answer = flaky.picky
    seen: list[tuple[str, str]] = []
    with RewardSender(client, on_rejected=lambda item, code: seen.append((item["decision"], code))) as sender:
        sender.add("t1", -1.0)
        sender.add("t2")
        sender.add("t3")
    assert seen == [("t1", "invalid"), ("t2", "expired_token")]
    assert flaky.taken == ["t3"]


@pytest.mark.anyio
async def test_a_task_loses_nothing_either(flaky: Flaky, task_client: AsyncClient):
    flaky.answer = flaky.down
    async with AsyncRewardSender(task_client, batch=2, buffer=4, every_s=60) as sender:
        for number in range(4):
            await sender.add(f"t{number}")
        with pytest.raises(RewardsUnsent):
            await sender.add("one too many")
        with pytest.raises(RewardsUnsent):
            await sender.flush()
        flaky.answer = flaky.take
    assert flaky.taken == ["t0", "t1", "t2", "t3"]


@pytest.mark.anyio
async def test_a_sender_that_was_not_entered_sends_too(flaky: Flaky, task_client: AsyncClient):
    sender = AsyncRewardSender(task_client)
    await sender.add("t0")
    await sender.close()
    assert flaky.taken == ["t0"]


@pytest.mark.anyio
async def test_what_a_task_could_not_send_is_named(flaky: Flaky, task_client: AsyncClient):
    flaky.answer = flaky.down
    with pytest.raises(RewardsUnsent) as failed:
        async with AsyncRewardSender(task_client) as sender:
            await sender.add("t0")
    assert [reward["decision"] for reward in failed.value.unsent] == ["t0"]
